"""What each suite runs, as literals: the factors of its grid and the sizes that fit its preset."""

from dataclasses import dataclass, field
from typing import Literal

PRESETS = ("laptop", "paper")
Preset = Literal["laptop", "paper"]


@dataclass(frozen=True)
class Suite:
    """``seeds`` says how many trainings each method gets, from seed 0 on; a size is an upper bound, None: stock."""

    name: str
    preset: Preset
    dataset: str
    models: tuple[str, ...]
    recipe: str
    seeds: dict[str, int]
    margin: float = 0.5  # points of accuracy within which a method counts as equivalent; declared, not tuned
    measured: tuple[str, ...] = ()  # more methods for time, memory and gradient, not trained
    train_size: int | None = None
    test_size: int | None = None
    image_size: int | None = None
    time_rounds: int = 10
    gradient_steps: int = 30  # steps of exact training before gradients are compared
    gradient_batches: int = 8
    data_seed: int = field(default=0)  # draws the subset, the same for every training seed

    def methods(self, measure: str) -> tuple[str, ...]:
        """The methods of a measure; exact's own gradient error and time ratio say nothing, so it has none."""
        if measure == "train":
            return tuple(self.seeds)
        every = (*self.seeds, *self.measured)
        return every if measure == "memory" else tuple(m for m in every if m != "exact")


_PUBLISHED = ("pool1-published", "pool2-published", "pool4-published")
_ALL = ("exact", "lean", "approx8", "approx4", "approx2", "naive8", "naive4", "pool2", "pool4", "checkpoint")

# 9 pairs are the fewest that can show a difference by signs alone after Holm's correction over 9 methods
_TEN = {"exact": 10, "approx4": 10} | {m: 9 for m in _ALL if m not in ("exact", "approx4")}

_SUITES = (
    Suite(
        name="digits",
        preset="laptop",
        dataset="digits",
        models=("preact_resnet20",),
        recipe="laptop-digits",
        seeds={m: 3 for m in _ALL},
        measured=_PUBLISHED,
        gradient_batches=4,
    ),
    Suite(
        name="cifar10",
        preset="laptop",
        dataset="cifar10",
        models=("preact_resnet11",),
        recipe="laptop-cifar10",
        seeds=_TEN,
        measured=_PUBLISHED,
        train_size=22_000,
        test_size=2_000,
        image_size=24,  # from 32: 92 trainings within an hour on 2 cores
    ),
    Suite(
        name="cifar10",
        preset="paper",
        dataset="cifar10",
        models=("preact_resnet164",),
        recipe="paper2019-cifar",
        seeds={m: 10 for m in ("exact", "approx8", "approx4", "naive8")},
        measured=("lean",),
        gradient_steps=400,
    ),
    Suite(
        name="cifar100",
        preset="laptop",
        dataset="cifar100",
        models=("resnet18",),
        recipe="laptop-cifar100",
        seeds={m: 2 for m in _ALL},
        measured=_PUBLISHED,
        train_size=10_000,
        test_size=2_000,
        gradient_batches=4,
        time_rounds=5,
    ),
    Suite(
        name="cifar100",
        preset="paper",
        dataset="cifar100",
        models=("preact_resnet164",),
        recipe="paper2019-cifar",
        seeds={m: 10 for m in ("exact", "approx8", "approx4", "naive8")},
        measured=("lean",),
        gradient_steps=400,
    ),
    Suite(
        name="imagenet",
        preset="laptop",
        dataset="imagefolder",
        models=("resnet18",),
        recipe="laptop-imagenet",
        seeds={m: 2 for m in _ALL},
        measured=_PUBLISHED,
        train_size=2_500,
        test_size=500,
        image_size=64,
        gradient_batches=4,
        time_rounds=5,
    ),
    Suite(
        name="imagenet",
        preset="paper",
        dataset="imagefolder",
        models=("resnet18", "resnet34", "resnet50"),
        recipe="paper2024",
        seeds={m: 1 for m in ("exact", "pool1-published", "pool2-published", "pool4-published", "pool2", "pool4")},
        measured=("lean", "approx4", "checkpoint"),
        image_size=224,
        gradient_steps=400,
    ),
)

SUITES: dict[tuple[str, str], Suite] = {(suite.name, suite.preset): suite for suite in _SUITES}


def suite(name: str, preset: str) -> Suite:
    """The suite of that name and preset. Raises ValueError with what there is."""
    try:
        return SUITES[name, preset]
    except KeyError:
        known = ", ".join(f"{n} ({p})" for n, p in SUITES)
        raise ValueError(f"no suite {name!r} with preset {preset!r}; known: {known}") from None
