"""What every method promises, one by one, on every method that the registry has."""

import copy
import io
from collections.abc import Iterator
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bench.models  # noqa: F401  # registers the papers' nets with timm
from bench.registry import METHODS
from methods import NotApplicable
from methods.rules.kept import Kept

SPECS = pytest.mark.parametrize("spec", METHODS)
EXACT = pytest.mark.parametrize("spec", [spec for spec, method in METHODS.items() if method.exactness == "exact"])
FAITHFUL = pytest.mark.parametrize("spec", [spec for spec in METHODS if not spec.startswith("naive")])
# the public pooling code finds no block in the 1 x 1 maps of a stock ResNet
ON_STOCK = [spec for spec in METHODS if spec not in ("pool2-published", "pool4-published")]
SWAPPED = pytest.mark.parametrize("spec", [spec for spec in METHODS if spec not in ("exact", "checkpoint")])
NETS: dict[str, dict[str, Any]] = {
    "preact_resnet11": {"width": 4},
    "resnet10t": {"channels": (8, 8, 12, 16), "stem_width": 8},
}


def create(name: str = "preact_resnet11") -> nn.Module:
    """A net whose norms are past their start, where some of them would pass no gradient on."""
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=4, **NETS[name])
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    return model


def applied(spec: str, name: str = "preact_resnet11") -> nn.Module:
    return METHODS[spec].apply(create(name))


def images(seed: int = 0) -> Tensor:
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def backward(model: nn.Module, x: Tensor) -> Tensor:
    loss = F.cross_entropy(model(x), torch.arange(len(x)) % 4)
    loss.backward()
    return loss


def train(model: nn.Module, steps: int = 3) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for seed in range(steps):
        optimizer.zero_grad()
        backward(model, images(seed))
        optimizer.step()
    return model


def grads(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def saved(model: nn.Module, x: Tensor) -> list[Tensor]:
    """What autograd keeps, parameters and buffers left out."""
    kept: list[Tensor] = []
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = model(x)
    return [t for t in kept if t.untyped_storage().data_ptr() not in known and y is not None]


def is_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def classes(model: nn.Module) -> list[type[nn.Module]]:
    return [type(layer) for layer in model.modules()]


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor], sentence: str) -> None:
    assert a.keys() == b.keys(), sentence
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-6, msg=f"{sentence}: {name}")


# ------------------------------------------------------------------------------------------------ training


@FAITHFUL
def test_the_training_output_is_bit_equal_to_stock(spec: str) -> None:
    assert torch.equal(applied(spec)(images()), create()(images())), f"{spec} has changed the forward pass"


@pytest.mark.parametrize("spec", [spec for spec in ON_STOCK if not spec.startswith("naive")])
def test_the_training_output_of_a_stock_net_is_bit_equal(spec: str) -> None:
    assert torch.equal(applied(spec, "resnet10t")(images()), create("resnet10t")(images())), f"{spec} has changed it"


@pytest.mark.parametrize("spec", ["naive8", "naive4"])
def test_a_naive_methods_output_differs_and_is_near(spec: str) -> None:
    ours, stock = applied(spec)(images()), create()(images())
    assert not torch.equal(ours, stock), "the codes do not feed the forward pass"
    assert F.cosine_similarity(ours.flatten(), stock.flatten(), dim=0) > 0.5, "the codes are of something else"


@FAITHFUL
def test_running_statistics_after_three_forwards_are_stocks(spec: str) -> None:
    ours, stock = applied(spec), create()
    for model in (ours, stock):
        for seed in range(3):
            backward(model, images(seed))
    for (name, a), b in zip(ours.named_buffers(), stock.buffers(), strict=True):
        assert torch.equal(a, b), f"{name} differs after 3 batches"


@SPECS
def test_every_norm_has_counted_every_batch_once(spec: str) -> None:
    counts = {b.item() for name, b in train(applied(spec)).named_buffers() if name.endswith("num_batches_tracked")}
    assert counts == {3}, f"3 batches have been counted as {sorted(counts)}"


