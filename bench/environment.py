"""The conditions of a run, for its records."""

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from results.schema import Environment


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def environment(device: str, allocator: str) -> Environment:
    """As it is now, in this process."""
    return Environment(
        python=platform.python_version(),
        torch=torch.__version__,
        torchvision=version("torchvision"),
        timm=version("timm"),
        platform=platform.platform(),
        processor=processor(),
        device="cuda" if device.startswith("cuda") else "cpu",
        device_name=torch.cuda.get_device_name() if device.startswith("cuda") else processor(),
        threads=torch.get_num_threads(),
        allocator=allocator,
        commit=commit(),
        started_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )


@cache
def processor() -> str:
    """The processor's name, as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def commit() -> str:
    """Of the checkout that the code runs from, marked where it has changes; 'unknown' outside a checkout."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
