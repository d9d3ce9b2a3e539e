"""The grid and its definition hashes."""

from dataclasses import replace

import pytest

from bench.cells import MEASURES, cells, define
from bench.recipes import RECIPES
from bench.registry import METHODS, method
from bench.suites import SUITES, Suite, suite

DIGITS = suite("digits", "laptop")


@pytest.mark.parametrize("key", SUITES)
def test_every_suite_names_what_exists(key: tuple[str, str]) -> None:
    one = SUITES[key]
    assert one.recipe in RECIPES
    assert set(one.seeds) | set(one.measured) <= set(METHODS)
    assert "exact" in one.seeds, "without exact there is nothing to compare with"


def test_keys_are_unique() -> None:
    every = [cell.key for one in SUITES.values() for measure in MEASURES for cell in cells(one, measure)]
    assert len(set(every)) == len(every)


def test_each_method_gets_its_own_number_of_seeds() -> None:
    one = suite("cifar10", "laptop")
    trained = list(cells(one, "train"))
    for name, seeds in one.seeds.items():
        assert [cell.seed for cell in trained if cell.method == name] == list(range(seeds))


def test_a_cut_run_has_paired_seeds() -> None:
    """Seeds are the outer loop: whatever the cut, no method is more than one seed ahead of another."""
    trained = list(cells(DIGITS, "train"))
    for end in range(1, len(trained)):
        done = [sum(cell.method == name for cell in trained[:end]) for name in DIGITS.seeds]
        assert max(done) - min(done) <= 1


def test_options_replace_the_factors() -> None:
    chosen = list(cells(DIGITS, "train", methods=["lean", "pool2"], models=["resnet18"], seeds=[3, 5]))
    assert {(c.method, c.model, c.seed) for c in chosen} == {
        (m, "resnet18", s) for m in ("lean", "pool2") for s in (3, 5)
    }
    assert not list(cells(DIGITS, "time", methods=["exact"])), "the time ratio of exact to itself says nothing"


def _definition(one: Suite = DIGITS, measure: str = "train", data: str = "d" * 16, device: str = "cpu") -> str:
    cell = next(iter(cells(one, measure, methods=["approx4"])))  # type: ignore[arg-type]
    return define(cell, one, data, device)[0]


def test_definition_covers_what_may_change_the_result() -> None:
    base = _definition()
    assert base == _definition()
    assert base != _definition(data="e" * 16)
    assert base != _definition(device="cuda")
    assert base != _definition(replace(DIGITS, recipe="laptop-cifar10"))
    assert _definition(measure="gradient") != _definition(replace(DIGITS, gradient_batches=9), "gradient")
    assert base == _definition(replace(DIGITS, name="other", gradient_batches=9)), "nothing incidental counts"


def test_definition_follows_the_version_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    base = _definition()
    monkeypatch.setattr(type(method("approx4")), "version", 99)
    assert base != _definition()


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(KeyError, match="did you mean 'approx4'.*known methods: exact"):
        method("aprox4")
    with pytest.raises(ValueError, match=r"known: .*cifar10 \(paper\)"):
        suite("cifar10", "huge")
