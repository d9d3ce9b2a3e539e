"""One cell in a process of its own: builds, measures, and writes the record the moment the figures are there."""

import copy
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bench.models  # noqa: F401  # registers the suite's own nets with timm
from bench import allocator, gradient, memory, timing
from bench.cells import Job
from bench.data import Dataset, load
from bench.environment import environment
from bench.recipes import RECIPES
from bench.registry import method
from bench.step import step
from bench.streaming import Streamed
from bench.suites import Suite
from bench.train import Progress, batches, build, make_optimizer, train
from methods import NotApplicable
from results import store
from results.schema import GradientResult, MemoryResult, Record, Result, Status, TimeResult, TrainResult

STEP_RATE = 0.01  # learning rate of the steps that are timed or weighed: the nets must stay finite


def run(job: Job, steps_done: Any) -> None:
    """The entry of a child process. ``steps_done`` is a shared counter of training steps."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    tuned = allocator.tune()
    torch.set_num_threads(job.threads)

    def progress(steps: Iterable[int]) -> Iterator[int]:
        for number in steps:
            yield number
            with steps_done.get_lock():
                steps_done.value += 1

    status, reason, result = attempt(job, progress)
    conditions = environment(job.device, tuned)
    record = Record(
        cell=job.cell,
        definition=job.definition,
        config=job.config,
        status=status,
        reason=reason,
        result=result,
        environment=conditions,
    )
    store.write(record, job.folder)


def _follow_parent() -> None:
    """End with the run: a killed parent must not leave children that compete with the next run."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def attempt(job: Job, progress: Progress) -> tuple[Status, str, Result | None]:
    """(status, why, result): whatever happens in a cell is its outcome, never the end of the run."""
    try:
        return "ok", "", _MEASURES[job.cell.measure](job, progress)
    except NotApplicable as error:
        return "not applicable", str(error), None
    except (MemoryError, torch.OutOfMemoryError) as error:
        return "out of memory", str(error) or "the process ran out of memory", None
    except Exception as error:
        if "can't allocate memory" in str(error):
            return "out of memory", str(error), None
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "failed", f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})", None


def load_data(suite: Suite, root: Path | None) -> Dataset | Streamed:
    """The images that the suite trains and tests on."""
    return load(
        suite.dataset,
        root,
        train_size=suite.train_size,
        test_size=suite.test_size,
        seed=suite.data_seed,
        image_size=suite.image_size,
        stream=True if RECIPES[suite.recipe].streams else None,
    )


def dataset_of(job: Job) -> Dataset | Streamed:
    return load_data(job.suite, job.data).to(job.device)


def _model(job: Job, data: Dataset | Streamed, spec: str) -> nn.Module:
    form = getattr(torch, job.recipe.memory_format)
    return method(spec).apply(build(job.cell.model, data, job.cell.seed, form).to(job.device))


def _optimizer(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    optimizer = make_optimizer(model, job.recipe)
    for group in optimizer.param_groups:
        group["lr"] = STEP_RATE
    return optimizer


def _train(job: Job, progress: Progress) -> TrainResult:
    data = dataset_of(job)
    model = _model(job, data, job.cell.method)
    return train(model, data, job.recipe, job.cell.seed, job.device, progress)


def _batch(job: Job, data: Dataset | Streamed) -> tuple[Tensor, Tensor]:
    return next(batches(data, job.recipe, job.cell.seed, job.device))


def _memory(job: Job, progress: Progress) -> MemoryResult:
    data = dataset_of(job)
    model = _model(job, data, job.cell.method).train()
    return memory.measure(model, _optimizer(job, model), *_batch(job, data))


def _time(job: Job, progress: Progress) -> TimeResult:
    data = dataset_of(job)
    batch = _batch(job, data)

    def stepper(spec: str) -> Callable[[], None]:
        model = _model(job, data, spec).train()
        optimizer = _optimizer(job, model)
        return lambda: step(model, optimizer, *batch)

    form = memory.memory_format(batch[0])
    rounds, cuda = job.suite.time_rounds, job.device.startswith("cuda")
    return timing.measure(stepper("exact"), stepper(job.cell.method), rounds, cuda, form, form)


def _gradient(job: Job, progress: Progress) -> GradientResult:
    data = dataset_of(job)
    exact = _model(job, data, "exact")
    start = replace(job.recipe, steps=job.suite.gradient_steps, epochs=0, eval_every=0)
    train(exact, data, start, job.cell.seed, job.device, progress)
    coded = method(job.cell.method).apply(copy.deepcopy(exact))
    # other batches than those that the nets were trained on so far
    fresh = islice(batches(data, job.recipe, job.cell.seed + 1, job.device), job.suite.gradient_batches)
    return gradient.measure(exact.train(), coded.train(), fresh)


_MEASURES: dict[str, Callable[[Job, Progress], Result]] = {
    "train": _train,
    "memory": _memory,
    "time": _time,
    "gradient": _gradient,
}
