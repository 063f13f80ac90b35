"""CSV and TSV with a header line: quotes, and line breaks inside quotes, as Python's `csv` reads them.

Kept in memory: eight bytes per row, where it begins. Lists (images, boxes) are written in a cell as JSON.
"""

from __future__ import annotations

import csv
import io
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.data.skips import RowError
from vcsd.data.table import image_cells, row_name
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike


class CsvTable:
    """A file of rows under a header; the tab separates the cells of a `.tsv`, the comma those of all others."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.name, self.stem, self.folder = str(path), self.path.stem, self.path.parent
        self.kind = "TSV" if self.path.suffix.lower() == ".tsv" else "CSV"
        self._delimiter = "\t" if self.kind == "TSV" else ","
        self._starts = array("Q")
        header: tuple[str, ...] | None = None
        for start, cells in self._scan():
            if header is None:
                header = tuple(cell.strip() for cell in cells)
            else:
                self._starts.append(start)
        self._end = self.path.stat().st_size
        if header is None or not self._starts:
            raise ConfigError([f"{self.path} has no rows. Write a header line with the columns, then the rows."])
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise ConfigError([f"{self.path}: the header names {', '.join(map(repr, twice))} more than once."])
        self.columns = header

    def __len__(self) -> int:
        return len(self._starts)

    def row(self, index: int) -> dict[str, Any]:
        """The cells of one row; an empty cell is None."""
        start = self._starts[index]
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self._end
        with self.path.open("rb") as file:
            file.seek(start)
            content = file.read(end - start)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._broken(index, f"it is not UTF-8: {error.reason} at byte {error.start}.") from error
        cells = next(cells for cells in self._reader(io.StringIO(text, newline="")) if cells)
        if len(cells) != len(self.columns):
            raise self._broken(index, f"it has {len(cells)} cells under {len(self.columns)} columns. Quote its commas.")
        return {name: cell or None for name, cell in zip(self.columns, cells, strict=True)}

    def values(self, column: str) -> Iterator[Any]:
        """One column; None where the cell is empty or the row is broken."""
        place = self.columns.index(column)
        rows = self._scan()
        next(rows)
        for _, cells in rows:
            yield (cells[place] or None) if len(cells) == len(self.columns) else None

    def num_images(self, column: str) -> Iterator[int]:
        """How many images each row names."""
        return (len(image_cells(value)) for value in self.values(column))

    def _scan(self) -> Iterator[tuple[int, list[str]]]:
        """Where each row begins, and its cells. `csv` asks for just the lines that a row needs, so we can count."""
        offset, start, line_number = 0, 0, 0

        def lines() -> Iterator[str]:
            nonlocal offset, line_number
            with self.path.open("rb") as file:
                for line in file:
                    line_number += 1
                    encoding = "utf-8-sig" if offset == 0 else "utf-8"
                    offset += len(line)
                    yield line.decode(encoding, errors="surrogateescape")

        try:
            for cells in self._reader(lines()):
                if cells:
                    yield start, cells
                start = offset
        except csv.Error as error:
            raise ConfigError(
                [f"{self.path}, up to line {line_number}: {error}. Close its quotes; double those in a text."]
            ) from error

    def _reader(self, lines: Iterator[str] | io.StringIO) -> Iterator[list[str]]:
        return csv.reader(lines, delimiter=self._delimiter, strict=True)

    def _broken(self, index: int, message: str) -> RowError:
        return RowError(row_name(self, index), message, reason="malformed_row", file=self.name)
