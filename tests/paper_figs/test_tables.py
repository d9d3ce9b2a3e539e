"""The tables say what the comparisons say."""

import csv
import io
import re

import pytest

from paper_figs import tables
from results.compare import compare, flat
from results.summary import COLUMNS, cells


@pytest.fixture(scope="module")
def rows(records, make_record):
    refused = make_record("train", "my_method|x", status="not applicable", reason="100% of {a|b} & c_d\nhas no BN #1")
    return compare([*records, refused])


def test_csv_gives_every_figure_back_to_the_last_digit(rows):
    found = list(csv.DictReader(io.StringIO(tables.csv(rows))))
    assert len(found) == len(rows)
    for line, row in zip(found, rows, strict=True):
        for name, value in flat(row).items():
            assert line[name] == ("" if value is None else str(value)), name


def test_markdown_parses_back_to_the_cells(rows):
    lines = [line for line in tables.markdown(rows).splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert table[0] == list(COLUMNS)
    assert set(table[1]) == {"---"}
    assert [[cell.replace(r"\|", "|") for cell in line] for line in table[2:]] == [
        list(cells(row).values()) for row in rows
    ]


def test_markdown_numbers_are_the_rounded_figures(rows):
    row = rows[3]
    line = next(line for line in tables.markdown(rows).splitlines() if line.startswith("| approx4"))
    numbers = [float(number) for number in re.findall(r"[-+]?\d+\.?\d*", line.split("|", 2)[2])]
    mean, half = row.accuracy.mean, row.accuracy.high - row.accuracy.mean
    assert numbers[:3] == [pytest.approx(mean, abs=0.005), pytest.approx(half, abs=0.005), row.seeds]
    assert numbers[3] == pytest.approx(row.difference.mean, abs=0.005)
    assert numbers[5] == pytest.approx(row.saved_bytes / 2**20, rel=1e-3)
    assert numbers[-3:] == pytest.approx([row.time.median, row.time.low, row.time.high], abs=0.005)


def test_latex_parses_back_to_the_cells_and_escapes_what_is_special(rows):
    text = tables.latex(rows)
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    table = [line.removesuffix(r"\\").strip().split(" & ") for line in body.strip().splitlines()]
    plain = [[cell.replace(r"$\pm$", "±").replace("$-$", "-").replace("\\", "") for cell in line] for line in table]
    assert plain == [list(cells(row).values()) for row in rows]
    assert r"my\_method|x" in text and r"accuracy \%" in text and r"preact\_resnet20" in text
    shown = "".join(line for line in text.splitlines() if not line.startswith(r"\label"))
    assert not re.search(r"(?<!\\)[%#_]", shown)
    assert "$-$0." in text and "pool2-published" in text


def test_every_group_has_its_table(make_record):
    rows = compare([make_record("memory", batch=batch) for batch in (8, 16)])
    assert re.findall(r"batch (\d+)", tables.markdown(rows)) == ["8", "16"]
    assert tables.latex(rows).count(r"\begin{tabular}") == 2


def test_reasons_stand_below_the_markdown_table(rows):
    assert r"- my_method\|x: train not applicable (seed 0): 100% of {a\|b} & c_d has no BN #1" in tables.markdown(rows)


def test_the_three_files_are_written(rows, tmp_path):
    paths = tables.write(rows, tmp_path / "tables")
    assert [path.name for path in paths] == ["comparison.md", "comparison.csv", "comparison.tex"]
    assert [path.read_text(encoding="utf-8") for path in paths] == [
        f(rows) for f in (tables.markdown, tables.csv, tables.latex)
    ]
