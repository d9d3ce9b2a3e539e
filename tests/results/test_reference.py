"""The committed reference records: whole, paired, and what the README's table is made of."""

from collections import Counter
from pathlib import Path

import pytest

from results import store
from results.compare import compare
from results.schema import Record

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
SUITES = sorted(path.name for path in REFERENCE.iterdir())


def _records(suite: str) -> list[Record]:
    return store.read_all(REFERENCE / suite / "records")


@pytest.mark.parametrize("suite", SUITES)
def test_records_are_whole_and_from_clean_code(suite: str) -> None:
    for record in _records(suite):
        assert record.status in ("ok", "not applicable"), f"{record.cell.key}: {record.status}: {record.reason}"
        assert "dirty" not in record.environment.commit, f"{record.cell.key} was made by code that no commit holds"


@pytest.mark.parametrize("suite", SUITES)
def test_records_of_a_measure_share_their_data(suite: str) -> None:
    assert len({record.config["data_hash"] for record in _records(suite)}) == 1


def test_cifar10_has_the_pairs_that_its_verdicts_need() -> None:
    trained = [r for r in _records("cifar10-laptop") if r.cell.measure == "train"]
    seeds = Counter(record.cell.method for record in trained)
    assert seeds.pop("exact") >= 10 and seeds.pop("approx4") >= 10
    assert set(seeds) == {"lean", "approx8", "approx2", "naive8", "naive4", "pool2", "pool4", "checkpoint"}
    assert min(seeds.values()) >= 9


def test_cifar10_exact_learns() -> None:
    rows = {row.method: row for row in compare(_records("cifar10-laptop"))}
    accuracy = rows["exact"].accuracy
    assert accuracy is not None and accuracy.mean >= 50
