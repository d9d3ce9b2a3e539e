"""Handles: what a later layer may know of a tensor, for how long, and what happens when the tensor changes."""

import copy
import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from baselines import Lean
from methods import Approx, Pool
from methods.codec import operand_handle
from methods.handles import attach, handle_of, stored
from methods.swapping import SwappingMethod

METHODS = pytest.mark.parametrize("method", [Lean(), Approx(8), Approx(4), Pool(2)], ids=lambda m: m.name)


def layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)]


def net(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers(), *more).double()


def images(seed: int = 1) -> Tensor:
    return torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    model(x).square().sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def assert_equal(got: list[Tensor], expected: list[Tensor], message: str) -> None:
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=message)


def test_a_handle_is_stale_once_its_tensor_has_changed_in_place() -> None:
    x = torch.randn(1, 2, 3, 3)
    attach(x, stored(x), "codec")
    x += 1
    assert handle_of(x, "codec") is None, "the handle tells of a value that is gone"


def test_a_handle_is_stale_once_a_view_of_its_tensor_has_changed() -> None:
    x = torch.randn(1, 2, 3, 3)
    attach(x, stored(x), "codec")
    x[0, 0].zero_()
    assert handle_of(x, "codec") is None, "a view has changed the value, and the handle does not know"


def test_a_view_has_no_handle() -> None:
    x = torch.randn(1, 2, 3, 3)
    attach(x, stored(x), "codec")
    assert handle_of(x[:, :1], "codec") is None and handle_of(x.view(1, 1, 6, 3), "codec") is None


def test_another_codec_does_not_see_a_handle() -> None:
    x = torch.randn(1, 2, 3, 3)
    attach(x, stored(x), Approx(4).codec)
    assert handle_of(x, Approx(4).codec) is not None, "an equal codec reads the same codes"
    assert handle_of(x, Approx(8).codec) is None, "codes of 4 bits have been given to a method of 8"


@METHODS
def test_two_readers_of_a_tensor_share_one_handle(method: SwappingMethod) -> None:
    x = torch.randn(1, 2, 4, 4, requires_grad=True) * 1
    assert operand_handle(method.codec, x) is operand_handle(method.codec, x), "the second reader pays again"


class InPlaceSum(nn.Module):
    """A shortcut added in place, as timm's blocks do it, where the sum is read by a norm, a ReLU and a convolution."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.stem, self.norm, self.act, self.conv = layers()
        self.norm2, self.last = nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.stem(x)
        y = self.norm2(self.conv(self.act(self.norm(shortcut))))
        if self.in_place:
            y += shortcut
        else:
            y = y + shortcut
        return self.last(self.act(y))


@METHODS
def test_a_sum_in_place_is_no_longer_the_norms_output(method: SwappingMethod) -> None:
    results = []
    for in_place in (True, False):
        torch.manual_seed(0)
        results.append(gradients(method.apply(InPlaceSum(in_place).double()), images()))
    assert_equal(*results, "a handle has outlived the change of its tensor")


class Twice(nn.Module):
    """One norm, one ReLU and one convolution, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.act, self.conv = layers()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(2):
            x = self.conv(self.act(self.norm(x)))
        return x


