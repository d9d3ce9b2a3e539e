"""The time of a training step against exact, beside the noise floor of exact against itself."""

from matplotlib.figure import Figure

from paper_figs import style
from results.compare import Comparison, Ratio
from results.schema import Record


def timing(rows: list[Comparison], records: list[Record]) -> Figure | None:
    """Median ratio of step times with its 95% interval; None where nothing was timed."""
    found = [(row, row.time) for row in rows if row.time]
    if not found:
        return None
    figure = style.figure(style.COLUMN, 1.0 + style.ROW * len(found))
    axes = figure.subplots()
    style.methods_down(axes, [row for row, _ in found])
    axes.axvline(1, color="black", linewidth=0.6, zorder=1)
    for place, (row, ratio) in enumerate(found):
        if row.control and row.control.low is not None and row.control.high is not None:
            width = row.control.high - row.control.low
            axes.barh(place, width, left=row.control.low, height=0.9, color="0.8", zorder=0)
        axes.errorbar(
            ratio.median, place, xerr=_halves(ratio), fmt="o", markersize=4, color=style.colour(row.method),
            capsize=2.5, linewidth=1.2, capthick=1, zorder=2,
        )  # fmt: skip
    axes.set_xlabel("step time, method / exact")
    steps = style.count([ratio.n for _, ratio in found], "steps")
    style.title(figure, found[0][0], f"{steps}, median, 95% interval; grey: exact / exact")
    return figure


def _halves(ratio: Ratio) -> list[list[float]] | None:
    if ratio.low is None or ratio.high is None:
        return None
    return [[ratio.median - ratio.low], [ratio.high - ratio.median]]
