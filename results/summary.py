"""Comparisons as text: the cells that every table shows, and the table that closes a run in the terminal."""

import textwrap
from itertools import groupby

from results.rows import MIB, Comparison
from results.stats import Difference, Interval

WIDTH = 120
ABSENT = "-"
COLUMNS = (
    "method", "accuracy %", "n", "difference", "verdict", "saved MiB", "held MiB", "peak MiB", "time ratio",
)  # fmt: skip


def summary(comparisons: list[Comparison]) -> str:
    """A table for each group, at most 120 columns wide, with what failed or does not apply and why below it."""
    if not comparisons:
        return "Nothing to compare: no records.\n"
    parts = [_table(list(rows)) for _, rows in groupby(comparisons, key=lambda row: row.group)]
    return "\n".join(parts)


def cells(row: Comparison) -> dict[str, str]:
    """The row as short text by column of ``COLUMNS``; intervals are 95%, gains over exact stand in brackets."""
    return dict(zip(COLUMNS, (
        row.method,
        _plus_minus(row.accuracy, ".2f"),
        str(row.seeds) if row.seeds else ABSENT,
        _plus_minus(row.difference, "+.2f"),
        row.verdict or ABSENT,
        _memory(row.saved_bytes, row.saved_gain),
        _memory(row.held_bytes, row.held_gain),
        _memory(row.peak_bytes, row.peak_gain),
        _time(row),
    ), strict=True))  # fmt: skip


def notes(rows: list[Comparison]) -> list[str]:
    """What a reader must know beside the figures: ``method, method: note``, each note once."""
    methods: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            methods.setdefault(note, []).append(row.method)
    return [f"{', '.join(having)}: {note}" for note, having in methods.items()]


def _table(rows: list[Comparison]) -> str:
    group, margin = rows[0].group, rows[0].margin
    head = f"{group.suite} ({group.preset}): {group.model} on {group.dataset}, batch {group.batch}"
    legend = (
        "± and [ ]: 95% intervals. difference: to exact in points, paired by seed, "
        f"margin {margin:g}. (2x): exact / method. time: method / exact."
    )
    lines = _align([list(COLUMNS)] + [list(cells(row).values()) for row in rows])
    wrapped = [line for note in notes(rows) for line in textwrap.wrap(note, WIDTH, subsequent_indent="    ")]
    return "\n".join([head, lines[0], "-" * len(lines[0]), *lines[1:], *textwrap.wrap(legend, WIDTH), *wrapped, ""])


def _align(table: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    left = ("method", "verdict")
    return [
        "  ".join(
            cell.ljust(width) if name in left else cell.rjust(width)
            for cell, width, name in zip(line, widths, COLUMNS, strict=True)
        )
        for line in table
    ]


def _plus_minus(value: Interval | Difference | None, form: str) -> str:
    if value is None:
        return ABSENT
    if value.high is None:
        return f"{value.mean:{form}}"
    return f"{value.mean:{form}} ±{value.high - value.mean:.2f}"


def _memory(size: int | None, gain: float | None) -> str:
    if size is None:
        return ABSENT
    ratio = "" if gain is None else f" ({times(gain)})"
    return short(size / MIB) + ratio


def times(gain: float) -> str:
    """Two digits and an x: 0.67x, 1.5x, 14x."""
    return f"{gain:.{2 if gain < 0.995 else 1 if gain < 9.95 else 0}f}x"


def short(number: float) -> str:
    """About four digits and no exponent: 0.012, 1.234, 123.4, 12345."""
    return f"{number:.{max(0, 3 - len(str(int(number))) + 1)}f}"


def _time(row: Comparison) -> str:
    if row.time is None:
        return ABSENT
    if row.time.low is None:
        return f"{row.time.median:.2f}"
    return f"{row.time.median:.2f} [{row.time.low:.2f}, {row.time.high:.2f}]"
