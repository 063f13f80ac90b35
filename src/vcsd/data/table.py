"""A table: rows of named cells on disk, read one at a time. What the cells mean is said in `vcsd.data.columns`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class Table(Protocol):
    """Rows by number. A row that cannot be parsed raises a DataError; `values` gives None for it."""

    name: str
    """How messages call it: the path of its file, or its id on the hub."""
    kind: str
    """The format in words, such as 'JSON Lines'."""
    stem: str
    """What rows without an id are named after."""
    folder: Path
    """Where relative image paths start."""
    columns: tuple[str, ...]

    def __len__(self) -> int: ...

    def row(self, index: int) -> Mapping[str, Any]:
        """The cells of one row."""
        ...

    def values(self, column: str) -> Iterator[Any]:
        """One column from first row to last, without the others where the format allows it."""
        ...

    def num_images(self, column: str) -> Iterator[int]:
        """How many images each row has in this column."""
        ...


def row_name(table: Table, index: int) -> str:
    """The name of a row that has no id: its file and number, counted from 0, header and empty lines left out.

    >>> from types import SimpleNamespace
    >>> row_name(SimpleNamespace(stem="train"), 42)
    'train-00000042'
    """
    return f"{table.stem}-{index:08d}"


def image_cells(cell: Any) -> list[Any]:
    """The images in a cell: none, one, a list, or a list written as JSON text, as CSV has to.

    >>> image_cells('["a.png", "b.png"]'), image_cells("a.png"), image_cells(""), image_cells(None)
    (['a.png', 'b.png'], ['a.png'], [], [])
    """
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            cell = json.loads(cell)
        except ValueError:
            return [cell]  # a file whose name begins with a bracket
    cells = cell if isinstance(cell, list | tuple) else [cell]
    return [inner for inner in cells if inner is not None and inner != ""]
