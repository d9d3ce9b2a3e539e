"""One run of a suite: its options, its jobs, and the summary that closes it."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from bench import worker
from bench.cells import MEASURES, Job, cells, define
from bench.environment import default_device
from bench.recipes import RECIPES
from bench.registry import method
from bench.runner import Runner, cores, side_by_side
from bench.suites import Suite, suite
from bench.train import check_model
from results import store
from results.compare import compare, summary
from results.schema import Cell, Measure, Record


@dataclass(frozen=True)
class Options:
    """What the command line chose; None leaves it to the suite."""

    suite: str = "digits"
    preset: str = "laptop"
    methods: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    data: Path | None = None
    results: Path | None = None
    jobs: int | None = None

    def check(self) -> None:
        """Raise KeyError or ValueError where a name is not known, with those that are, or records have no place."""
        suite(self.suite, self.preset)
        for spec in self.methods or ():
            method(spec)
        for model in self.models or ():
            check_model(model)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"--results {self.folder} is a file; name a folder, which is made where it is missing")

    @property
    def folder(self) -> Path:
        return self.results or Path("runs") / f"{self.suite}-{self.preset}"


class Session:
    """Knows the suite's cells from the start; loads the data when the first of them is to run."""

    def __init__(self, options: Options, progress: TextIO | None = None) -> None:
        self.options = options
        self.suite: Suite = suite(options.suite, options.preset)
        self.device = default_device()
        at_once, self.threads = side_by_side(self.device, options.jobs)
        self.runner = Runner(at_once, progress)
        self._data: tuple[str, int] | None = None
        self._jobs: dict[str, Job] = {}
        chosen = (options.methods, options.models, options.seeds)
        self.cells: dict[str, Cell] = {c.key: c for m in MEASURES for c in cells(self.suite, m, *chosen)}

    def keys(self, measure: Measure) -> list[str]:
        """Keys of the cells of ``measure``, in the order in which they run."""
        return [key for key, cell in self.cells.items() if cell.measure == measure]

    def job(self, key: str) -> Job:
        """The cell of that key with its definition. Loads the data where no job did yet."""
        if key not in self._jobs:
            cell = self.cells[key]
            threads = cores() if cell.measure == "time" else self.threads
            job = Job(cell, self.suite, "", {}, self.options.data, self.records, self.device, threads)
            definition, config = define(cell, self.suite, self.load()[0], self.device)
            self._jobs[key] = replace(job, definition=definition, config=config)
        return self._jobs[key]

    def load(self) -> tuple[str, int]:
        """(hash of the data, number of training images), loaded once; children find it decoded."""
        if self._data is None:
            data = worker.load_data(self.suite, self.options.data)
            self._data = data.hash, data.train_count
        return self._data

    def enqueue(self, keys: Sequence[str]) -> None:
        """Let these cells run side by side in the background of the tests that wait for them."""
        self.runner.enqueue([self.job(key) for key in keys], self._steps)

    def _steps(self, job: Job) -> int:
        if job.cell.measure == "train":
            return RECIPES[self.suite.recipe].total_steps(self.load()[1])
        return self.suite.gradient_steps if job.cell.measure == "gradient" else 0

    def record(self, key: str) -> Record:
        """The record of the cell, waited for."""
        return self.runner.result(self.job(key))

    @property
    def records(self) -> Path:
        return self.options.folder / "records"

    def summary(self) -> str:
        """The table that closes the run, over all records of the results folder."""
        return summary(compare(store.read_all(self.records), margin=self.suite.margin))

    def publish(self) -> list[str]:
        """Draw figures and tables and write the W&B view, each in a process of its own. Returns what went wrong."""
        views = {"figures and tables": ["paper_figs"], "W&B view": ["bench.publish"]}
        problems = []
        for what, module in views.items():
            command = [sys.executable, "-m", *module, str(self.options.folder)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
                again = " ".join(["python", *command[1:]])
                problems.append(f"{what} not written: {last}. The records are whole; try again: {again}")
        return problems
