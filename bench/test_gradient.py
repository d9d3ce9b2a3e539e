"""Gradient cells: side by side, each once in a process of its own; the table shows how long the run waited for each."""

from pytest_benchmark.fixture import BenchmarkFixture

from bench.plugin import outcome
from bench.session import Session
from results.schema import GradientResult


def test_gradient(benchmark: BenchmarkFixture, side_by_side: Session, gradient_cell: str) -> None:
    benchmark.group = "waited for gradient cells"
    record = benchmark.pedantic(side_by_side.record, args=(gradient_cell,), rounds=1, iterations=1)
    result = outcome(record).result
    assert isinstance(result, GradientResult)
    benchmark.extra_info |= result.model_dump(exclude={"layers"})
