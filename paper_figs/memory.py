"""What each method saves, holds and needs at its peak."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figs import style
from results.compare import Comparison
from results.rows import MIB
from results.schema import Record
from results.summary import times

PANELS = {
    "saved": "saved for backward (MiB)",
    "held": "held after forward (MiB)",
    "peak": "peak in one step (MiB)",
}


def memory(rows: list[Comparison], records: list[Record]) -> Figure | None:
    """A panel for each of saved, held and peak, in MiB; None where no memory was measured."""
    rows = [row for row in rows if any(_size(row, name) is not None for name in PANELS)]
    if not rows:
        return None
    figure = style.figure(style.DOUBLE, 0.75 + style.ROW * len(rows))
    for axes, (name, label) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        _bars(axes, rows, name)
        axes.set_xlabel(label)
    style.title(figure, rows[0], "beside the bars: exact / method")
    return figure


def _bars(axes: Axes, rows: list[Comparison], name: str) -> None:
    style.methods_down(axes, rows)
    for place, row in enumerate(rows):
        size, gain = _size(row, name), getattr(row, f"{name}_gain")
        if size is None:
            axes.text(0, place, " not measured", va="center", fontsize=7, color="0.4")
            continue
        axes.barh(place, size / MIB, height=0.7, color=style.colour(row.method))
        if gain is not None:
            axes.text(size / MIB, place, f" {times(gain)}", va="center", fontsize=7)
    axes.margins(x=0.2)
    axes.set_xlim(left=0)


def _size(row: Comparison, name: str) -> int | None:
    size: int | None = getattr(row, f"{name}_bytes")
    return size
