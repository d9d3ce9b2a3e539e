"""The papers' settings as published, and what a recipe refuses."""

from dataclasses import replace

import pytest

from bench.recipes import RECIPES, Steps, WarmupLinear
from bench.suites import SUITES


def rate(name: str, step: int, per_epoch: int = 390) -> float:
    recipe = RECIPES[name]
    return recipe.schedule.at(step, recipe.total_steps(per_epoch * recipe.batch), per_epoch)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.01),
        (399, 0.01),
        (400, 0.1),
        (31_999, 0.1),
        (32_000, 0.01),
        (47_999, 0.01),
        (48_000, 0.001),
        (63_999, 0.001),
    ],
)
def test_rates_of_2019_on_cifar(step: int, expected: float) -> None:
    assert rate("paper2019-cifar", step) == expected


@pytest.mark.parametrize(("epoch", "expected"), [(0, 0.1), (29, 0.1), (30, 0.01), (59, 0.01), (60, 0.001), (89, 0.001)])
def test_rates_of_2024_change_with_the_epoch(epoch: int, expected: float) -> None:
    assert rate("paper2024", epoch * 390) == rate("paper2024", epoch * 390 + 389) == expected


def test_length_of_the_papers_runs() -> None:
    assert RECIPES["paper2019-cifar"].total_steps(50_000) == 64_000
    assert RECIPES["paper2019-imagenet"].total_steps(1_281_167) == 640_000
    assert RECIPES["paper2024"].total_steps(1_281_167) == 90 * 20_018


def test_warmup_rises_to_the_peak_and_falls_to_nearly_zero() -> None:
    rates = [WarmupLinear(0.4, warmup=0.25).at(step, 100, 10) for step in range(100)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(0.4)
    assert top == 24
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 0.4 / 50


@pytest.mark.parametrize("total", [1, 2, 3, 7])
def test_shortest_runs_have_positive_rates_up_to_the_peak(total: int) -> None:
    assert all(0 < WarmupLinear(0.4).at(step, total, 1) <= 0.4 for step in range(total))


def test_every_recipe_says_where_it_is_from_and_starts() -> None:
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert recipe.source
        assert recipe.schedule.at(0, 100, 10) > 0
        assert not isinstance(recipe.schedule, Steps) or recipe.schedule.rates[0][0] == 0


def test_every_suite_has_its_recipe() -> None:
    assert {suite.recipe for suite in SUITES.values()} <= set(RECIPES)


def test_either_steps_or_epochs() -> None:
    with pytest.raises(ValueError, match="either steps or epochs, has 64000 and 2"):
        replace(RECIPES["paper2019-cifar"], epochs=2)


def test_too_few_images_for_a_batch() -> None:
    with pytest.raises(ValueError, match="100 training images make no batch of 128"):
        RECIPES["paper2019-cifar"].steps_per_epoch(100)
