"""The comparison table as Markdown and LaTeX, rounded for reading, and as CSV with every digit."""

import re
from itertools import groupby
from pathlib import Path

import pandas as pd

from results.compare import Comparison, flat
from results.summary import cells, notes


def markdown(comparisons: list[Comparison]) -> str:
    """A heading, a pipe table and its notes for each group."""
    parts = []
    for group, found in groupby(comparisons, key=lambda row: row.group):
        rows = list(found)
        lines = [list(cells(rows[0])), ["---"] * len(cells(rows[0])), *(list(cells(row).values()) for row in rows)]
        table = "\n".join("| " + " | ".join(map(_plain, line)) + " |" for line in lines)
        listed = "".join(f"- {_plain(note)}\n" for note in notes(rows))
        head = f"### {group.model} on {group.dataset}, batch {group.batch} ({group.suite}, {group.preset})"
        parts.append(f"{head}\n\n{table}\n\n{_conditions(rows[0])}\n" + (f"\n{listed}" if listed else ""))
    return "\n".join(parts)


def csv(comparisons: list[Comparison]) -> str:
    """One line for each method of each group, units in the column names, empty where nothing was measured."""
    return str(pd.DataFrame([flat(row) for row in comparisons], dtype=object).to_csv(index=False, lineterminator="\n"))


def latex(comparisons: list[Comparison]) -> str:
    r"""A table environment for each group; wants \usepackage{booktabs}."""
    parts = []
    for group, found in groupby(comparisons, key=lambda row: row.group):
        rows = list(found)
        caption = f"{group.model} on {group.dataset}, batch {group.batch} ({group.suite}, {group.preset}). "
        table = pd.DataFrame([cells(row) for row in rows]).to_latex(
            index=False, escape=True, column_format="lrrrlrrrr", position="t", label=f"tab:{group.name}",
            caption=_escape(caption + _conditions(rows[0])),
        )  # fmt: skip
        parts.append(_signs(table))
    return "\n".join(parts)


def write(comparisons: list[Comparison], folder: Path) -> list[Path]:
    """Write comparison.md, .csv and .tex into ``folder`` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"md": markdown(comparisons), "csv": csv(comparisons), "tex": latex(comparisons)}
    paths = []
    for suffix, text in texts.items():
        paths.append(folder / f"comparison.{suffix}")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def _conditions(row: Comparison) -> str:
    return (
        f"± and [ ]: 95% intervals over n seeds; difference to exact in points, paired by seed, margin {row.margin:g}; "
        "in brackets exact / method; time: method / exact."
    )


def _plain(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _escape(text: str) -> str:
    # pandas escapes the cells and leaves the caption as it is.
    return text.replace("\\", "").translate({ord(mark): f"\\{mark}" for mark in "&%$#_{}"})


def _signs(table: str) -> str:
    """Plus-minus and minus as mathematics; the hyphens of names stay hyphens."""
    return re.sub(r"(?<=& )-(?=\d)", "$-$", table.replace("±", r"$\pm$"))
