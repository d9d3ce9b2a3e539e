"""Time cells: exact, method, exact in turn, alone on the machine; the table shows the steps of the method."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.plugin import outcome
from bench.replay import clock
from bench.session import Session
from results.schema import TimeResult


@pytest.mark.benchmark(timer=clock)
def test_time(benchmark: BenchmarkFixture, lean_session: Session, time_cell: str) -> None:
    record = outcome(lean_session.record(time_cell))
    cell, result = record.cell, record.result
    assert isinstance(result, TimeResult)
    benchmark.extra_info |= {"ratio": result.ratio, "low": result.ratio_low, "high": result.ratio_high}
    seconds = [sample / 1e3 for sample in result.method_ms]
    clock.show(benchmark, seconds, f"step time, {cell.model} on {cell.dataset}, batch {cell.batch}")
