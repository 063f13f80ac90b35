"""Append-only JSON Lines: one record per line, readable even if the process is killed while writing.

A killed process may leave half a line at the end, which is dropped before the next append. A run that resumes from a
checkpoint repeats the steps after it, so `keep_until` first removes their lines.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

log = logging.getLogger(__name__)

JsonLine = dict[str, Any]
"""One record of a file."""


class Lines:
    """A file of records that only grows, except when a resumed run repeats steps.

    >>> import tempfile
    >>> lines = Lines(Path(tempfile.mkdtemp()) / "metrics.jsonl")
    >>> for step in (1, 2, 3):
    ...     lines.append({"step": step})
    >>> lines.keep_until("step", 2)
    1
    >>> list(read_lines(lines.path))
    [{'step': 1}, {'step': 2}]
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._is_whole = False

    def append(self, record: Mapping[str, object]) -> None:
        """Write one record and flush it to the operating system, so that it survives a kill of this process."""
        text = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False)
        with _explained(self.path):
            if not self._is_whole:
                self._drop_half_line()
            if not self.path.parent.is_dir():
                log.warning("%s has vanished. Making it again; its earlier files are lost.", self.path.parent)
                self.path.parent.mkdir(parents=True)
            self._is_whole = False  # until the line is written: a full disk may take half of it
            with self.path.open("ab") as file:
                # UTF-8 cannot encode half a surrogate pair, which a model may write.
                file.write(text.encode("utf-8", errors="replace") + b"\n")
            self._is_whole = True

    def keep_until(self, key: str, last: float) -> int:
        """Remove the records whose `key` is above `last`, and return how many were removed."""
        records = list(read_lines(self.path))
        kept = [record for record in records if self._number(record, key, last) <= last]
        if len(kept) < len(records):
            partial = self.path.with_name(self.path.name + ".partial")
            with _explained(partial):
                partial.unlink(missing_ok=True)
                copy = Lines(partial)
                partial.touch()
                for record in kept:
                    copy.append(record)
                with partial.open("rb") as file:  # on the disk before it replaces the only other copy
                    os.fsync(file.fileno())
                partial.replace(self.path)
        return len(records) - len(kept)

    def _number(self, record: JsonLine, key: str, default: float) -> float:
        value = record.get(key, default)
        if not isinstance(value, int | float):
            raise ConfigError([f"{self.path}: {key} = {value!r} is not a number. Fix or remove the line."])
        return value

    def _drop_half_line(self) -> None:
        """Truncate the file after its last complete record."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            content = self.path.read_bytes()
            whole, tail = content[: content.rfind(b"\n") + 1], content[content.rfind(b"\n") + 1 :]
            if tail:
                ending = tail + b"\n" if _parse(tail) is not None else b""
                with self.path.open("r+b") as file:
                    file.truncate(len(whole))
                    file.seek(len(whole))
                    file.write(ending)
        self._is_whole = True


def read_lines(path: str | PathLike[str]) -> Iterator[JsonLine]:
    """Yield the records of a file, ignoring half a line at its end; nothing if the file does not exist."""
    path = Path(path)
    if not path.exists():
        return
    if not path.is_file() and not path.is_dir():  # reading a pipe or a device may never end
        raise ConfigError([f"{path} is not a file. Remove it."])
    with _explained(path), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            record = _parse(line)
            if record is not None:
                yield record
            elif line.endswith(b"\n") and line.strip():
                raise ConfigError([f"{path}, line {number} is not a JSON record. Fix or remove the line."])


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one sentence."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path} cannot be read or written: {error}. Fix that; the same command resumes from what was saved."
        ) from error


def _parse(line: bytes) -> JsonLine | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _finite(value: object) -> object:
    """Replace NaN and infinities, which JSON lacks, by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
