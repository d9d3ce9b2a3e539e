"""The pytest plugin: options, a test for each cell, and the summary that closes the run."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, get_args

import pytest

from bench.session import Options, Session
from bench.suites import PRESETS, SUITES
from results.schema import Measure, Record

# Taken on import, before pytest captures what is written
_TERMINAL_DESCRIPTOR = os.dup(2)
_TERMINAL = pytest.StashKey[TextIO]()
_ORDER: tuple[Measure, ...] = ("time", "memory", "gradient", "train")
_SESSION = pytest.StashKey[Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lean-backprop", "what to run")
    names = sorted({name for name, _ in SUITES})
    group.addoption("--suite", default="digits", choices=names, help="suite to run (default: digits)")
    group.addoption("--preset", default="laptop", choices=PRESETS, help="its size (default: laptop)")
    group.addoption("--methods", type=_names, help="methods, comma-separated (default: the suite's)")
    group.addoption("--models", type=_names, help="timm models, comma-separated (default: the suite's)")
    group.addoption("--seeds", type=_seeds, help="how many training seeds, or which: 3 or 0,4,7 (default: the suite's)")
    group.addoption("--data", type=Path, help="image folder (default: LEAN_DATA, else what ships or downloads)")
    group.addoption("--results", type=Path, help="where records go (default: runs/SUITE-PRESET)")
    group.addoption("--jobs", type=_jobs, help="cells side by side (default: one a core; one on a GPU)")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _seeds(text: str) -> tuple[int, ...]:
    numbers = [int(number) if number.strip().isdecimal() else -1 for number in text.split(",")]
    chosen = tuple(range(numbers[0])) if len(numbers) == 1 else tuple(numbers)
    if not chosen or min(chosen) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} names no seed; say how many (3) or which (0,4,7)")
    return chosen


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cells side by side; ask for 1 or more")
    return int(text)


def _options(config: pytest.Config) -> Options:
    names = ("suite", "preset", "methods", "models", "seeds", "data", "results", "jobs")
    return Options(**{name: config.getoption(name) for name in names})


def pytest_configure(config: pytest.Config) -> None:
    try:
        _options(config).check()
    except (KeyError, ValueError) as error:
        raise pytest.UsageError(error.args[0]) from None


def session_of(config: pytest.Config) -> Session:
    """The run's session, made when the first benchmark file asks for it."""
    if _SESSION not in config.stash:
        config.stash[_TERMINAL] = os.fdopen(_TERMINAL_DESCRIPTOR, "w", closefd=False)
        config.stash[_SESSION] = Session(_options(config), progress=config.stash[_TERMINAL])
    return config.stash[_SESSION]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``<measure>_cell`` runs once for each cell of that measure."""
    for measure in get_args(Measure):
        if f"{measure}_cell" in metafunc.fixturenames:
            session = session_of(metafunc.config)
            keys = session.keys(measure)
            cells = [session.cells[key] for key in keys]
            metafunc.parametrize(f"{measure}_cell", keys, ids=[f"{c.model}-{c.method}-s{c.seed}" for c in cells])


def _measure_and_key(item: pytest.Item) -> tuple[Measure, str] | None:
    """Of an item that runs a cell; pytest-benchmark wants parameters that JSON can hold, so they are keys."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return next(((m, parameters[f"{m}_cell"]) for m in _ORDER if f"{m}_cell" in parameters), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time first, while nothing else runs; training last, as it takes longest."""
    items.sort(key=lambda item: _ORDER.index(found[0]) if (found := _measure_and_key(item)) else -1)


@pytest.fixture(scope="session")
def lean_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """The run that the selected cells belong to. Without its data there is no run."""
    session = session_of(request.config)
    try:
        session.load()
    except (FileNotFoundError, ValueError) as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    yield session
    session.runner.close()


@pytest.fixture(scope="session")
def side_by_side(request: pytest.FixtureRequest, lean_session: Session) -> Session:
    """The session with all selected cells but the time ones under way."""
    found = filter(None, map(_measure_and_key, request.session.items))
    lean_session.enqueue([key for measure, key in found if measure != "time"])
    return lean_session


def outcome(record: Record) -> Record:
    """The record where it holds a result; else the test is skipped or fails, with the reason."""
    if record.status == "not applicable":
        pytest.skip(record.reason)
    if record.status != "ok":
        pytest.fail(f"{record.cell.key}: {record.status}: {record.reason}", pytrace=False)
    return record


def pytest_unconfigure(config: pytest.Config) -> None:
    if _TERMINAL in config.stash:
        config.stash[_TERMINAL].close()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = config.stash.get(_SESSION, None)
    if session is None or config.option.collectonly or not session.records.is_dir():
        return
    session.runner.close()
    try:
        text = session.summary()
    except ValueError as error:
        terminalreporter.write_line(f"no summary: {error}", red=True)
        return
    terminalreporter.section("lean-backprop")
    terminalreporter.write_line(text)
    for problem in session.publish():
        terminalreporter.write_line(problem, yellow=True)
    terminalreporter.write_line(f"records, figures, tables and W&B runs: {session.options.folder}")
