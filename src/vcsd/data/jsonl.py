"""JSON Lines: one object per line. Only the offset of each line stays in memory: eight bytes."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.data.content import file_hash
from vcsd.data.skips import RowError, not_utf8
from vcsd.data.table import image_cells, row_name
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

_BOM = b"\xef\xbb\xbf"


class JsonlTable:
    """A file of JSON objects, one per line. Empty lines are ignored."""

    kind = "JSON Lines"

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.name, self.stem, self.folder = str(path), self.path.stem, self.path.parent
        self._starts = self._index()
        self.columns = self._find_columns()

    def __len__(self) -> int:
        return len(self._starts)

    def row(self, index: int) -> dict[str, object]:
        """Return the object of one line."""
        with self.path.open("rb") as file:
            file.seek(self._starts[index])
            return self._parse(file.readline(), index)

    def values(self, column: str) -> Iterator[object]:
        """Yield one key of every object; None where it is missing or the line is broken."""
        for row in self._rows():
            yield None if isinstance(row, RowError) else row.get(column)

    def content_hash(self) -> str:
        """Return a hash of the file."""
        return file_hash(self.path)

    def num_images(self, column: str) -> Iterator[int]:
        """Yield the number of images in each object."""
        return (len(image_cells(value)) for value in self.values(column))

    def _index(self) -> array[int]:
        starts, offset = array("Q"), 0
        with self.path.open("rb") as file:
            for line in file:
                if line.removeprefix(_BOM).strip():
                    starts.append(offset)
                offset += len(line)
        if not starts:
            raise ConfigError([f"{self.path} is empty. Write one JSON object per line."])
        return starts

    def _rows(self) -> Iterator[dict[str, object] | RowError]:
        with self.path.open("rb") as file:
            lines = (line for line in file if line.removeprefix(_BOM).strip())
            for index, line in enumerate(lines):
                try:
                    yield self._parse(line, index)
                except RowError as error:
                    yield error

    def _parse(self, line: bytes, index: int) -> dict[str, object]:
        try:
            row = json.loads(line.removeprefix(_BOM).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise self._broken(index, not_utf8(error)) from error
        except (ValueError, RecursionError) as error:
            raise self._broken(index, f"it is not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise self._broken(index, f"it is {type(row).__name__}, not an object with columns.")
        return row

    def _broken(self, index: int, message: str) -> RowError:
        return RowError(row_name(self, index), message, reason="malformed_row", file=self.name)

    def _find_columns(self) -> tuple[str, ...]:
        columns: dict[str, None] = {}
        problem = ""
        for row in self._rows():  # all rows, because an object may omit any key
            if isinstance(row, RowError):
                problem = problem or row.message
            else:
                columns |= dict.fromkeys(row)
        if not columns:
            raise ConfigError(
                [f"{self.path} is not JSON Lines. Its first line: {problem} Write one JSON object per line, in UTF-8."]
            )
        return tuple(columns)
