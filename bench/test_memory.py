"""Memory cells: side by side, each once in a process of its own; the table shows how long the run waited for each."""

from pytest_benchmark.fixture import BenchmarkFixture

from bench.plugin import outcome
from bench.session import Session
from results.schema import MemoryResult


def test_memory(benchmark: BenchmarkFixture, side_by_side: Session, memory_cell: str) -> None:
    benchmark.group = "waited for memory cells"
    record = benchmark.pedantic(side_by_side.record, args=(memory_cell,), rounds=1, iterations=1)
    result = outcome(record).result
    assert isinstance(result, MemoryResult)
    benchmark.extra_info |= result.model_dump(exclude={"layers"})
