"""How every figure looks: sizes in inches for a printed page, text of 7 points or more, one colour for a method."""

import textwrap
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.compare import Comparison

COLUMN = 3.4
DOUBLE = 7.0
ROW = 0.22  # inches a method takes where methods run downwards
DPI = 300
LETTERS = 18  # of 7 points, in an inch

# A hue for a family, darker for the member that keeps more: the lightness tells members apart without colour vision.
COLOURS = {
    "exact": "#000000",
    "lean": "#7f7f7f",
    "approx8": "#08306b",
    "approx4": "#2f7fc1",
    "approx2": "#86bbe0",
    "naive8": "#a63603",
    "naive4": "#fd8d3c",
    "pool2": "#00594c",
    "pool4": "#4dbfa3",
    "pool1-published": "#4a1486",
    "pool2-published": "#8a6cc0",
    "pool4-published": "#b79fe0",
    "checkpoint": "#dba400",
}

_TEXT = {
    "font.size": 8, "axes.titlesize": 8, "figure.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7,
    "ytick.labelsize": 7, "legend.fontsize": 7, "legend.title_fontsize": 7,
}  # fmt: skip
_LINES = {
    "axes.linewidth": 0.6, "grid.linewidth": 0.4, "lines.linewidth": 1.2, "lines.markersize": 3,
    "xtick.major.width": 0.6, "patch.linewidth": 0.5, "pdf.fonttype": 42,
}  # fmt: skip


@contextmanager
def theme() -> Iterator[None]:
    """Everything drawn and saved inside looks alike; what the caller had set comes back after it."""
    settings: dict[Any, Any] = _TEXT | _LINES
    with sns.axes_style("whitegrid"), sns.plotting_context("paper"), mpl.rc_context(settings):
        yield


def colour(method: str) -> str:
    """The method's colour in every figure; of an unknown method one that only its name decides."""
    if method in COLOURS:
        return COLOURS[method]
    others = sns.color_palette("husl", 24).as_hex()
    return str(others[zlib.crc32(method.encode()) % len(others)])


def line(method: str) -> str:
    """The dash pattern of a method's line, a second mark beside its colour."""
    if method.endswith("-published"):
        return "--"
    return ":" if method.startswith("naive") else "-"


def figure(width: float, height: float) -> Figure:
    """A figure in inches that no global state keeps alive."""
    return Figure(figsize=(width, height), layout="constrained")


def methods_down(axes: Axes, rows: list[Comparison]) -> None:
    """One line of ``axes`` for each row, the first on top, marked with the method's name."""
    axes.set_yticks(range(len(rows)), [row.method for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(False, axis="y")


def title(figure: Figure, row: Comparison, more: str = "") -> None:
    """Says above the panels what was measured: model, data, batch, and ``more``."""
    group = row.group
    text = f"{group.model} on {group.dataset} ({group.suite}, {group.preset}), batch {group.batch}"
    lines = [line for part in (text, more) for line in textwrap.wrap(part, int(figure.get_figwidth() * LETTERS))]
    figure.suptitle("\n".join(lines), fontsize=7)


def count(numbers: list[int], what: str) -> str:
    """``n = 10 seeds`` where all agree, else ``n = 8 to 10 seeds``."""
    low, high = min(numbers), max(numbers)
    return f"n = {low} {what}" if low == high else f"n = {low} to {high} {what}"


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem``.png and ``stem``.pdf, the same bytes for the same figure, and return both paths."""
    png, pdf = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("png", "pdf"))
    figure.savefig(png, dpi=DPI, metadata={"Software": None})
    figure.savefig(pdf, metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return [png, pdf]
