"""The W&B view of a results folder, rebuilt from its records: ``python -m bench.publish RESULTS``.

One run for each training cell, with its curve, and one summary run with the comparison tables and the figures. Offline
unless WANDB_MODE says otherwise; the project is lean-backprop unless WANDB_PROJECT does. Offline runs lie under
RESULTS/wandb and are made anew each time.
"""

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

import wandb

from results import store
from results.compare import Comparison, compare, flat
from results.schema import Record, TrainResult

PROJECT = "lean-backprop"


def settings(folder: Path) -> dict[str, Any]:
    """Everything that W&B writes stays inside the results folder."""
    place = folder / "wandb"
    place.mkdir(parents=True, exist_ok=True)
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        os.environ.setdefault(name, str(folder if name == "WANDB_DIR" else place / "local"))
    return {
        "project": os.environ.get("WANDB_PROJECT", PROJECT),
        "mode": os.environ.get("WANDB_MODE", "offline"),
        "dir": str(folder),
        "settings": wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True),
    }


def publish(folder: Path) -> int:
    """Write all runs and return how many. Raises FileNotFoundError where the folder has no records."""
    records = store.read_all(folder / "records")
    if not records:
        raise FileNotFoundError(f"no records in {folder / 'records'}; run a suite with --results {folder} first")
    shutil.rmtree(folder / "wandb", ignore_errors=True)
    common = settings(folder)
    trained = [record for record in records if record.cell.measure == "train"]
    for record in trained:
        _training_run(record, common)
    _summary_run(records, folder, common)
    return len(trained) + 1


def run_id(record: Record) -> str:
    """Readable, and the same whenever the view is rebuilt, so that uploading again updates."""
    return f"{record.cell.key}-{record.definition[:8]}".replace("_", "-")


def _training_run(record: Record, common: dict[str, Any]) -> None:
    cell, result = record.cell, record.result
    tags = [cell.suite, cell.preset, cell.method]
    group = f"{cell.suite}-{cell.preset}-{cell.model}"
    config = {**record.config, "environment": record.environment.model_dump(), "definition": record.definition}
    with wandb.init(
        **common, id=run_id(record), name=cell.key, group=group, job_type=cell.method, tags=tags, config=config
    ) as run:
        run.summary["status"] = record.status
        if not isinstance(result, TrainResult):
            run.summary["reason"] = record.reason
            return
        run.define_metric("training_step")
        run.define_metric("*", step_metric="training_step")
        for point in result.curve:
            values = point.model_dump(exclude_none=True)
            run.log({"training_step": values.pop("step"), **values})
        run.summary.update(result.model_dump(exclude={"curve", "kind"}))


def _summary_run(records: list[Record], folder: Path, common: dict[str, Any]) -> None:
    first = records[0].cell
    name = f"{first.suite}-{first.preset}-summary"
    with wandb.init(**common, id=name, name=name, job_type="summary", tags=[first.suite, first.preset]) as run:
        rows = compare(records)
        table = [flat(row) for row in rows]
        run.log({"comparison": wandb.Table(columns=list(table[0]), data=[list(row.values()) for row in table])})
        for picture in sorted((folder / "figures").glob("*.png")):
            run.log({f"figures/{picture.stem}": wandb.Image(str(picture))})
        run.summary.update(_figures_of(rows))


def _figures_of(rows: list[Comparison]) -> dict[str, Any]:
    """Each row's numbers under model/method, as a summary has no tables."""
    return {
        f"{row.group.dataset}/{row.group.model}/{row.method}/{name}": value
        for row in rows
        for name, value in flat(row).items()
        if value is not None and name not in (*row.group._fields, "method")
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.publish", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, help="a results folder, such as runs/digits-laptop")
    folder = parser.parse_args().results
    try:
        print(f"{publish(folder)} W&B runs in {folder / 'wandb'}")
    except (FileNotFoundError, store.RecordError) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