class Unrolled(Twice):
    """The same with layers of their own, which share their parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.norm2, self.act2, self.conv2 = layers()[1:]
        self.norm2.weight, self.norm2.bias = self.norm.weight, self.norm.bias
        self.conv2.weight, self.conv2.bias = self.conv.weight, self.conv.bias

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(self.act(self.norm(self.stem(x))))
        return self.conv2(self.act2(self.norm2(x)))


@METHODS
def test_a_module_called_twice_keeps_both_calls_apart(method: SwappingMethod) -> None:
    results = [gradients(method.apply(kind().double()), images()) for kind in (Twice, Unrolled)]
    assert_equal(*results, "the second call has overwritten what the first one kept")


@METHODS
def test_one_relu_module_in_several_places_reads_the_right_norm(method: SwappingMethod) -> None:
    model = net(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1).double())
    shared = copy.deepcopy(model)
    shared[5] = shared[2]
    expected = gradients(method.apply(model), images())
    assert_equal(gradients(method.apply(shared), images()), expected, "a shared ReLU mixes up its callers")


@METHODS
def test_backward_can_run_twice_on_a_retained_graph(method: SwappingMethod) -> None:
    model, x = method.apply(net()), images()
    once = gradients(model, x)
    model.zero_grad()
    loss = model(x).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert_equal([p.grad for p in model.parameters()], [2 * g for g in once], "the second backward differs")  # type: ignore[misc]


@METHODS
def test_a_second_backward_without_retained_graph_raises(method: SwappingMethod) -> None:
    loss = method.apply(net())(images()).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@METHODS
@pytest.mark.parametrize("name", ["3.weight", "1.weight"])
def test_a_parameter_changed_before_backward_raises(method: SwappingMethod, name: str) -> None:
    model = method.apply(net())
    loss = model(images()).sum()
    with torch.no_grad():
        model.get_parameter(name).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def kept_storages(model: nn.Module, x: Tensor) -> tuple[Tensor, list[weakref.ref[torch.UntypedStorage]]]:
    """The loss, and weak references to the tensors that the graph has saved and nothing else holds."""
    refs: list[weakref.ref[torch.UntypedStorage]] = []
    others = {t.untyped_storage().data_ptr() for t in (x, *model.parameters(), *model.buffers())}

    class Kept:
        def __init__(self, t: Tensor) -> None:
            self.t = t

    def pack(t: Tensor) -> Kept:
        kept = Kept(t)
        if t.untyped_storage().data_ptr() not in others:
            refs.append(weakref.ref(kept))  # type: ignore[arg-type]
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.t):
        return model(x).square().sum(), refs


@METHODS
def test_codes_are_freed_by_backward_though_the_loss_lives(method: SwappingMethod) -> None:
    loss, refs = kept_storages(method.apply(net()), images())
    assert refs and all(ref() is not None for ref in refs), "nothing is kept, and the test would show nothing"
    loss.backward()
    assert not any(ref() for ref in refs), "what was kept for backward outlives it"
    assert loss.isfinite()


def live_tensors() -> int:
    return sum(issubclass(type(o), Tensor) for o in gc.get_objects())  # isinstance would ask torch's lazy objects


@METHODS
@pytest.mark.parametrize("backward", [True, False])
def test_a_step_leaves_nothing_to_the_garbage_collector(method: SwappingMethod, backward: bool) -> None:
    model = method.apply(InPlaceSum(True).double())
    gradients(model, images())
    gc.collect()
    gc.disable()
    try:
        before = live_tensors()
        loss = model(images()).sum()
        if backward:
            loss.backward()
        del loss
        assert live_tensors() <= before, "a cycle of references keeps tensors alive until the collector comes"
    finally:
        gc.enable()


@METHODS
@pytest.mark.parametrize("wanted", [True, False])
def test_the_callers_batch_carries_no_handle(method: SwappingMethod, wanted: bool) -> None:
    x = images().requires_grad_(wanted)
    gradients(method.apply(net()), x)
    assert not vars(x), f"the batch carries {', '.join(vars(x))} after the step"


@METHODS
@pytest.mark.parametrize("first", [Lean(), Approx(4), Pool(2)], ids=lambda m: m.name)
def test_two_methods_on_one_batch_do_not_see_each_other(method: SwappingMethod, first: SwappingMethod) -> None:
    clean, x = gradients(method.apply(net()), images()), images()
    gradients(first.apply(net()), x)
    after = gradients(method.apply(net()), x)
    assert_equal(after, clean, f"{method.name} has read what {first.name} left on the batch")


@METHODS
def test_a_batch_refilled_behind_torchs_back_is_read_anew(method: SwappingMethod) -> None:
    model, x = method.apply(net()), images()
    gradients(model, x)
    x.numpy()[:] = images(2).numpy()  # no version counter moves
    assert_equal(gradients(model, x), gradients(model, images(2)), "the last batch's values were used")


@METHODS
def test_double_backward_is_refused(method: SwappingMethod) -> None:
    x = images().requires_grad_()
    (grad,) = torch.autograd.grad(method.apply(net())(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable|does not require grad"):
        grad.sum().backward()
