"""Records on disk: one JSON file for each cell, ``<folder>/<cell.key>.json``, whole or not there at all."""

import json
import os
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from results.schema import SCHEMA_VERSION, Cell, Record

AGAIN = "remove it, and the next run measures its cell again"


class RecordError(ValueError):
    """A file that stands where a record should and is none; the text names it, says why, and what to do."""


def path_of(cell: Cell, folder: Path | str) -> Path:
    """Where the record of ``cell`` lies, whether or not it is there."""
    return Path(folder) / f"{cell.key}.json"


def write(record: Record, folder: Path | str) -> Path:
    """Write ``record`` so that a reader, or a kill at any moment, finds the old file or the new one and never a part.

    Makes ``folder`` if need be, replaces an older record of the same cell, and may run in many processes at once.
    """
    path = path_of(record.cell, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Same folder, so that the rename stays within one file system; a name of its own, so that writers never share it.
    temporary = path.parent / f".{uuid4().hex}.tmp"
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(record.model_dump_json(indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def read(path: Path | str) -> Record:
    """The record in the file at ``path``. Raises RecordError if it is broken, of another schema, or misnamed."""
    path = Path(path)
    text = path.read_text(encoding="utf-8", errors="replace")
    _check_version(text, path)
    try:
        record = Record.model_validate_json(text)
    except ValidationError as error:
        raise _refusal(path, f"does not fit the schema: {error}", AGAIN) from error
    if record.cell.key != path.stem:
        raise _refusal(path, f"holds the record of {record.cell.key}", "give it that name again, or remove it")
    return record


def read_all(folder: Path | str) -> list[Record]:
    """Every record in ``folder``, by key; none if there is no such folder. What killed writers left is no record."""
    return [read(path) for path in sorted(Path(folder).glob("*.json"), key=lambda path: path.stem)]


def find(cell: Cell, folder: Path | str) -> Record | None:
    """The record of ``cell``, or None if it was never written. Raises RecordError as ``read`` does."""
    path = path_of(cell, folder)
    if not path.exists():
        return None
    record = read(path)
    if record.cell != cell:  # "a/b" and "a-b" give one key
        raise _refusal(path, f"belongs to {record.cell}, not to {cell}", "rename one of the two")
    return record


def _check_version(text: str, path: Path) -> None:
    try:
        found = json.loads(text)["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        reason = f"is not a whole record ({type(error).__name__}: {error})"
        raise _refusal(path, reason, AGAIN) from error
    if found != SCHEMA_VERSION:
        fix = "read it with the release that wrote it, or move it away and measure again"
        raise _refusal(path, f"has schema version {found}; this release reads version {SCHEMA_VERSION}", fix)


def _refusal(path: Path, reason: str, fix: str) -> RecordError:
    return RecordError(f"{path} {reason}. To mend it: {fix}.")
