"""Intervals, paired differences and verdicts. Everything that needs spread refuses to give it for a single run."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

ALPHA = 0.05

Verdict = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% interval, in the unit of the values; the bounds are None for a single value."""

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """Method minus exact over the seeds that both have, in the unit of the values; ``p`` is two-sided, not adjusted.

    Bounds, ``sd`` and ``p`` are None for a single pair. ``seeds`` and ``values`` run alike.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    sd: float | None
    p: float | None
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    only_method: tuple[int, ...] = ()
    only_exact: tuple[int, ...] = ()


def interval(values: Iterable[float]) -> Interval:
    """Mean and 95% t interval. Raises ValueError for no value or one that is not finite."""
    data = _finite(values)
    mean = float(data.mean())
    if len(data) == 1:
        return Interval(mean, None, None, 1)
    half = float(stats.t.ppf(0.975, len(data) - 1) * stats.sem(data))
    return Interval(mean, mean - half, mean + half, len(data))


def paired(method: Mapping[int, float], exact: Mapping[int, float]) -> Difference:
    """Method minus exact, seed by seed, with the paired t test. Seeds of one side only are named, never imputed.

    Where all differences are equal there is no spread to test against: equal to zero gives p 1, equal to another
    number the exact sign-flip p, 2/2^n. Raises ValueError where no seed is shared or a shared value is not finite.
    """
    seeds = tuple(sorted(method.keys() & exact.keys()))
    if not seeds:
        raise ValueError(
            f"no seed in common: the method has {sorted(method)}, exact has {sorted(exact)}; run both on the same seeds"
        )
    bad = [seed for seed in seeds if not math.isfinite(method[seed]) or not math.isfinite(exact[seed])]
    if bad:
        raise ValueError(f"seeds {bad} are not finite (diverged?): report them beside the difference, not in it")
    values = _without_rounding(method[seed] - exact[seed] for seed in seeds)
    mean = interval(values)
    return Difference(
        mean=mean.mean, low=mean.low, high=mean.high, n=len(seeds),
        sd=float(values.std(ddof=1)) if len(seeds) > 1 else None,
        p=_one_sample(values, 0.0, "two-sided") if len(seeds) > 1 else None,
        seeds=seeds, values=tuple(values.tolist()),
        only_method=tuple(sorted(method.keys() - exact.keys())),
        only_exact=tuple(sorted(exact.keys() - method.keys())),
    )  # fmt: skip


def tost(differences: Iterable[float], margin: float) -> float:
    """p of two one-sided t tests (Schuirmann 1987): small if the mean lies within -margin..margin.

    All differences zero give 0, for nothing differed at all. Raises ValueError for fewer than two differences.
    """
    if not margin > 0:
        raise ValueError(f"the margin is {margin}; it is the largest difference that would not matter, so above 0")
    values = _without_rounding(differences)
    if len(values) < 2:
        raise ValueError("one difference has no spread, so it shows no equivalence: run at least 2 seeds, better 9")
    if not values.any():
        return 0.0
    return max(_one_sample(values, -margin, "greater"), _one_sample(values, margin, "less"))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down adjustment (1979) over one family, in the order given; compare the results with alpha itself."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if not 0 <= p <= 1:
            raise ValueError(f"the p value of {name} is {p}; it must lie in 0..1")
        largest = max(largest, min(1.0, p * (len(p_values) - rank)))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def verdict(mean: float, p: float | None, p_equivalent: float | None, alpha: float = ALPHA) -> Verdict:
    """What adjusted p values allow to say of a mean difference of which more is better; None: could not be tested.

    A difference shown to lie within the margin is equivalent, even where it is also shown not to be zero.
    """
    if p_equivalent is not None and p_equivalent < alpha:
        return "equivalent"
    if p is not None and p < alpha:
        return "better" if mean > 0 else "worse"
    return "undecided"


def bootstrap_median(ratios: Iterable[float], seed: int = 0) -> tuple[float, float, float]:
    """Median with its 95% percentile bootstrap interval, the same at every call; one ratio gives nan bounds."""
    data = _finite(ratios)
    median = float(np.median(data))
    if len(data) == 1:
        return median, math.nan, math.nan
    result = stats.bootstrap((data,), np.median, method="percentile", rng=np.random.default_rng(seed))
    return median, float(result.confidence_interval.low), float(result.confidence_interval.high)


def _finite(values: Iterable[float]) -> np.ndarray:
    data = np.array(list(values), dtype=np.float64)
    if not len(data):
        raise ValueError("no values: a mean needs at least one run that ended")
    if not np.isfinite(data).all():
        raise ValueError(f"not all finite: {data.tolist()}; report diverged runs beside the mean, not in it")
    return data


def _without_rounding(differences: Iterable[float]) -> np.ndarray:
    # 50.2 - 49.7 and 51.2 - 50.7 differ in the last bit, which would be a spread where there is none.
    return _finite(differences).round(9) + 0.0


def _one_sample(values: np.ndarray, mean: float, alternative: Literal["two-sided", "less", "greater"]) -> float:
    if np.ptp(values) > 0:
        return float(stats.ttest_1samp(values, mean, alternative=alternative).pvalue)
    offset = float(values[0]) - mean
    flips = 2.0 ** -len(values)
    if alternative == "two-sided":
        return min(1.0, 2 * flips) if offset else 1.0
    return flips if (offset > 0) == (alternative == "greater") and offset else 1.0
