"""Step time as a paired ratio: exact, method, exact in turn, so that what slows the machine slows all three."""

import time
from collections.abc import Callable

import torch

from results.schema import TimeResult
from results.stats import bootstrap_median

Step = Callable[[], None]


def milliseconds(run: Step, cuda: bool) -> float:
    """Wall-clock time of ``run``, the device's work included."""
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def measure(
    exact: Step, method: Step, rounds: int, cuda: bool, memory_format: str, exact_memory_format: str
) -> TimeResult:
    """``rounds`` triples after two warm-up steps of each side."""
    for _ in range(2):
        exact()
        method()
    before, coded, after = [], [], []
    for _ in range(rounds):
        before.append(milliseconds(exact, cuda))
        coded.append(milliseconds(method, cuda))
        after.append(milliseconds(exact, cuda))
    ratio, low, high = bootstrap_median(2 * m / (b + a) for b, m, a in zip(before, coded, after, strict=True))
    control, control_low, control_high = bootstrap_median(a / b for b, a in zip(before, after, strict=True))
    return TimeResult(
        method_ms=tuple(coded),
        exact_ms=tuple(before),
        control_ms=tuple(after),
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        control_ratio=control,
        control_low=control_low,
        control_high=control_high,
        memory_format=memory_format,
        exact_memory_format=exact_memory_format,
    )
