"""One row of a comparison: a method in a group, against exact. Typed here, computed in ``results.compare``."""

from dataclasses import dataclass
from typing import NamedTuple

from results.stats import Difference, Interval, Verdict

METHODS = (
    "exact", "lean", "approx8", "approx4", "approx2", "naive8", "naive4", "pool2", "pool4",
    "pool1-published", "pool2-published", "pool4-published", "checkpoint",
)  # fmt: skip

MIB = 2**20


class Group(NamedTuple):
    """What must be alike for two records to be compared."""

    suite: str
    preset: str
    dataset: str
    model: str
    batch: int

    @property
    def name(self) -> str:
        """Readable, and safe as a part of a file name."""
        return f"{self.suite}-{self.preset}_{self.dataset}_{self.model}_b{self.batch}".replace("/", "-")


@dataclass(frozen=True)
class Ratio:
    """A median ratio of step times, method / exact, with its 95% bootstrap interval; ``n`` pairs of steps."""

    median: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Comparison:
    """Accuracy in percent, differences in points, memory in bytes; what was not measured is None.

    The ``*_gain`` are exact / method (above 1 saves memory), ``time`` is method / exact (above 1 is slower) and
    ``control`` exact / exact. ``p`` and ``p_equivalent`` are Holm-adjusted over the methods of the group.
    """

    group: Group
    method: str
    margin: float
    accuracies: dict[int, float]
    accuracy: Interval | None
    difference: Difference | None
    p: float | None
    p_equivalent: float | None
    verdict: Verdict | None
    diverged: tuple[int, ...]
    saved_bytes: int | None
    held_bytes: int | None
    peak_bytes: int | None
    process_peak_bytes: int | None
    saved_gain: float | None
    held_gain: float | None
    peak_gain: float | None
    time: Ratio | None
    control: Ratio | None
    gradient_cosine: float | None
    gradient_error: float | None
    sgd_noise: float | None
    notes: tuple[str, ...]

    @property
    def seeds(self) -> int:
        """How many trainings ended."""
        return len(self.accuracies)


def method_order(method: str) -> tuple[int, str]:
    """Sort key: the methods of the suite in their own order, any other after them by name."""
    return (METHODS.index(method) if method in METHODS else len(METHODS), method)


def flat(row: Comparison) -> dict[str, str | int | float | None]:
    """The row as one flat mapping, units in the names: for CSV files and W&B tables."""
    accuracy, difference, time, control = row.accuracy, row.difference, row.time, row.control
    return {
        **row.group._asdict(),
        "method": row.method,
        "seeds": row.seeds,
        "accuracy_percent": accuracy and accuracy.mean,
        "accuracy_low_percent": accuracy and accuracy.low,
        "accuracy_high_percent": accuracy and accuracy.high,
        "difference_points": difference and difference.mean,
        "difference_low_points": difference and difference.low,
        "difference_high_points": difference and difference.high,
        "pairs": difference and difference.n,
        "margin_points": row.margin,
        "p_difference_holm": row.p,
        "p_equivalence_holm": row.p_equivalent,
        "verdict": row.verdict,
        "saved_mib": _mib(row.saved_bytes),
        "held_mib": _mib(row.held_bytes),
        "peak_mib": _mib(row.peak_bytes),
        "process_peak_mib": _mib(row.process_peak_bytes),
        "saved_gain": row.saved_gain,
        "held_gain": row.held_gain,
        "peak_gain": row.peak_gain,
        "time_ratio": time and time.median,
        "time_ratio_low": time and time.low,
        "time_ratio_high": time and time.high,
        "control_ratio": control and control.median,
        "control_ratio_low": control and control.low,
        "control_ratio_high": control and control.high,
        "gradient_cosine": row.gradient_cosine,
        "gradient_relative_error": row.gradient_error,
        "sgd_noise": row.sgd_noise,
        "notes": "; ".join(row.notes) or None,
    }


def _mib(size: int | None) -> float | None:
    return None if size is None else size / MIB
