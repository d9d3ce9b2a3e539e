"""The command line: what it refuses, what it shows, and that a second run runs nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from results import store

ROOT = Path(__file__).parents[2]


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--benchmark-only", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "aprox4"], "no method 'aprox4'; did you mean 'approx4'?"),
        (["--suite", "digits", "--preset", "paper"], "known: digits (laptop)"),
        (["--seeds", "0"], "names no seed"),
        (["--seeds", "x"], "'x' names no seed"),
        (["--jobs", "0"], "ask for 1 or more"),
        (["--models", "resnet1800"], "did you mean 'resnet"),
        (["--results", __file__], "is a file; name a folder"),
        (["--suite", "imagenet"], "pass --data DIR"),
        (["--suite", "cifar10", "--data", "/no/such/place"], "/no/such/place/cifar10/train"),
    ],
)
def test_bad_options_get_one_clear_error(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = _bench("bench/test_memory.py", "--results", str(tmp_path), *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_run_shows_step_times_by_dataset_and_model_and_again_runs_nothing(tmp_path: Path) -> None:
    files = ["bench/test_time.py", "bench/test_memory.py"]
    options = ["--methods", "exact,pool2", "--results", str(tmp_path), "--benchmark-json", str(tmp_path / "b.json")]
    first = _bench(*files, *options)
    assert first.returncode == 0, first.stdout
    assert "step time, preact_resnet20 on digits, batch 64" in first.stdout
    records = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    time = next(r for r in store.read_all(tmp_path / "records") if r.cell.measure == "time")
    shown = next(b for b in json.loads((tmp_path / "b.json").read_text())["benchmarks"] if "test_time" in b["name"])
    assert [1e3 * seconds for seconds in shown["stats"]["data"]] == pytest.approx(list(time.result.method_ms))
    for view in ("figures", "tables", "wandb"):
        assert list((tmp_path / view).iterdir()), f"the run left no {view}"
    assert "pool2" in first.stdout.split("lean-backprop ===")[1]
    again = _bench(*files, *options)
    assert again.returncode == 0, again.stdout
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()} == records
