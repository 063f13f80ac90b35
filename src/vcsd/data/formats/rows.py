"""Rows in memory as a table: a list of dictionaries, a JSON file, or any sequence whose items are dictionaries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vcsd.data.content import NUM_SAMPLED, cells_hash
from vcsd.data.skips import RowError
from vcsd.data.table import image_cells, row_name
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

MAX_JSON_BYTES = 2**31
"""The largest JSON file that is read: it is in memory as a whole."""

_RECORD_KEYS = ("data", "rows", "examples", "instances")


class RowSequence(Protocol):
    """Rows by number, such as a list of dictionaries or a map-style dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


class RowsTable:
    """Rows in memory. A list has the columns of all its rows; any other sequence has those of its first row."""

    kind = "rows"

    def __init__(self, rows: RowSequence, *, name: str = "train_dataset", folder: Path | None = None) -> None:
        self.name, self.stem, self.folder = name, Path(name).stem, folder or Path()
        self._rows = rows
        if not len(rows):
            raise ConfigError([f"{name} has no rows."])
        self.columns = self._find_columns()

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> Mapping[str, object]:
        """Return the cells of one row."""
        row = self._rows[index]
        if not isinstance(row, Mapping):
            message = f"it is {type(row).__name__}, not a dictionary with columns."
            raise RowError(row_name(self, index), message, reason="malformed_row")
        return row

    def values(self, column: str) -> Iterator[object]:
        """Yield one key of every row; None where it is missing."""
        for index in range(len(self)):
            row = self._rows[index]
            yield row.get(column) if isinstance(row, Mapping) else None

    def content_hash(self) -> str:
        """Return a hash of all rows of a list, or of some rows of another sequence, which may compute them."""
        return cells_hash(self._rows[index] for index in self._sample())

    def num_images(self, column: str) -> Iterator[int]:
        """Yield the number of images in each row."""
        return (len(image_cells(value)) for value in self.values(column))

    def _sample(self) -> range:
        step = 1 if isinstance(self._rows, list | tuple) else max(1, len(self) // NUM_SAMPLED)
        return range(0, len(self), step)

    def _find_columns(self) -> tuple[str, ...]:
        is_list = isinstance(self._rows, list | tuple)
        rows = (self._rows[index] for index in range(len(self) if is_list else 1))
        columns: dict[str, None] = {}
        for row in rows:
            if isinstance(row, Mapping):
                columns |= dict.fromkeys(map(str, row))
        if not columns:
            kind = type(self._rows[0]).__name__
            raise ConfigError(
                [
                    f"{self.name} holds {kind}, not dictionaries with columns. Give rows such as "
                    '{"prompt": "How many?", "image": "a.png"}, or Examples.'
                ]
            )
        return tuple(columns)


class JsonTable(RowsTable):
    """A JSON file with a list of objects, as ShareGPT and LLaVA data come. It is read into memory."""

    kind = "JSON"

    def __init__(self, path: str | PathLike[str]) -> None:
        path = Path(path)
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ConfigError([f"{path} is larger than 2 GiB. Write one object per line: .jsonl, which stays on disk."])
        super().__init__(_read_json(path), name=str(path), folder=path.parent)


def _read_json(path: Path) -> Sequence[object]:
    try:
        content = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{path} is not JSON: {error}. For one object per line, name it .jsonl."]) from error
    if isinstance(content, dict):
        content = next((content[key] for key in _RECORD_KEYS if isinstance(content.get(key), list)), content)
    if not isinstance(content, list):
        raise ConfigError([f"{path} is not a list of objects. Write [{{...}}, ...], or one object per line: .jsonl."])
    return content
