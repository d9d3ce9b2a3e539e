"""Records in, comparisons out: the one source of every table, figure, console summary and W&B view."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, TypeVar

from results.rows import METHODS, Comparison, Group, Ratio, flat, method_order
from results.schema import GradientResult, MemoryResult, Record, TimeResult, TrainResult
from results.stats import Difference, bootstrap_median, holm, interval, paired, tost, verdict
from results.summary import summary

__all__ = ["METHODS", "Comparison", "Group", "Ratio", "compare", "flat", "group_of", "method_order", "summary"]

REFERENCE = "exact"

R = TypeVar("R", TrainResult, TimeResult, MemoryResult, GradientResult)


def group_of(record: Record) -> Group:
    """The group in which ``record`` is compared."""
    cell = record.cell
    return Group(cell.suite, cell.preset, cell.dataset, cell.model, cell.batch)


def compare(records: Iterable[Record], margin: float = 0.5) -> list[Comparison]:
    """One row for each method of each group; ``margin`` in points of accuracy, declared before the run.

    Raises ValueError where records contradict each other: other trainings under one name, or memory that changed
    between repeats.
    """
    groups: dict[Group, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        groups[group_of(record)][record.cell.method].append(record)
    return [row for group in sorted(groups) for row in _rows(group, groups[group], margin)]


def _rows(group: Group, methods: Mapping[str, list[Record]], margin: float) -> list[Comparison]:
    _check_same_training(group, [record for records in methods.values() for record in records])
    order = sorted(methods, key=method_order)
    accuracies = {method: _accuracies(methods[method]) for method in order}
    memory = {method: _memory(group, methods[method]) for method in order}
    differences = _differences(accuracies)
    tested = {method: d for method, d in differences.items() if d.p is not None}
    p = holm({method: d.p for method, d in tested.items() if d.p is not None})
    p_equivalent = holm({method: tost(d.values, margin) for method, d in tested.items()})
    exact_memory = memory.get(REFERENCE, {})
    rows = []
    for method in order:
        difference = differences.get(method)
        rows.append(Comparison(
            group=group, method=method, margin=margin, accuracies=accuracies[method],
            accuracy=interval(accuracies[method].values()) if accuracies[method] else None,
            difference=difference, p=p.get(method), p_equivalent=p_equivalent.get(method),
            verdict=verdict(difference.mean, p.get(method), p_equivalent.get(method)) if difference else None,
            diverged=_diverged(methods[method]), **memory[method], **_gains(exact_memory, memory[method]),
            **_times(methods[method]), **_gradient(methods[method]), notes=_notes(methods[method], difference),
        ))  # fmt: skip
    return rows


def _results(records: list[Record], kind: type[R]) -> dict[int, R]:
    return {record.cell.seed: record.result for record in records if isinstance(record.result, kind)}


def _accuracies(records: list[Record]) -> dict[int, float]:
    return {seed: result.test_accuracy for seed, result in sorted(_results(records, TrainResult).items())}


def _differences(accuracies: Mapping[str, dict[int, float]]) -> dict[str, Difference]:
    exact = accuracies.get(REFERENCE, {})
    others = {method: found for method, found in accuracies.items() if method != REFERENCE}
    return {method: paired(found, exact) for method, found in others.items() if found.keys() & exact.keys()}


def _check_same_training(group: Group, records: list[Record]) -> None:
    """Pairs mean something only where both sides saw the same images for the same number of steps."""
    kinds: dict[tuple[int, int, int], str] = {}
    for record in records:
        if isinstance(record.result, TrainResult):
            kinds[record.result.steps, record.result.train_images, record.result.test_images] = record.cell.key
    if len(kinds) > 1:
        found = "; ".join(f"{key}: {kind}" for kind, key in kinds.items())
        raise ValueError(
            f"{group.name} mixes trainings of different (steps, train images, test images): {found}. "
            "Remove the records of the older recipe, or keep them in a results folder of their own."
        )


def _memory(group: Group, records: list[Record]) -> dict[str, Any]:
    """Saved, held and peak are deterministic, so repeats have to agree; the process peak is not: the highest counts."""
    found = _results(records, MemoryResult)
    figures: dict[str, Any] = {}
    for name in ("saved_bytes", "held_bytes", "peak_bytes"):
        values = {seed: getattr(result, name) for seed, result in found.items() if getattr(result, name) is not None}
        if len(set(values.values())) > 1:
            raise ValueError(
                f"{name} of {records[0].cell.method} in {group.name} differs between repeats, by seed: {values}. It is "
                "deterministic, so the records come from different code or machines: remove the older ones."
            )
        figures[name] = next(iter(values.values()), None)
    peaks = [result.process_peak_bytes for result in found.values() if result.process_peak_bytes is not None]
    return figures | {"process_peak_bytes": max(peaks, default=None)}


def _gains(exact: Mapping[str, Any], method: Mapping[str, Any]) -> dict[str, Any]:
    gains: dict[str, Any] = {}
    for name in ("saved", "held", "peak"):
        above, below = exact.get(f"{name}_bytes"), method[f"{name}_bytes"]
        gains[f"{name}_gain"] = above / below if above is not None and below else None
    return gains


def _times(records: list[Record]) -> dict[str, Any]:
    """Of one time cell its own figures; of several the pooled ratios of a method step to its two exact neighbours."""
    found = list(_results(records, TimeResult).values())
    if not found:
        return {"time": None, "control": None}
    if len(found) == 1:
        one = found[0]
        return {
            "time": _ratio(one.ratio, one.ratio_low, one.ratio_high, len(one.method_ms)),
            "control": _ratio(one.control_ratio, one.control_low, one.control_high, len(one.control_ms)),
        }
    triples = [triple for one in found for triple in zip(one.method_ms, one.exact_ms, one.control_ms, strict=True)]
    ratios = [2 * method / (before + after) for method, before, after in triples]
    control = [after / before for _, before, after in triples]
    return {
        "time": _ratio(*bootstrap_median(ratios), len(ratios)),
        "control": _ratio(*bootstrap_median(control), len(control)),
    }


def _ratio(median: float, low: float, high: float, n: int) -> Ratio:
    return Ratio(median, None if math.isnan(low) else low, None if math.isnan(high) else high, n)


def _gradient(records: list[Record]) -> dict[str, Any]:
    found = list(_results(records, GradientResult).values())
    names = {"gradient_cosine": "cosine", "gradient_error": "relative_error", "sgd_noise": "sgd_noise"}
    return {name: fmean(getattr(one, field) for one in found) if found else None for name, field in names.items()}


def _diverged(records: list[Record]) -> tuple[int, ...]:
    """Seeds whose loss ended infinite or nan. Their accuracy was measured all the same and counts."""
    trained = _results(records, TrainResult)
    return tuple(sorted(seed for seed, one in trained.items() if not math.isfinite(one.train_loss + one.test_loss)))


def _notes(records: list[Record], difference: Difference | None) -> tuple[str, ...]:
    """What a reader must know beside the figures, one sentence each; cells that ended alike share one."""
    cells: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for record in records:
        if record.status != "ok":
            cells[record.cell.measure, record.status, record.reason].append(record.cell.seed)
        elif isinstance(record.result, MemoryResult) and record.result.absent:
            cells["memory", "absent", record.result.absent].append(record.cell.seed)
    notes = [f"{measure} {status} ({_seeds(seeds)}): {reason}" for (measure, status, reason), seeds in cells.items()]
    if diverged := _diverged(records):
        notes.append(f"diverged, loss not finite ({_seeds(diverged)}); the accuracies count")
    if difference and difference.only_method:
        notes.append(f"not paired, exact is missing ({_seeds(difference.only_method)})")
    if difference and difference.only_exact:
        notes.append(f"not paired, only exact is there ({_seeds(difference.only_exact)})")
    return tuple(notes)


def _seeds(seeds: Iterable[int]) -> str:
    found = sorted(set(seeds))
    return f"seed{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"
