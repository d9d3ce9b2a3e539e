"""Memory of one training step: saved, held and peak, in bytes, exact and repeatable."""

import resource
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from bench.step import forward, step
from results.schema import MemoryResult

_FORWARD_DONE = "lean-backprop: forward done"


def saved_bytes(model: nn.Module, images: Tensor, labels: Tensor) -> int:
    """Bytes of the distinct storages that autograd keeps for backward; no parameters, no buffers, not the input.

    A tensor that the graph keeps alive without saving it (an argument of a closure, say) is not seen.
    """
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), images, labels)}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage  # holding the storage keeps its address from being used again
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        forward(model, images, labels)
    return sum(storage.nbytes() for storage in kept.values())


def measure(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> MemoryResult:
    """Measures the second step: the first one allocates the optimiser's state."""
    step(model, optimizer, images, labels)
    held, peak = _cuda(model, optimizer, images, labels) if images.is_cuda else _cpu(model, optimizer, images, labels)
    optimizer.zero_grad(set_to_none=True)
    saved = saved_bytes(model, images, labels)
    process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return MemoryResult(
        saved_bytes=saved,
        held_bytes=held,
        peak_bytes=peak,
        process_peak_bytes=process,
        parameter_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
        input_bytes=images.numel() * images.element_size(),
        memory_format=memory_format(images),
    )


def memory_format(images: Tensor) -> str:
    last = images.is_contiguous(memory_format=torch.channels_last) and images.shape[1] > 1
    return "channels_last" if last else "contiguous"


def _cpu(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> tuple[int, int]:
    """From the allocator's own events, which the profiler records."""
    optimizer.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss = forward(model, images, labels)
        with record_function(_FORWARD_DONE):
            pass
        loss.backward()
        optimizer.step()
    events = sorted(_events(profiler), key=lambda event: event.start_ns())
    alive = held = peak = 0
    for event in events:
        if event.name() == _FORWARD_DONE:
            held = alive
        else:
            alive += event.nbytes()
            peak = max(peak, alive)
    return held, peak


def _events(profiler: profile) -> list[Any]:
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None  # set on leaving its context
    return [event for event in profiler.profiler.kineto_results.events() if event.name() in ("[memory]", _FORWARD_DONE)]


def _cuda(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> tuple[int, int]:
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    loss = forward(model, images, labels)
    held = torch.cuda.memory_allocated() - start
    loss.backward()
    optimizer.step()
    return held, torch.cuda.max_memory_allocated() - start
