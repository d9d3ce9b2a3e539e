"""The W&B view, read back with W&B's own reader, holds the records' numbers."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.publish import run_id
from results import store
from results.schema import Record

ROOT = Path(__file__).parents[2]
WANDB = str(Path(sys.executable).with_name("wandb"))
CURVE = (
    {"step": 15, "epoch": 0.5, "train_loss": 2.25},
    {"step": 30, "epoch": 1.0, "train_loss": 1.5, "test_loss": 1.75, "test_accuracy": 61.5},
)


@pytest.fixture
def folder(tmp_path: Path, make_record: Callable[..., Record]) -> Path:
    for seed, accuracy in enumerate((60.0, 61.5)):
        store.write(make_record("train", "exact", seed, test_accuracy=accuracy, curve=CURVE), tmp_path / "records")
        store.write(make_record("train", "approx4", seed, test_accuracy=accuracy - 1), tmp_path / "records")
    failed = make_record("train", "pool2", 0, status="not applicable", reason="no convolutions")
    store.write(failed, tmp_path / "records")
    store.write(make_record("memory", "exact"), tmp_path / "records")
    return tmp_path


def _publish(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    command = [sys.executable, "-m", "bench.publish", str(folder)]
    return subprocess.run(command, cwd=ROOT, env=clean | environment, capture_output=True, text=True)


def _inspect(run: Path, *options: str) -> str:
    (file,) = run.glob("*.wandb")
    done = subprocess.run([WANDB, "leet", "inspect", *options, "--json", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _runs(folder: Path) -> dict[str, Path]:
    """Run folders by run id, which ends the folder's name after the time."""
    return {path.name.split("-", 3)[3]: path for path in (folder / "wandb").glob("offline-run-*")}


def test_runs_hold_the_records_numbers(folder: Path) -> None:
    done = _publish(folder)
    assert done.returncode == 0, done.stderr
    runs = _runs(folder)
    trained = [r for r in store.read_all(folder / "records") if r.cell.measure == "train"]
    assert set(runs) == {run_id(r) for r in trained} | {"digits-laptop-summary"}
    for record in trained:
        summary: dict[str, Any] = json.loads(_inspect(runs[run_id(record)], "--summary"))
        assert summary["project"] == "lean-backprop"
        assert summary["summary"]["status"] == record.status
        if record.result is not None:
            figures = record.result.model_dump(exclude={"kind", "curve"})
            assert {name: summary["summary"][name] for name in figures} == pytest.approx(figures)
        else:
            assert summary["summary"]["reason"] == record.reason


def test_curves_are_logged_by_training_step(folder: Path) -> None:
    _publish(folder)
    lines = map(json.loads, _inspect(_runs(folder)[_id_of(folder, "exact")]).splitlines())
    history = [line["history"]["item"] for line in lines if line["type"] == "history"]
    assert [item["training_step"] for item in history] == [15, 30]
    assert [item["train_loss"] for item in history] == [2.25, 1.5]
    assert history[1]["test_accuracy"] == 61.5


def _id_of(folder: Path, method: str) -> str:
    records = store.read_all(folder / "records")
    return next(run_id(r) for r in records if r.cell.method == method and r.cell.measure == "train")


def test_summary_run_holds_the_comparison(folder: Path) -> None:
    _publish(folder)
    summary = json.loads(_inspect(_runs(folder)["digits-laptop-summary"], "--summary"))["summary"]
    assert summary["digits/preact_resnet20/approx4/difference_points"] == pytest.approx(-1)
    assert summary["digits/preact_resnet20/exact/accuracy_percent"] == pytest.approx(60.75)
    assert "comparison" in summary


def test_again_makes_the_same_runs(folder: Path) -> None:
    _publish(folder)
    first = set(_runs(folder))
    _publish(folder)
    assert set(_runs(folder)) == first


def test_failure_costs_no_record_and_says_why(folder: Path) -> None:
    before = {path: path.read_bytes() for path in (folder / "records").iterdir()}
    done = _publish(folder, WANDB_MODE="nonsense")
    assert done.returncode != 0
    assert {path: path.read_bytes() for path in (folder / "records").iterdir()} == before
    empty = _publish(folder / "records")
    assert empty.returncode == 1
    assert "run a suite with --results" in empty.stderr
