"""Pooling that keeps a shape, or one byte an output, has the gradients of the stock layers."""

import copy
import itertools

import pytest
import torch
from torch import Tensor, nn

from methods import Approx
from methods.rules.pooling import KeptAvgPool2d, KeptMaxPool2d

WINDOWS = [
    (kernel, stride, padding, ceil)
    for kernel, stride, padding, ceil in itertools.product((1, 2, 3, (2, 3)), (1, 2, (3, 1)), (0, 1), (False, True))
    if 2 * padding <= min(kernel if isinstance(kernel, tuple) else (kernel, kernel))
]


def applied(pool: nn.Module) -> nn.Module:
    """``pool`` under a method, alone: a net of it would round away from ties."""
    net = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU(), copy.deepcopy(pool))
    return Approx(4).apply(net)[3]


def gradient(pool: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = pool(x)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    (y * weights).sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad


def check(pool: nn.Module, kept: type[nn.Module], shape: tuple[int, ...] = (2, 3, 7, 6), ties: bool = False) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x = x.round() if ties else x
    ours = applied(pool)
    assert type(ours) is kept, "the rule does not serve this pooling, and the test would compare stock with stock"
    for layout in (torch.contiguous_format, torch.channels_last):
        (y, dx), (stock_y, stock_dx) = gradient(ours, x.to(memory_format=layout)), gradient(pool, x)
        assert torch.equal(y, stock_y), f"{pool} has another output in {layout}"
        torch.testing.assert_close(dx, stock_dx, msg=f"{pool} has another gradient in {layout}")


@pytest.mark.parametrize(("kernel", "stride", "padding", "ceil"), WINDOWS)
def test_max_pooling_finds_every_maximum_again(kernel: int, stride: int, padding: int, ceil: bool) -> None:
    check(nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil), KeptMaxPool2d)


@pytest.mark.parametrize("padding", [0, 1])
def test_max_pooling_breaks_ties_as_stock_does(padding: int) -> None:
    check(nn.MaxPool2d(3, 2, padding), KeptMaxPool2d, (2, 4, 9, 9), ties=True)


def test_the_largest_window_of_one_byte_is_served() -> None:
    check(nn.MaxPool2d(16, 8, 8), KeptMaxPool2d, (1, 2, 40, 33))


@pytest.mark.parametrize(
    "pool", [nn.MaxPool2d(17), nn.MaxPool2d(2, dilation=2), nn.MaxPool2d(2, return_indices=True)], ids=str
)
def test_max_pooling_that_a_byte_cannot_hold_stays_stock(pool: nn.Module) -> None:
    assert type(applied(pool)) is nn.MaxPool2d, "a window that one offset cannot describe has been switched"


def test_a_dilated_max_pooling_trains_as_stock_does() -> None:
    pool = nn.MaxPool2d(2, 1, 1, dilation=3)
    x = torch.randn(2, 1, 3, 5, generator=torch.Generator().manual_seed(0))
    ours, stock = gradient(applied(pool), x), gradient(pool, x)
    assert all(torch.equal(a, b) for a, b in zip(ours, stock, strict=True))


def test_max_pooling_keeps_one_byte_an_output() -> None:
    kept: list[Tensor] = []
    pool = applied(nn.MaxPool2d(3, 2, 1))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = pool(torch.randn(2, 3, 8, 8, requires_grad=True))
    assert [(t.dtype, t.shape) for t in kept] == [(torch.uint8, y.shape)], "more is kept than an offset an output"


@pytest.mark.parametrize(("kernel", "stride", "padding", "ceil"), WINDOWS)
def test_average_pooling_gives_the_stock_gradient(kernel: int, stride: int, padding: int, ceil: bool) -> None:
    check(nn.AvgPool2d(kernel, stride, padding, ceil_mode=ceil), KeptAvgPool2d)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("divisor", [None, 3])
def test_average_pooling_divides_as_stock_does(counted: bool, divisor: int | None) -> None:
    pool = nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=counted, divisor_override=divisor)
    check(pool, KeptAvgPool2d)


def test_average_pooling_keeps_no_tensor() -> None:
    kept: list[Tensor] = []
    pool = applied(nn.AvgPool2d(2))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        pool(torch.randn(2, 3, 8, 8, requires_grad=True))
    assert kept == [], "average pooling's backward reads a shape alone"


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2)], ids=["max", "average"])
@pytest.mark.parametrize("shape", [(3, 8, 8), (0, 3, 8, 8)], ids=["unbatched", "empty"])
def test_unbatched_and_empty_maps_are_pooled_as_stock_does(pool: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    ours, stock = gradient(applied(pool), x), gradient(pool, x)
    assert all(torch.equal(a, b) for a, b in zip(ours, stock, strict=True))