@EXACT
@pytest.mark.parametrize("name", NETS)
def test_an_exact_methods_gradients_are_stocks(spec: str, name: str) -> None:
    ours, stock = applied(spec, name), create(name)
    for model in (ours, stock):
        backward(model, images())
    assert_same(grads(ours), grads(stock), f"{spec} says that it is exact, and its gradient is another")


@SPECS
def test_every_parameter_gets_a_finite_gradient(spec: str) -> None:
    model = applied(spec)
    backward(model, images())
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not missing, f"no usable gradient for {', '.join(missing)}"


@pytest.mark.parametrize("spec", ON_STOCK)
def test_a_stock_net_trains(spec: str) -> None:
    assert all(p.isfinite().all() for p in train(applied(spec, "resnet10t")).parameters())


@SPECS
def test_gradients_add_up_over_two_batches(spec: str) -> None:
    parts = []
    for seed in (0, 1):
        model = applied(spec)
        backward(model, images(seed))
        parts.append(grads(model))
    both = applied(spec)
    for seed in (0, 1):
        backward(both, images(seed))
    assert_same(grads(both), {n: parts[0][n] + parts[1][n] for n in parts[0]}, "accumulation loses a batch")


@SPECS
def test_channels_last_is_kept(spec: str) -> None:
    model = applied(spec).to(memory_format=torch.channels_last)
    moved: list[str] = []
    for name, layer in model.named_modules():
        if name.endswith("conv2") or name == "norm":
            layer.register_forward_hook(lambda _, __, y, n=name: None if is_last(y) else moved.append(n))
    backward(model, images().to(memory_format=torch.channels_last))
    assert not moved, f"the output of {', '.join(moved)} is not channels_last any more"


@FAITHFUL
def test_channels_last_has_the_gradients_of_contiguous(spec: str) -> None:
    contiguous, last = applied(spec).double(), applied(spec).double().to(memory_format=torch.channels_last)
    backward(contiguous, images().double())
    backward(last, images().double().to(memory_format=torch.channels_last))
    assert_same(grads(last), grads(contiguous), "the memory format has changed the gradient")


@SPECS
def test_frozen_weights_get_no_gradient_and_keep_no_input(spec: str) -> None:
    kept = []
    for frozen in (True, False):
        model = applied(spec)
        if frozen:
            for layer in model.modules():
                if isinstance(layer, nn.Conv2d):
                    layer.requires_grad_(False)
        kept.append(sum(t.numel() * t.element_size() for t in saved(model, images())))
    assert kept[0] <= kept[1], "a frozen convolution keeps more than one that trains"
    if spec not in ("approx8", "approx4", "approx2", "naive8", "naive4", "lean", "checkpoint"):  # shared with the norm
        assert kept[0] < kept[1], "a frozen convolution keeps its input"


@SWAPPED
def test_a_frozen_convolution_alone_keeps_no_tensor(spec: str) -> None:
    model = METHODS[spec].apply(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()))
    conv = model[0].requires_grad_(False)  # type: ignore[operator]
    x = images().requires_grad_()
    assert saved(conv, x) == [], "the input's gradient needs the weight alone"
    conv(x).sum().backward()
    assert x.grad is not None and conv.weight.grad is None


@pytest.mark.parametrize("spec", [spec for spec in METHODS if spec != "checkpoint"])  # torch's own keeps inputs
def test_a_wholly_frozen_model_keeps_nothing(spec: str) -> None:
    model = applied(spec).requires_grad_(False)
    assert saved(model, images()) == [], "there is no backward pass to keep anything for"


@SPECS
def test_a_step_under_bfloat16_autocast_works(spec: str) -> None:
    ours, stock = applied(spec), create()
    for model in (ours, stock):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(images()).float(), torch.arange(3))
        loss.backward()
    assert all(g.isfinite().all() and g.dtype == torch.float32 for g in grads(ours).values()), "autocast breaks it"
    assert grads(ours).keys() == grads(stock).keys()


