"""Append-only JSON Lines: one record per line, and a file that a kill at any moment leaves readable.

A killed process may leave half a line at the end. It is dropped before anything is appended. A run that resumes from
a checkpoint does again the steps after it: `keep_until` removes their lines first, so that no step is told twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

Record = Mapping[str, Any]


class Lines:
    """A file of records that only grows, but for what a resumed run does again.

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

    def append(self, record: Record) -> None:
        """Write one record and hand it to the operating system, where a kill of this process cannot reach it."""
        if not self._is_whole:
            self._mend()
        text = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False)
        with self.path.open("ab") as file:
            # Half a surrogate pair, as a model may write, is no text that UTF-8 can hold.
            file.write(text.encode("utf-8", errors="replace") + b"\n")

    def keep_until(self, key: str, last: float) -> int:
        """Remove the records whose `key` is above `last`; the number of those removed."""
        records = list(read_lines(self.path))
        kept = [record for record in records if record.get(key, last) <= last]
        if len(kept) < len(records):
            beside = self.path.with_name(self.path.name + ".partial")
            beside.unlink(missing_ok=True)
            copy = Lines(beside)
            beside.touch()
            for record in kept:
                copy.append(record)
            beside.replace(self.path)
        return len(records) - len(kept)

    def _mend(self) -> None:
        """End the file after its last whole record."""
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


def read_lines(path: str | PathLike[str]) -> Iterator[dict[str, Any]]:
    """The records of a file, without half a line at its end; none if there is no file."""
    path = Path(path)
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            record = _parse(line)
            if record is not None:
                yield record
            elif line.endswith(b"\n") and line.strip():
                raise ConfigError([f"{path}, line {number} is not a JSON record. Mend or remove the line."])


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _finite(value: Any) -> Any:
    """The value with null for NaN and infinities, which JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
