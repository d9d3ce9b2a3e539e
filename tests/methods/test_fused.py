"""Compiled kernels against the plain functions that they stand for, in float64; the plain ones have the references."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bench.models  # noqa: F401  # registers the papers' nets with timm
from bench.registry import method
from methods import fused
from methods.packing import Layout, pack

FORMATS = pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format], ids=str)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAN_COMPILE", "1")


def net(name: str = "preact_resnet11", **options: object) -> nn.Module:
    """In float64, with norms whose gammas have both signs and are zero here and there."""
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=4, **options).double().train()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias, std=2)
            layer.weight.data[1] = 0
    return model


def step(model: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    y = model(x)
    F.cross_entropy(y, torch.arange(len(x)) % 4).backward()
    return y.detach(), [p.grad for p in model.parameters() if p.grad is not None]


@FORMATS
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_parts_of_a_view_are_the_runs_that_share_bytes(
    compiled: None, memory_format: torch.memory_format, bits: int
) -> None:
    codes = torch.randint(0, 2**bits, (8, 3, 5, 7), dtype=torch.uint8).contiguous(memory_format=memory_format)
    view = fused.view(Layout.of(codes), bits)
    assert view is not None
    together = sum(part.int() << (bits * i) for i, part in enumerate(view.of(codes)))
    assert torch.equal(view.bytes_of(pack(codes, bits)), together.to(torch.uint8))  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(3, 4, 5, 5), (1, 4, 1, 1), (2, 1, 4, 4), (4, 4, 0, 3)])
def test_sizes_that_do_not_divide_are_left_to_the_plain_functions(compiled: None, shape: tuple[int, ...]) -> None:
    assert fused.view(Layout.of(torch.empty(shape)), 4) is None


def test_a_tensor_with_gaps_is_left_to_the_plain_functions(compiled: None) -> None:
    assert fused.view(Layout.of(torch.empty(4, 8, 6, 6)[:, ::2]), 4) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "memory_format"),
    [
        ("approx8", torch.channels_last),
        ("approx4", torch.channels_last),
        ("approx4", torch.contiguous_format),
        ("approx2", torch.channels_last),
    ],
    ids=str,
)
def test_compiled_steps_are_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch, spec: str, memory_format: torch.memory_format
) -> None:
    model = net("resnet10t", channels=(8, 8, 12, 16), stem_width=8).to(memory_format=memory_format)
    x = torch.randn(8, 3, 32, 32, dtype=torch.float64).contiguous(memory_format=memory_format)
    outcomes = []
    for switch in ("0", "1"):
        monkeypatch.setenv("LEAN_COMPILE", switch)
        outcomes.append(step(method(spec).apply(copy.deepcopy(model)), x))
    (plain, plain_grads), (ours, our_grads) = outcomes
    assert torch.equal(ours, plain), "the kernels have changed the forward pass"
    for ours, plain in zip(our_grads, plain_grads, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_other_sizes_compile_nothing_new(compiled: None) -> None:
    from torch._dynamo.utils import counters

    model = method("approx4").apply(net(width=4)).to(memory_format=torch.channels_last)

    def run(count: int, size: int) -> int:
        x = torch.randn(count, 3, size, size, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
        step(model, x)
        return int(counters["stats"]["unique_graphs"])

    run(8, 32), run(4, 24)  # a second size makes those free that the first one had fixed
    known = run(6, 40)
    assert run(10, 48) == known and run(8, 32) == known, "layers of other sizes are compiled anew"


@pytest.mark.slow
def test_a_compiler_that_fails_costs_one_warning(tmp_path: Path) -> None:
    script = """
import warnings, torch, timm, bench.models
import torch._inductor.config as config
from bench.registry import method
config.cpp.cxx = ("/no/such/compiler",)
config.force_disable_caches = True
model = method("approx4").apply(timm.create_model("preact_resnet11", width=4).train())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        model(torch.randn(4, 3, 32, 32)).sum().backward()
ours = [w for w in caught if "kernels run uncompiled" in str(w.message)]
assert len(ours) == 1, caught
"""
    environment = {"LEAN_COMPILE": "1", "PATH": "/usr/bin:/bin", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
