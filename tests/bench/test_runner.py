"""Cells in child processes: what a crash, a kill and a second run cost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.runner import Runner
from bench.session import Options, Session
from results import store
from results.schema import Record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(Options(methods=("exact", "approx4"), seeds=(0,), results=tmp_path, jobs=1))
    yield made
    made.runner.close()


def _key(session: Session, measure: str, method: str) -> str:
    return next(key for key, cell in session.cells.items() if (cell.measure, cell.method) == (measure, method))


def test_a_cell_runs_once_and_leaves_its_record(session: Session) -> None:
    key = _key(session, "memory", "approx4")
    record = session.record(key)
    assert record.status == "ok", record.reason
    written = store.path_of(record.cell, session.records).stat().st_mtime_ns
    again = Session(session.options)
    assert again.record(key) == record
    assert store.path_of(record.cell, session.records).stat().st_mtime_ns == written, "a known cell must not run again"
    assert not again.runner.running


def test_another_definition_runs_again_and_keeps_the_old_record(session: Session) -> None:
    key = _key(session, "memory", "exact")
    old = session.record(key)
    outdated = old.model_copy(update={"definition": "0" * 16})
    store.write(outdated, session.records)
    assert Session(session.options).record(key).definition == old.definition
    (kept,) = (session.options.folder / "superseded").iterdir()
    assert Record.model_validate_json(kept.read_text()) == outdated


def test_a_method_that_does_not_apply_is_a_record_with_the_reason(tmp_path: Path) -> None:
    session = Session(Options(methods=("approx4",), models=("vit_tiny_patch16_224",), results=tmp_path, jobs=1))
    record = session.record(_key(session, "memory", "approx4"))
    session.runner.close()
    assert record.status == "not applicable"
    assert "use 'checkpoint'" in record.reason


def test_a_failing_cell_is_a_record_with_the_reason(tmp_path: Path) -> None:
    session = Session(Options(methods=("exact",), models=("no_such_model",), results=tmp_path, jobs=1))
    record = session.record(_key(session, "memory", "exact"))
    session.runner.close()
    assert record.status == "failed"
    assert "no_such_model" in record.reason


def test_a_killed_child_costs_one_cell_and_is_tried_again(session: Session) -> None:
    key = _key(session, "train", "exact")
    job = session.job(key)
    runner: Runner = session.runner
    runner._start(job)
    os.kill(runner.running[0].process.pid or 0, signal.SIGKILL)
    record = runner.result(job)
    assert record.status == "killed"
    assert "SIGKILL" in record.reason
    assert runner.known(job) is None, "a killed cell must run again in the next run"
    assert session.record(_key(session, "memory", "exact")).status == "ok", "the others go on"


def test_records_survive_kill_9_of_the_run_and_the_rerun_finishes_the_rest(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "bench/test_memory.py", "--benchmark-only", "--jobs", "1"]
    command += ["--methods", "exact,lean,approx4,pool2", "--results", str(tmp_path)]
    records = tmp_path / "records"
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(records.glob("*.json")):
        assert run.poll() is None, "the run ended before its first record"
        time.sleep(0.01)
    children = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    run.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive, "children must end with the run, or they would compete with the next one"
    survived = {path: path.read_bytes() for path in records.glob("*.json")}
    assert 1 <= len(survived) < 4
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert len(store.read_all(records)) == 4
    assert {path: path.read_bytes() for path in survived} == survived, "what was recorded must not run again"
    assert "accuracy %" in done.stdout and (tmp_path / "tables" / "comparison.md").exists()
