"""Every figure of a results folder."""

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from matplotlib.figure import Figure

from paper_figs import style
from paper_figs.accuracy import accuracy, difference
from paper_figs.curves import curves
from paper_figs.gradient import gradient
from paper_figs.memory import memory
from paper_figs.timing import timing
from results.compare import Comparison, compare, group_of
from results.schema import Record

FIGURES: dict[str, Callable[[list[Comparison], list[Record]], Figure | None]] = {
    "accuracy": accuracy,
    "difference": difference,
    "memory": memory,
    "time": timing,
    "gradient": gradient,
    "curves": curves,
}


def draw(records: list[Record], folder: Path, margin: float = 0.5) -> tuple[list[Path], list[str]]:
    """Draw each figure of each group into ``folder`` as ``<figure>_<group>.png`` and ``.pdf``.

    Returns the files, and the names of the figures for which the records hold nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    missing: list[str] = []
    for group, rows in groupby(compare(records, margin), key=lambda row: row.group):
        inside, compared = [record for record in records if group_of(record) == group], list(rows)
        for name, plot in FIGURES.items():
            stem = folder / f"{name}_{group.name}"
            with style.theme():
                figure = plot(compared, inside)
                if figure is None:
                    missing.append(stem.name)
                else:
                    drawn += style.save(figure, stem)
    return drawn, missing
