"""Training: everything but the method follows from the seed, and what happened is recorded as it is."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn

from bench.data import Dataset, load
from bench.recipes import RECIPES, Steps
from bench.train import POINTS, bar, batches, build, evaluate, make_optimizer, train

SHORT = replace(RECIPES["laptop-digits"], steps=6, batch=16, eval_every=2)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    dataset = load("digits", train_size=100, test_size=50)
    assert isinstance(dataset, Dataset)
    return dataset


def test_batches_follow_from_the_seed(digits: Dataset) -> None:
    def first(seed: int) -> list[torch.Tensor]:
        return [torch.cat([x.flatten(), y.float()]) for x, y in islice(batches(digits, SHORT, seed), 8)]

    drawn, again, other = first(0), first(0), first(1)
    assert all(map(torch.equal, drawn, again))
    assert not any(map(torch.equal, drawn, other))
    assert not torch.equal(drawn[0], drawn[6]), "the second epoch has an order of its own"


def test_weights_follow_from_the_seed(digits: Dataset) -> None:
    weights = [build("preact_resnet20", digits, seed).stem.weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_same_seed_trains_to_the_same_bits(digits: Dataset) -> None:
    runs = [train(build("preact_resnet20", digits, 3), digits, SHORT, 3) for _ in range(2)]
    assert runs[0].curve == runs[1].curve
    assert runs[0].train_loss == runs[1].train_loss


def test_build_takes_any_timm_model(digits: Dataset) -> None:
    x, _ = next(batches(digits, SHORT, 0))
    assert build("resnet18", digits, 0)(x).shape == (16, 10)
    assert build("vit_tiny_patch16_224", digits, 0)(x).shape == (16, 10)


def test_unknown_model_names_the_closest(digits: Dataset) -> None:
    with pytest.raises(ValueError, match="'preact_resnet21'; did you mean 'preact_resnet2"):
        build("preact_resnet21", digits, 0)


def test_only_kernels_decay(digits: Dataset) -> None:
    model = build("preact_resnet20", digits, 0)
    decays = {id(p): g["weight_decay"] for g in make_optimizer(model, SHORT).param_groups for p in g["params"]}
    assert len(decays) == len(list(model.parameters()))
    assert all((decays[id(p)] > 0) == (p.ndim > 1) for p in model.parameters())
    everything = make_optimizer(model, replace(SHORT, decayed="all"))
    assert [g["weight_decay"] for g in everything.param_groups] == [SHORT.weight_decay]


def test_steps_follow_the_formula_of_momentum(digits: Dataset) -> None:
    """Two steps of a linear model, against SGD written out."""
    recipe = replace(SHORT, steps=2, schedule=Steps(((0, 0.1), (1, 0.01))), momentum=0.9, weight_decay=0.05)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 10, bias=False)).double()
    weight, velocity = model[1].weight.detach().clone(), 0
    data = [(x.double(), y) for x, y in islice(batches(digits, recipe, 0), 2)]
    for (x, y), rate in zip(data, (0.1, 0.01), strict=True):
        p = torch.softmax(x.flatten(1) @ weight.T, 1) - nn.functional.one_hot(y, 10)
        velocity = 0.9 * velocity + p.T @ x.flatten(1) / len(y) + 0.05 * weight
        weight = weight - rate * velocity
    model.register_forward_pre_hook(lambda module, inputs: tuple(x.double() for x in inputs))
    train(model, digits, recipe, 0)
    torch.testing.assert_close(model[1].weight.detach(), weight)


def test_curve(digits: Dataset) -> None:
    result = train(build("preact_resnet20", digits, 0), digits, SHORT, 0)
    assert [p.step for p in result.curve] == [1, 2, 3, 4, 5, 6]
    assert [p.test_accuracy is not None for p in result.curve] == [False, True, False, True, False, True]
    assert result.curve[-1].epoch == 1.0
    assert result.test_accuracy == result.curve[-1].test_accuracy
    assert (result.steps, result.train_images, result.test_images) == (6, 100, 50)
    assert result.images_per_second == pytest.approx(6 * 16 / result.seconds)


def test_curve_points_are_means_since_the_last_and_few(digits: Dataset) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 10))
    recipe = replace(SHORT, steps=2 * POINTS + 1, batch=4, eval_every=0)
    losses: list[float] = []
    hook = nn.CrossEntropyLoss()
    targets = iter(batches(digits, recipe, 0))
    model.register_forward_hook(
        lambda module, inputs, output: (
            losses.append(hook(output.detach(), next(targets)[1]).item()) if module.training else None
        )
    )
    curve = train(model, digits, recipe, 0).curve
    assert len(curve) == 34
    assert curve[1].train_loss == pytest.approx(sum(losses[3:6]) / 3, rel=1e-5)
    assert curve[-1].train_loss == pytest.approx(sum(losses[99:]) / 2, rel=1e-5)
    assert [p.test_loss is None for p in curve] == 33 * [True] + [False]


def test_evaluation_uses_running_statistics_and_changes_nothing(digits: Dataset) -> None:
    model = build("preact_resnet20", digits, 0).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = evaluate(model, digits, SHORT)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    halves = replace(digits, test_images=digits.test_images[:1], test_labels=digits.test_labels[:1])
    one = evaluate(model, halves, SHORT)
    model.eval()
    x, y = next(iter(digits.test_batches(SHORT)))
    logits = model(x).detach()
    assert one[0] == pytest.approx(nn.functional.cross_entropy(logits[:1], y[:1]).item(), rel=1e-4)
    assert first[1] == pytest.approx(100 * (logits.argmax(1) == y).float().mean().item())


def test_divergence_is_recorded_as_it_is(digits: Dataset) -> None:
    recipe = replace(SHORT, steps=20, schedule=Steps(((0, 1e30),)))
    result = train(build("preact_resnet20", digits, 0), digits, recipe, 0)
    assert result.train_loss != result.train_loss
    assert result.steps == 20
    assert 0 <= result.test_accuracy <= 100


def test_bar_shows_rate_and_time_left(digits: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    train(build("preact_resnet20", digits, 0), digits, SHORT, 0, progress=bar("digits exact seed 0"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "digits exact seed 0: 100%" in captured.err and "6/6" in captured.err and "steps" in captured.err


def test_digits_train_in_seconds() -> None:
    digits = load("digits")
    result = train(build("preact_resnet20", digits, 0), digits, RECIPES["laptop-digits"], 0)
    assert result.test_accuracy > 90
    assert result.curve[-1].train_loss < result.curve[0].train_loss / 2


@pytest.mark.slow
def test_cifar10_learns_real_images(cifar10_folder: Path) -> None:
    cifar = load("cifar10", cifar10_folder, train_size=4000, test_size=500)
    recipe = replace(RECIPES["laptop-cifar10"], steps=120)
    assert train(build("preact_resnet20", cifar, 0), cifar, recipe, 0).test_accuracy > 20
