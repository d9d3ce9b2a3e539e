"""``python -m paper_figs`` from the folder of a run to its figures and tables."""

import subprocess
import sys

import pytest

from paper_figs.__main__ import main
from results.store import write


@pytest.fixture
def results(make_record, tmp_path):
    for record in (make_record("memory"), make_record("memory", "lean")):
        write(record, tmp_path / "run" / "records")
    return tmp_path / "run"


def test_the_command_writes_beside_the_records_and_says_what_it_did(results):
    done = subprocess.run([sys.executable, "-m", "paper_figs", results], capture_output=True, text=True, check=True)
    written = sorted(str(path) for folder in ("figures", "tables") for path in (results / folder).iterdir())
    lines = done.stdout.splitlines()
    assert sorted(line for line in lines if not line.startswith("not drawn")) == written
    assert len(written) == 5
    assert sum(line.startswith("not drawn, no data: accuracy_") for line in lines) == 1
    assert done.stderr == ""


def test_out_keeps_the_results_folder_as_it_is(results, tmp_path, capsys):
    assert main([str(results), "--out", str(tmp_path / "elsewhere")]) == 0
    assert [path.name for path in results.iterdir()] == ["records"]
    assert (tmp_path / "elsewhere" / "tables" / "comparison.csv").exists()


def test_no_records_and_broken_records_are_told_without_a_traceback(results, tmp_path, capsys):
    assert main([str(tmp_path / "nowhere")]) == 1
    assert "no records in" in capsys.readouterr().err
    (results / "records" / "bad.json").write_text("{")
    assert main([str(results)]) == 1
    assert "bad.json is not a whole record" in capsys.readouterr().err
