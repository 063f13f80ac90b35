"""A table: rows of named cells on disk, read one at a time. `vcsd.data.columns` interprets the cells."""

from __future__ import annotations

import ast
import json
import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


_GAP = re.compile(r"(?<=['\"])\s+(?=['\"])")
"""The gap between the strings of a NumPy array that pandas wrote as text. Python would join the strings."""


class Table(Protocol):
    """Rows by number. A row that cannot be parsed raises a DataError; `values` yields None for it."""

    name: str
    """Its name in messages: the path of its file, or its id on the hub."""
    kind: str
    """The format in words, such as 'JSON Lines'."""
    stem: str
    """The prefix of the names of rows without an id."""
    folder: Path
    """The folder that relative image paths start from."""
    columns: tuple[str, ...]

    def __len__(self) -> int: ...

    def row(self, index: int) -> Mapping[str, object]:
        """Return the cells of one row."""

    def values(self, column: str) -> Iterator[object]:
        """Yield one column from first row to last, without reading the others where the format allows it."""

    def content_hash(self) -> str:
        """Return a hash of all cells. Images that are named by their path count as that path."""
        ...

    def num_images(self, column: str) -> Iterator[int]:
        """Yield the number of images that each row has in this column."""


def row_name(table: Table, index: int) -> str:
    """Name a row that has no id by its file and its number, counted from 0 without header and empty lines.

    >>> from types import SimpleNamespace
    >>> row_name(SimpleNamespace(stem="train"), 42)
    'train-00000042'
    """
    return f"{table.stem}-{index:08d}"


def is_nan(cell: object) -> bool:
    """Whether a cell is NaN, which pandas writes into one that is empty."""
    return isinstance(cell, float) and math.isnan(cell)


def image_cells(cell: object) -> list[object]:
    """Return the images in a cell: none, one, a list, or a list as text, as JSON, Python or NumPy write it.

    >>> image_cells('["a.png", "b.png"]'), image_cells("['a.png']"), image_cells("a.png"), image_cells(None)
    (['a.png', 'b.png'], ['a.png'], ['a.png'], [])
    >>> image_cells("['a.png' 'b.png']")
    ['a.png', 'b.png']
    """
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        cell = _listed(cell.strip())
    cells = cell if isinstance(cell, list | tuple) else [cell]
    return [inner for inner in cells if not (inner is None or (isinstance(inner, str) and not inner) or is_nan(inner))]


def _listed(text: str) -> object:
    """Read a list that is written as text. Any other text, such as a file name that begins with a bracket, is kept."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return ast.literal_eval(_GAP.sub(", ", text))
    return text
