"""From a suite to its cells, and from a cell to the hash of all that may change its result."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from bench.recipes import RECIPES, Recipe
from bench.registry import method
from bench.suites import Suite
from methods import fused
from results.schema import Cell, Measure

MEASURES: tuple[Measure, ...] = get_args(Measure)

# Raise one when the figures of that measure change: records of the old one are void
MEASURE_VERSIONS: dict[Measure, int] = {"train": 1, "time": 1, "memory": 1, "gradient": 1}

Config = dict[str, str | int | float | bool | None]


@dataclass(frozen=True)
class Job:
    """A cell with all that a process needs to run it."""

    cell: Cell
    suite: Suite
    definition: str
    config: Config
    data: Path | None
    folder: Path
    device: str
    threads: int

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.suite.recipe]


def cells(
    suite: Suite,
    measure: Measure,
    methods: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> Iterator[Cell]:
    """The cells of one measure; ``methods``, ``models`` and ``seeds`` replace the suite's own where given.

    Seeds are the outer loop, so that a run that is cut short has paired seeds.
    """
    chosen = suite.methods(measure) if methods is None else tuple(m for m in methods if measure in _measures_of(m))
    for model in models or suite.models:
        for seed in _seeds(suite, measure, chosen, seeds):
            for name in chosen:
                if seeds is not None or measure != "train" or seed < suite.seeds.get(name, max(suite.seeds.values())):
                    yield Cell(
                        suite=suite.name,
                        preset=suite.preset,
                        dataset=suite.dataset,
                        model=model,
                        method=name,
                        batch=RECIPES[suite.recipe].batch,
                        seed=seed,
                        measure=measure,
                    )


def _measures_of(name: str) -> tuple[Measure, ...]:
    return ("train", "memory") if name == "exact" else MEASURES


def _seeds(suite: Suite, measure: Measure, methods: Sequence[str], seeds: Sequence[int] | None) -> Sequence[int]:
    if measure != "train":
        return (0,)  # memory repeats itself, and time and gradient hold many samples
    return seeds if seeds is not None else range(max(suite.seeds.values()))


def define(cell: Cell, suite: Suite, data_hash: str, device: str) -> tuple[str, Config]:
    """(hash, what it was taken over). Nothing incidental: not where it runs, nor how the code is laid out."""
    recipe = asdict(RECIPES[suite.recipe])
    recipe.pop("source")
    config: Config = {
        **cell.model_dump(exclude={"suite", "preset"}),
        "method_version": method(cell.method).version,
        "measure_version": MEASURE_VERSIONS[cell.measure],
        "data_hash": data_hash,
        "device": device,
        **{f"recipe_{name}": value if isinstance(value, str | int | float) else repr(value)
           for name, value in recipe.items()},
    }  # fmt: skip
    if fused.enabled():
        config["kernels"] = "compiled"
    if cell.measure == "time":
        config["rounds"] = suite.time_rounds
    if cell.measure == "gradient":
        config |= {"steps_before": suite.gradient_steps, "batches": suite.gradient_batches}
    text = json.dumps(config, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16], config