@EXACT
def test_an_exact_methods_gradients_under_autocast_are_near_stocks(spec: str) -> None:
    flat = []
    for model in (applied(spec), create()):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(images()).float(), torch.arange(3))
        loss.backward()
        flat.append(torch.cat([g.flatten() for g in grads(model).values()]))
    assert F.cosine_similarity(*flat, dim=0) > 0.99, "more than rounding to bfloat16 is lost"


@SPECS
def test_a_step_in_bfloat16_works(spec: str) -> None:
    model = applied(spec).bfloat16()
    backward(model, images().bfloat16())
    assert all(g.isfinite().all() and g.dtype == torch.bfloat16 for g in grads(model).values()), "half precision fails"


# ---------------------------------------------------------------------------------------------- evaluation


@SPECS
@pytest.mark.parametrize("name", NETS)
def test_evaluation_is_bit_equal_to_stock(spec: str, name: str) -> None:
    ours, stock = applied(spec, name).eval(), create(name).eval()
    with torch.no_grad():
        assert torch.equal(ours(images()), stock(images())), f"{spec} has changed evaluation"


@SPECS
def test_nothing_is_kept_without_gradients(spec: str) -> None:
    model = applied(spec)
    with torch.no_grad():
        assert saved(model, images()) == [], "a forward pass without gradients keeps tensors in training"
        assert saved(model.eval(), images()) == [], "a forward pass without gradients keeps tensors in evaluation"


@SPECS
def test_without_gradients_training_mode_is_stock(spec: str) -> None:
    with torch.no_grad():
        assert torch.equal(applied(spec)(images()), create()(images())), "the statistics' update alone should happen"


@SPECS
def test_evaluation_with_gradients_keeps_what_stock_keeps(spec: str) -> None:
    ours, stock = (saved(model.eval(), images()) for model in (applied(spec), create()))
    assert [t.shape for t in ours] == [t.shape for t in stock], "evaluation is not stock"


@SPECS
def test_gradients_in_evaluation_are_exact(spec: str) -> None:
    ours, stock = applied(spec).eval(), create().eval()
    for model in (ours, stock):
        backward(model, images())
    for name, gradient in grads(stock).items():
        assert torch.equal(grads(ours)[name], gradient), f"the gradient of {name} in evaluation is not stock's"


# ---------------------------------------------------------------------------------------- the model itself


@SPECS
def test_parameters_and_names_are_untouched(spec: str) -> None:
    model = create()
    parameters, buffers, keys = list(model.parameters()), list(model.buffers()), list(model.state_dict())
    assert METHODS[spec].apply(model) is model, "apply returns another model"
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True)), "a Parameter has been replaced"
    assert all(a is b for a, b in zip(model.buffers(), buffers, strict=True)), "a buffer has been replaced"
    assert list(model.state_dict()) == keys, "the names of the state_dict have changed"


@SPECS
@pytest.mark.parametrize("training", [True, False])
def test_train_and_eval_state_are_untouched(spec: str, training: bool) -> None:
    model = create().train(training)
    model.norm.eval()
    before = [layer.training for layer in model.modules()]
    assert [layer.training for layer in METHODS[spec].apply(model).modules()] == before


@SPECS
def test_hooks_are_called_as_before(spec: str) -> None:
    model, calls = create(), []
    model.norm.register_forward_hook(lambda *_: calls.append("forward"))
    model.norm.register_full_backward_hook(lambda *_: calls.append("backward"))
    model.act.inplace = False  # stock torch itself refuses an in-place change behind a backward hook
    backward(METHODS[spec].apply(model), images())
    assert calls == ["forward", "backward"]


@SPECS
def test_a_deep_copy_trains_on_its_own(spec: str) -> None:
    model = train(applied(spec), steps=1)
    twin = copy.deepcopy(model)
    before = [p.clone() for p in model.parameters()]
    assert classes(twin) == classes(model), "the copy is stock"
    train(twin)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)), "it trains the original"
    assert_same(dict(train(model).named_parameters()), dict(twin.named_parameters()), "the copy trains otherwise")


@SPECS
def test_the_whole_model_can_be_saved_and_loaded(spec: str) -> None:
    model, file = train(applied(spec), steps=1), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert classes(again) == classes(model), "loading gives another model"
    assert_same(dict(train(model).named_parameters()), dict(train(again).named_parameters()), "it trains otherwise")


