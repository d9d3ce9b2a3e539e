"""Runs cells in child processes, side by side; a crash or kill costs the one cell."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, TextIO

from tqdm import tqdm

from bench import worker
from bench.cells import Job
from bench.environment import environment
from results import store
from results.schema import Record

# Ends that another try may change; the others stand until the definition does
TRANSIENT = ("failed", "killed", "timed out")


@dataclass
class Running:
    job: Job
    process: BaseProcess
    steps: Any  # shared counter


class Runner:
    """Hands out records of jobs: those that are there already, and those it runs, at most ``side_by_side`` at once.

    Forked from a server that has imported everything, a cell starts at once and shares nothing with the others.
    """

    def __init__(self, side_by_side: int, progress: TextIO | None = None) -> None:
        self.side_by_side = side_by_side
        self.queue: list[Job] = []
        self.running: list[Running] = []
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["bench.worker"])
        stream = progress or sys.stderr
        # a log gets a line now and then, a terminal a moving bar
        every = 0.5 if stream.isatty() else 30.0
        self.bar = tqdm(
            total=0, unit=" steps", file=stream, disable=progress is None, mininterval=every, smoothing=0.05,
            dynamic_ncols=True, delay=1,
        )  # fmt: skip

    def enqueue(self, jobs: Iterable[Job], steps: Callable[[Job], int]) -> None:
        """Add jobs to run side by side, in order, less those whose records are there."""
        for job in jobs:
            if self.known(job) is None:
                self.queue.append(job)
                self.bar.total += steps(job)

    def known(self, job: Job) -> Record | None:
        """The record of ``job`` where it is there under the same definition and final."""
        record = store.find(job.cell, job.folder)
        if record is None or record.definition != job.definition or record.status in TRANSIENT:
            return None
        return record

    def result(self, job: Job) -> Record:
        """The record of ``job``, waited for; a job that was not enqueued runs now and alone."""
        if all(job is not other for other in self._unfinished()):
            record = self.known(job)
            if record is not None:
                return record
            self._start(job)
        while any(job is other for other in self._unfinished()):
            self._pump(job)
        record = store.find(job.cell, job.folder)
        if record is None:
            raise RuntimeError(f"no record of {job.cell.key} in {job.folder}: it was removed while the run went on")
        return record

    def close(self) -> None:
        """End what still runs; its records are not written, so the next run does it again."""
        for one in self.running:
            one.process.terminate()
            one.process.join()
        self.running.clear()
        self.queue.clear()
        self.bar.close()

    def _unfinished(self) -> list[Job]:
        return [one.job for one in self.running] + self.queue

    def _pump(self, wanted: Job) -> None:
        alone = all(wanted is not other for other in self.queue) and wanted.cell.measure == "time"
        while self.queue and len(self.running) < self.side_by_side and not alone:
            self._start(self.queue.pop(0))
        connection.wait([one.process.sentinel for one in self.running], timeout=0.5)
        for one in list(self.running):
            self._advance(one)
            if not one.process.is_alive():
                self.running.remove(one)
                self._finish(one)

    def _start(self, job: Job) -> None:
        steps = self.context.Value("q", 0)
        process = self.context.Process(target=worker.run, args=(job, steps), daemon=True)
        self._set_aside(job)
        process.start()
        self.running.append(Running(job, process, steps))

    def _set_aside(self, job: Job) -> None:
        """A record of another definition of the cell is kept beside the new one's folder, not overwritten."""
        old = store.find(job.cell, job.folder)
        if old is not None and old.definition != job.definition:
            aside = job.folder.parent / "superseded"
            aside.mkdir(parents=True, exist_ok=True)
            path = store.path_of(job.cell, job.folder)
            path.rename(aside / f"{path.stem}_{old.definition}.json")

    def _advance(self, one: Running) -> None:
        with one.steps.get_lock():
            steps, one.steps.value = one.steps.value, 0
        names = ", ".join(f"{r.job.cell.method} s{r.job.cell.seed}" for r in self.running)
        self.bar.set_postfix_str(names, refresh=False)
        self.bar.update(steps)

    def _finish(self, one: Running) -> None:
        one.process.join()
        code = one.process.exitcode or 0
        record = store.find(one.job.cell, one.job.folder)
        if code == 0 and record is not None and record.definition == one.job.definition:
            return
        store.write(_lost(one.job, code), one.job.folder)


def _lost(job: Job, code: int) -> Record:
    """The record of a cell whose process ended without writing one."""
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = "; SIGKILL without anyone's doing is the system's answer to memory that ran out" if code == -9 else ""
    return Record(
        cell=job.cell,
        definition=job.definition,
        config=job.config,
        status="killed",
        reason=f"its process ended by {how} before the record{hint}; run again to try again",
        result=None,
        environment=environment(job.device, "unknown"),
    )


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(device: str, asked: int | None) -> tuple[int, int]:
    """(cells at once, threads of each): one thread a cell on the CPU, one cell at a time on a GPU."""
    at_once = asked or (cores() if device == "cpu" else 1)
    return at_once, max(1, cores() // at_once)
