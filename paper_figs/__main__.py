"""Draw the figures and write the tables of a results folder: ``python -m paper_figs RESULTS [--out DIR]``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from paper_figs import tables
from paper_figs.figures import draw
from results.compare import compare
from results.store import read_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every file written and every figure not drawn; returns 1 where no record is there or one is broken."""
    parser = argparse.ArgumentParser(prog="python -m paper_figs", description="Figures and tables from records.")
    parser.add_argument("results", type=Path, help="results folder: holds records/")
    parser.add_argument("--out", type=Path, help="where figures/ and tables/ go (default: the results folder)")
    parser.add_argument("--margin", type=float, default=0.5, help="points of accuracy that do not matter (default 0.5)")
    options = parser.parse_args(arguments)
    try:
        _write_all(options.results, options.out or options.results, options.margin)
    except ValueError as error:
        print(f"paper_figs: {error}", file=sys.stderr)
        return 1
    return 0


def _write_all(results: Path, out: Path, margin: float) -> None:
    records = read_all(results / "records")
    if not records:
        raise ValueError(
            f"no records in {results / 'records'}: run a suite with --results {results}, or name another folder"
        )
    drawn, missing = draw(records, out / "figures", margin)
    for path in drawn + tables.write(compare(records, margin), out / "tables"):
        print(path)
    for name in missing:
        print(f"not drawn, no data: {name}")


if __name__ == "__main__":
    sys.exit(main())
