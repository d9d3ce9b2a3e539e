"""A record is on disk whole or not at all, and comes back as it was."""

import json
import math
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from results.schema import Cell, Record
from results.store import RecordError, find, path_of, read, read_all, write

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(test_loss=FLOATS, train_loss=FLOATS, point_loss=FLOATS, accuracy=st.floats(0, 100), reason=st.text(max_size=20))
def test_a_record_comes_back_as_it_was(make_record, tmp_path, test_loss, train_loss, point_loss, accuracy, reason):
    curve = ({"step": 1, "epoch": 0.5, "train_loss": point_loss},)
    losses = {"test_loss": test_loss, "train_loss": train_loss, "curve": curve}
    record = make_record("train", test_accuracy=accuracy, reason=reason, **losses)
    again = read(write(record, tmp_path))
    assert repr(again) == repr(record), "repr, for nan is not equal to itself"


@pytest.mark.parametrize("measure", ["train", "time", "memory", "gradient"])
def test_every_measure_is_found_by_its_cell(make_record, tmp_path, measure):
    record = make_record(measure, "approx4", 3)
    path = write(record, tmp_path / "deep" / "records")
    assert path.name == f"{record.cell.key}.json"
    assert find(record.cell, tmp_path / "deep" / "records") == record
    assert find(record.cell.model_copy(update={"seed": 4}), path.parent) is None


def test_the_file_is_plain_json_that_says_nan_in_words(make_record, tmp_path):
    path = write(make_record("train", test_loss=math.nan, train_loss=-math.inf), tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(path.read_text(), parse_constant=refuse)
    assert (found["result"]["test_loss"], found["result"]["train_loss"]) == ("NaN", "-Infinity")


def test_records_come_sorted_by_key_and_without_leftovers(make_record, tmp_path):
    records = [make_record("train", method, seed) for method in ("pool2", "exact") for seed in (10, 2)]
    for record in records:
        write(record, tmp_path)
    (tmp_path / ".0f3a.tmp").write_text('{"schema_ver')
    (tmp_path / "notes.txt").write_text("no record")
    assert [record.cell.key for record in read_all(tmp_path)] == sorted(record.cell.key for record in records)


def test_an_absent_folder_holds_no_records(make_record, tmp_path):
    assert read_all(tmp_path / "none") == []
    assert find(make_record("train").cell, tmp_path / "none") is None


def test_writing_again_replaces_and_leaves_nothing_else(make_record, tmp_path):
    write(make_record("train", test_accuracy=10.0), tmp_path)
    write(make_record("train", test_accuracy=20.0), tmp_path)
    (record,) = read_all(tmp_path)
    assert record.result.test_accuracy == 20.0
    assert len(list(tmp_path.iterdir())) == 1


def test_a_write_that_fails_leaves_the_old_record_and_no_leftover(make_record, tmp_path, monkeypatch):
    path = write(make_record("train", test_accuracy=10.0), tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("results.store.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(make_record("train", test_accuracy=20.0), tmp_path)
    assert read(path).result.test_accuracy == 10.0
    assert list(tmp_path.iterdir()) == [path]


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


BREAK = {
    "half a file": (lambda path: path.write_text(path.read_text()[:200]), "is not a whole record"),
    "an empty file": (lambda path: path.write_text(""), "is not a whole record"),
    "binary": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not a whole record"),
    "a list": (lambda path: path.write_text("[1]"), "is not a whole record"),
    "no version": (lambda path: path.write_text("{}"), "is not a whole record"),
    "a later version": (lambda path: _edit(path, schema_version=99), "has schema version 99.*reads version 1"),
    "a field too many": (lambda path: _edit(path, colour="red"), "does not fit the schema"),
    "a status without reason": (lambda path: _edit(path, status="failed"), "does not fit the schema"),
    "another name": (lambda path: path.rename(path.with_name("other.json")), "holds the record of train_digits"),
}


@pytest.mark.parametrize("how", BREAK)
def test_what_is_no_record_is_refused_with_name_reason_and_fix(make_record, tmp_path, how):
    damage, reason = BREAK[how]
    damage(write(make_record("train"), tmp_path))
    with pytest.raises(RecordError, match=f"(?s)b32_s0.json {reason}|other.json {reason}") as caught:
        read_all(tmp_path)
    assert "To mend it:" in str(caught.value)


def test_a_cell_that_shares_its_key_with_another_is_refused(make_record, tmp_path):
    write(make_record("train", "a/b"), tmp_path)
    with pytest.raises(RecordError, match="belongs to .*a/b"):
        find(make_record("train", "a-b").cell, tmp_path)


def _rewrite(record: Record, folder: Path, times: int) -> None:
    for accuracy in range(times):
        result = record.result.model_copy(update={"test_accuracy": float(accuracy)})
        write(record.model_copy(update={"result": result}), folder)
        assert find(record.cell, folder) is not None


def test_parallel_writers_of_the_same_and_of_other_cells_never_show_a_part(make_record, tmp_path):
    records = [make_record("train", seed=seed) for seed in (0, 0, 0, 1)]
    with ProcessPoolExecutor(4) as pool:
        for job in [pool.submit(_rewrite, record, tmp_path, 50) for record in records]:
            job.result()
    assert [record.result.test_accuracy for record in read_all(tmp_path)] == [49.0, 49.0]
    assert len(list(tmp_path.iterdir())) == 2


WRITER = """
import itertools, sys
from results.schema import Record
from results.store import write

record = Record.model_validate_json(sys.stdin.read())
for accuracy in itertools.count():
    # A long reason makes the file large, so that a kill falls inside a write.
    changed = {"reason": str(accuracy % 10) * 2_000_000}
    write(record.model_copy(update=changed), sys.argv[1])
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_record(make_record, tmp_path):
    record = make_record("train")
    path = path_of(record.cell, tmp_path)
    for kill in range(12):
        child = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdin=subprocess.PIPE, cwd=Path.cwd())
        assert child.stdin is not None
        child.stdin.write(record.model_dump_json().encode())
        child.stdin.close()
        started = _state(path)
        while _state(path) == started:
            assert child.poll() is None, "the writer ended by itself"
            time.sleep(0.001)
        time.sleep(0.0017 * kill)
        child.send_signal(signal.SIGKILL)
        child.wait()
        (found,) = read_all(tmp_path)
        assert len(found.reason) == 2_000_000 and len(set(found.reason)) == 1
    leftovers = [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]
    assert leftovers, "no kill fell inside a write, so this test showed nothing"


def _state(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


def test_names_with_a_slash_or_a_dot_stay_one_file(make_record, tmp_path):
    record = make_record("train", model="timm/resnet50.a1_in1k", method="pool2+approx4")
    path = write(record, tmp_path)
    assert path.parent == tmp_path
    assert read(path) == record
    assert isinstance(record.cell, Cell)
