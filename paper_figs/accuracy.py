"""Accuracy by method, and its difference to exact: every seed a point, the mean with its 95% interval."""

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figs import style
from results.compare import Comparison
from results.schema import Record
from results.stats import Difference, Interval

FAR = 10.0  # points; beyond it a linear axis would press the close methods into one line


def accuracy(rows: list[Comparison], records: list[Record]) -> Figure | None:
    """Test accuracy in percent; None where nothing was trained."""
    rows = [row for row in rows if row.accuracy]
    if not rows:
        return None
    figure, axes = _panel(rows)
    for place, row in enumerate(rows):
        _seeds(axes, place, row.method, row.accuracies.values())
        _mean(axes, place, row.accuracy)
    axes.set_xlabel("test accuracy (%)")
    style.title(
        figure, rows[0], f"points: {style.count([row.seeds for row in rows], 'seeds')}; bars: mean, 95% interval"
    )
    return figure


def difference(rows: list[Comparison], records: list[Record]) -> Figure | None:
    """Method minus exact in points, paired by seed, with the margin; None where no method has a pair."""
    found = [(row, row.difference) for row in rows if row.difference]
    if not found:
        return None
    figure, axes = _panel([row for row, _ in found])
    margin = found[0][0].margin
    axes.axvspan(-margin, margin, color="0.9", zorder=0)
    axes.axvline(0, color="black", linewidth=0.6)
    for place, (row, paired) in enumerate(found):
        _seeds(axes, place, row.method, paired.values)
        _mean(axes, place, paired)
    scale = _far_scale(axes, [paired for _, paired in found])
    axes.set_xlabel(f"accuracy, difference to exact (points){scale}")
    pairs = style.count([paired.n for _, paired in found], "pairs")
    style.title(figure, found[0][0], f"{pairs}; bars: mean, 95% interval; grey: margin {margin:g}")
    return figure


def _panel(rows: list[Comparison]) -> tuple[Figure, Axes]:
    figure = style.figure(style.COLUMN, 0.8 + style.ROW * len(rows))
    axes = figure.subplots()
    style.methods_down(axes, rows)
    return figure, axes


def _seeds(axes: Axes, place: int, method: str, values: Iterable[float]) -> None:
    values = list(values)
    # Spread by rank of the seed and not at random: the same figure every time.
    offsets = [place - 0.15 + 0.25 * ((index + 0.5) / len(values) - 0.5) for index in range(len(values))]
    axes.scatter(values, offsets, s=9, color=style.colour(method), alpha=0.7, linewidths=0, zorder=2)


def _mean(axes: Axes, place: int, found: Interval | Difference | None) -> None:
    if found is None:
        return
    half = (
        [[found.mean - found.low], [found.high - found.mean]]
        if found.low is not None and found.high is not None
        else None
    )
    axes.errorbar(
        found.mean, place + 0.22, xerr=half, fmt="|", color="black", markersize=5, capsize=1.5, linewidth=1, zorder=3
    )


def _far_scale(axes: Axes, differences: list[Difference]) -> str:
    """Shrink what is far from exact, so that the margin stays visible; returns what the label has to say of it."""
    if max(abs(value) for found in differences for value in found.values) <= FAR:
        return ""
    axes.set_xscale("symlog", linthresh=1, linscale=1)
    low, high = (min(v for d in differences for v in d.values), max(v for d in differences for v in d.values))
    ticks = [
        tick
        for tick in (-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100)
        if 1.5 * min(low, -1) <= tick <= 1.5 * max(high, 1)
    ]
    axes.set_xticks(ticks, [f"{tick}".replace("-", "\N{MINUS SIGN}") for tick in ticks])
    axes.minorticks_off()
    return "\nlogarithmic beyond ±1"
