"""Training cells: side by side, each once in a process of its own; the table shows how long each trained."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.plugin import outcome
from bench.replay import clock
from bench.session import Session
from results.schema import TrainResult


@pytest.mark.benchmark(timer=clock)
def test_train(benchmark: BenchmarkFixture, side_by_side: Session, train_cell: str) -> None:
    record = outcome(side_by_side.record(train_cell))
    cell, result = record.cell, record.result
    assert isinstance(result, TrainResult)
    benchmark.extra_info |= {"test_accuracy": result.test_accuracy, "steps": result.steps}
    clock.show(benchmark, [result.seconds], f"whole training, {cell.model} on {cell.dataset}, batch {cell.batch}")
