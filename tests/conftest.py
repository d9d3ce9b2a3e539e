"""What the tests of several rooms share: whole records made up from a few figures."""

from collections.abc import Callable
from typing import Any

import hypothesis
import pytest

from results.schema import Cell, Environment, Record

# Shared machines stall at will, and a red run must be red again.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")

ENVIRONMENT = Environment(
    python="3.12.1", torch="2.14.1", torchvision="0.29.1", timm="1.0.31", platform="Linux", processor="x86_64",
    device="cpu", device_name="cpu", threads=1, allocator="glibc", commit="0" * 40, started_utc="2026-01-01T00:00:00Z",
)  # fmt: skip

RESULTS: dict[str, dict[str, Any]] = {
    "train": {
        "test_accuracy": 50.0, "test_loss": 1.5, "train_loss": 1.0, "steps": 30, "train_images": 100, "test_images": 50,
        "seconds": 1.0, "images_per_second": 100.0, "curve": (),
    },
    "time": {
        "method_ms": (11.0, 12.0), "exact_ms": (10.0, 10.0), "control_ms": (10.0, 10.0), "ratio": 1.15,
        "ratio_low": 1.1, "ratio_high": 1.2, "control_ratio": 1.0, "control_low": 1.0, "control_high": 1.0,
        "memory_format": "channels_last", "exact_memory_format": "channels_last",
    },
    "memory": {
        "saved_bytes": 2**20, "held_bytes": 2**21, "peak_bytes": 2**22, "process_peak_bytes": 2**30,
        "parameter_bytes": 2**18, "input_bytes": 2**16, "memory_format": "channels_last",
    },
    "gradient": {"batches": 4, "cosine": 0.99, "relative_error": 0.01, "sgd_noise": 0.5, "layers": ()},
}  # fmt: skip


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Record]:
    """Call with a measure, a method and a seed; further names change the cell, the record or the result."""

    def make(measure: str, method: str = "exact", seed: int = 0, **changes: Any) -> Record:
        cell = {"suite": "digits", "preset": "laptop", "dataset": "digits", "model": "preact_resnet20", "batch": 32}
        cell |= {name: changes.pop(name) for name in list(changes) if name in cell}
        record = {"definition": "f" * 64, "config": {"lr": 0.1}, "status": "ok"}
        record |= {name: changes.pop(name) for name in list(changes) if name in (*record, "reason")}
        result = {"kind": measure} | RESULTS[measure] | changes if record["status"] == "ok" else None
        identity = cell | {"measure": measure, "method": method, "seed": seed}
        return Record(cell=Cell(**identity), result=result, environment=ENVIRONMENT, **record)  # type: ignore[arg-type]

    return make