@SPECS
def test_a_state_dict_moves_to_the_stock_model_and_back(spec: str) -> None:
    ours, stock = train(applied(spec)), create()
    stock.load_state_dict(ours.state_dict())
    assert torch.equal(ours.eval()(images()), stock.eval()(images()))
    ours.load_state_dict(create().state_dict())


@SPECS
@pytest.mark.parametrize("name", NETS)
def test_remove_gives_back_the_stock_model(spec: str, name: str) -> None:
    model, stock = applied(spec, name), create(name)
    attributes = [set(vars(layer)) for layer in stock.modules()]
    assert METHODS[spec].remove(model) is model
    assert classes(model) == classes(stock), "a layer has not got its class back"
    assert [set(vars(layer)) for layer in model.modules()] == attributes, "an attribute of the method is left"
    for m in (model, stock):
        backward(m, images())
    assert all(torch.equal(g, grads(stock)[n]) for n, g in grads(model).items()), "the removed method still acts"


@SPECS
def test_every_other_method_can_follow_after_remove(spec: str) -> None:
    model = METHODS[spec].remove(applied(spec))
    for other, method in METHODS.items():
        assert classes(method.remove(method.apply(model))) == classes(create()), f"{other} cannot follow {spec}"


def pairs() -> Iterator[tuple[str, str]]:
    for spec in METHODS:
        if spec != "exact":
            yield from ((spec, other) for other in ("exact", "lean", "approx4", "pool2", "checkpoint", spec))


@pytest.mark.parametrize(("spec", "other"), dict.fromkeys(pairs()))
def test_a_second_method_is_refused_and_changes_nothing(spec: str, other: str) -> None:
    model = applied(spec)
    before = classes(model)
    with pytest.raises(NotApplicable, match=r"remove\(model\)|set_grad_checkpointing\(False\)"):
        METHODS[other].apply(model)
    assert classes(model) == before, "the refused method has left its traces"
    train(model, steps=1)


def test_exact_leaves_the_model_free_for_every_other_method() -> None:
    METHODS["approx4"].apply(METHODS["exact"].apply(create()))


# ------------------------------------------------------------------------------------------ other models


@SWAPPED
def test_a_model_that_cannot_be_served_is_left_untouched(spec: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 2))
    before = [set(vars(layer)) for layer in model.modules()]
    with pytest.raises(NotApplicable, match=f"^{spec} needs .*; use 'checkpoint'"):
        METHODS[spec].apply(model)
    assert not any(isinstance(layer, Kept) for layer in model.modules()), "a refused method has switched a layer"
    assert [set(vars(layer)) for layer in model.modules()] == before


@pytest.mark.parametrize("spec", ["lean", "approx8", "approx4", "approx2", "naive8", "naive4", "pool2", "pool4"])
def test_a_vision_transformer_is_refused_and_left_untouched(spec: str) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", num_classes=4, img_size=32, depth=1)
    before, expected = classes(model), model(images())
    with pytest.raises(NotApplicable, match="VisionTransformer has none that it can serve"):
        METHODS[spec].apply(model)
    assert classes(model) == before, "the patch embedding's convolution has been switched"
    assert torch.equal(model(images()), expected)


@SWAPPED
@pytest.mark.parametrize("shape", [(3, 9, 9), (0, 3, 9, 9)], ids=["unbatched", "empty"])
def test_unbatched_and_empty_inputs_are_served_as_stock_does(spec: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    stock = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))
    ours = METHODS[spec].apply(copy.deepcopy(stock))
    x = torch.randn(shape)
    for model in (stock, ours):
        model[:3](x).sum().backward()  # type: ignore[operator]
    for name, gradient in grads(stock).items():
        assert torch.equal(grads(ours)[name], gradient), f"the gradient of {name} is not stock's"


@SWAPPED
def test_one_value_a_channel_raises_stocks_own_error(spec: str) -> None:
    model = METHODS[spec].apply(nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.BatchNorm2d(4)))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model(torch.randn(1, 3, 4, 4))
