"""Memory, time and gradient error against figures known by hand."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from bench import gradient, memory, timing
from bench.registry import method
from bench.step import forward, step


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).train()


def _batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(16, 3, 12, 12, generator=random), torch.randint(4, (16,), generator=random)


def _measure(spec: str) -> memory.MemoryResult:
    model = method(spec).apply(_net())
    return memory.measure(model, torch.optim.SGD(model.parameters(), lr=0.01), *_batch())


def test_saved_is_what_autograd_keeps_by_hand() -> None:
    maps = 16 * 8 * 12 * 12 * 4
    small = 2 * 8 * 4 + 16 * 8 * 4 + 16 * 4 * 4 + 4  # statistics, pooled features, log-softmax, the loss' weight
    assert _measure("exact").saved_bytes == pytest.approx(2 * maps + small, abs=64)
    assert _measure("lean").saved_bytes == pytest.approx(maps + small, abs=64)
    assert _measure("approx4").saved_bytes == pytest.approx(maps / 8 + small, abs=64)


@pytest.mark.parametrize("spec", ["exact", "lean", "approx4", "pool2"])
def test_saved_agrees_with_held_where_both_see_everything(spec: str) -> None:
    found = _measure(spec)
    assert found.saved_bytes == pytest.approx(found.held_bytes, abs=256)
    assert found.peak_bytes >= found.held_bytes


def test_memory_repeats_to_the_byte() -> None:
    first, second = _measure("approx4"), _measure("approx4")
    assert (first.saved_bytes, first.held_bytes, first.peak_bytes) == (
        second.saved_bytes, second.held_bytes, second.peak_bytes,
    )  # fmt: skip


def test_saved_leaves_out_parameters_and_the_input() -> None:
    linear, x = nn.Linear(1000, 2), torch.randn(3, 1000)
    assert memory.saved_bytes(linear, x, torch.tensor([0, 1, 0])) < 200


def test_time_takes_exact_method_exact_in_turn() -> None:
    calls: list[str] = []
    found = timing.measure(lambda: calls.append("e"), lambda: calls.append("m"), 3, False, "a", "b")
    assert "".join(calls) == "em" * 2 + "eme" * 3
    assert len(found.method_ms) == len(found.exact_ms) == len(found.control_ms) == 3
    assert found.ratio_low <= found.ratio <= found.ratio_high


def test_gradient_of_exact_has_no_error() -> None:
    exact = _net()
    found = gradient.measure(exact, copy.deepcopy(exact), [_batch(0), _batch(1)])
    assert found.relative_error == 0
    assert found.cosine == pytest.approx(1)
    assert found.sgd_noise > 0
    assert [layer.name for layer in found.layers] == [name for name, _ in exact.named_parameters()]
    assert found.layers[0].kind == "Conv2d"


class _Doubled(nn.Module):
    """Twice the gradient of every parameter."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        for p in model.parameters():
            p.register_hook(lambda grad: 2 * grad)

    def named_parameters(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        return self.model.named_parameters(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


def test_gradient_error_is_relative_to_exact() -> None:
    exact = _net()
    found = gradient.measure(exact, _Doubled(copy.deepcopy(exact)), [_batch(0), _batch(1)])
    assert found.relative_error == pytest.approx(1)
    assert found.cosine == pytest.approx(1)


def test_sgd_noise_is_the_unbiased_deviation_between_batches() -> None:
    exact, batches = _net(), [_batch(0), _batch(1), _batch(2)]
    rows = torch.stack([torch.cat(list(gradient.gradients(exact, *batch).values())) for batch in batches])
    expected = rows.var(dim=0, correction=1).sum() / rows.square().sum(dim=1).mean()
    found = gradient.measure(exact, copy.deepcopy(exact), batches)
    assert found.sgd_noise == pytest.approx(float(expected), rel=1e-6)


def test_step_allocates_its_own_gradients() -> None:
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step(model, optimizer, *_batch())
    first = model[0].weight.grad.clone()
    step(model, optimizer, *_batch())
    assert torch.allclose(model[0].weight.grad, first), "gradients must not add up over steps"
    assert math.isfinite(float(forward(model, *_batch()).detach()))
