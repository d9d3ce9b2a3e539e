"""A norm whose backward does its ReLU's as well has the gradients of two nodes, whoever else reads or watches it."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from methods import Approx, fused
from methods.handles import Ticket

Graph = Callable[[nn.ModuleDict, Tensor], Tensor]

pytestmark = pytest.mark.slow  # compiles


@pytest.fixture
def tickets(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The gradients that have been handed over, so that no test passes without."""
    handed: list[Tensor] = []
    put = Ticket.put
    monkeypatch.setattr(Ticket, "put", lambda self, grad: (handed.append(grad), put(self, grad)))
    return handed


def coded(net: nn.ModuleDict) -> nn.ModuleDict:
    return Approx(4).apply(copy.deepcopy(net))


def run(net: nn.ModuleDict, graph: Graph, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> list[Tensor]:
    monkeypatch.setattr(fused, "enabled", lambda: compiled)
    net = coded(net)
    graph(net, images()).square().sum().backward()
    return grads(net)


def layers(inplace: bool = False) -> nn.ModuleDict:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    first, last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)
    return nn.ModuleDict({"conv": first, "norm": norm, "relu": nn.ReLU(inplace), "last": last}).double()


def normed(net: nn.ModuleDict, x: Tensor) -> Tensor:
    return net["norm"](net["conv"](x))


def chain(net: nn.ModuleDict, x: Tensor) -> Tensor:
    return net["last"](net["relu"](normed(net, x)))


def two_relus(net: nn.ModuleDict, x: Tensor) -> Tensor:
    y = normed(net, x)
    return net["last"](net["relu"](y)) * net["relu"](y).sum()


def another_reader(net: nn.ModuleDict, x: Tensor) -> Tensor:
    y = normed(net, x)
    return net["last"](net["relu"](y)) + net["last"](y.sigmoid())


def relu_unused(net: nn.ModuleDict, x: Tensor) -> Tensor:
    y = normed(net, x)
    net["relu"](y)
    return net["last"](y.tanh())


def in_place_after_a_reader(net: nn.ModuleDict, x: Tensor) -> Tensor:
    y = normed(net, x)
    before = y * 3
    return net["last"](net["relu"](y)) + net["last"](before)


GRAPHS = (chain, two_relus, another_reader, relu_unused, in_place_after_a_reader)


def images() -> Tensor:
    return torch.randn(4, 3, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def grads(net: nn.ModuleDict) -> list[Tensor]:
    return [p.grad for p in net.parameters() if p.grad is not None]


def assert_same(ours: list[Tensor], others: list[Tensor]) -> None:
    for a, b in zip(ours, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


# an in-place ReLU leaves nothing of the norm's output to later readers
@pytest.mark.parametrize(
    ("graph", "inplace"),
    [*((graph, False) for graph in GRAPHS), (chain, True), (in_place_after_a_reader, True)],
)
def test_whoever_reads_the_norm_gets_its_gradient_through(
    graph: Graph, inplace: bool, tickets: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = layers(inplace)
    plain = run(net, graph, monkeypatch, compiled=False)
    assert not tickets
    assert_same(run(net, graph, monkeypatch, compiled=True), plain)
    assert tickets or graph is relu_unused


@pytest.mark.parametrize("watch", ["hook", "retain"])
def test_who_watches_the_norms_gradient_sees_all_of_it(
    watch: str, tickets: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for compiled in (False, True):
        monkeypatch.setattr(fused, "enabled", lambda on=compiled: on)
        net = coded(layers())
        y = normed(net, images())
        if watch == "hook":
            y.register_hook(seen.append)
        else:
            y.retain_grad()
        net["last"](net["relu"](y)).square().sum().backward()
        if watch == "retain":
            seen.append(y.grad)
    torch.testing.assert_close(seen[1], seen[0])
    assert not tickets


def test_a_backward_that_ends_behind_the_norm_leaves_nothing_for_the_next(
    tickets: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(layers(), chain, monkeypatch, compiled=False)
    monkeypatch.setattr(fused, "enabled", lambda: True)
    net = coded(layers())
    z = net["relu"](normed(net, images()))
    loss = net["last"](z).square().sum()
    torch.autograd.grad(loss, [net["last"].weight, z], retain_graph=True)
    loss.backward()
    assert_same(grads(net), plain)
    assert tickets


def test_a_graph_used_twice_gives_its_gradient_twice(tickets: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "enabled", lambda: True)
    net = coded(layers())
    loss = chain(net, images()).square().sum()
    loss.backward(retain_graph=True)
    once = [g.clone() for g in grads(net)]
    loss.backward()
    assert_same(grads(net), [2 * g for g in once])
    assert len(tickets) == 2
