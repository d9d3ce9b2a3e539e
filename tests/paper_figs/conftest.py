"""Made-up records of every method: ten figures' worth of data from a few sines."""

import math

import pytest

from results.compare import METHODS
from results.schema import Record

SEEDS = range(4)


def _curve(rank: int, seed: int) -> tuple[dict[str, float | None], ...]:
    return tuple(
        {
            "step": step,
            "epoch": step / 10,
            "train_loss": 2.3 * math.exp(-step / 20) + rank / 50 + seed / 100,
            "test_accuracy": 10 + step + seed if step % 10 == 0 else None,
        }
        for step in range(5, 31, 5)
    )


def _layers(rank: int) -> tuple[dict[str, str | float], ...]:
    kinds = {"conv.weight": "Conv2d", "conv.bias": "Conv2d", "bn.weight": "BatchNorm2d"}
    return tuple(
        {
            "name": f"blocks.{depth}.{name}", "kind": kind, "elements": 9, "cosine": 0.9,
            "relative_error": 10.0 ** (rank - 12) / depth, "sgd_noise": 0.5 + depth / 10,
        }
        for depth in (1, 2, 3) for name, kind in kinds.items()
    )  # fmt: skip


@pytest.fixture(scope="session")
def records(make_record) -> list[Record]:
    found = []
    for rank, method in enumerate(METHODS):
        for seed in SEEDS:
            accuracy = 50 + math.sin(seed) + (math.sin(seed * rank) - rank) / 5
            found.append(make_record("train", method, seed, test_accuracy=accuracy, curve=_curve(rank, seed)))
        sizes = {"saved_bytes": 2**24 // (rank + 1), "held_bytes": 2**24 // (rank + 1) + 4096}
        found.append(make_record("memory", method, **sizes))
        found.append(make_record("gradient", method, layers=_layers(rank)))
        if method != "exact":
            ratios = {"ratio": 1 + rank / 10, "ratio_low": 0.98 + rank / 10, "ratio_high": 1.05 + rank / 10}
            found.append(make_record("time", method, **ratios))
    return found
