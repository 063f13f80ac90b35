"""CSV and TSV files with a header line, parsed by Python's `csv`, including line breaks inside quotes.

Only the offset of each row stays in memory: eight bytes. Lists (images, boxes) are JSON text inside a cell.
"""

from __future__ import annotations

import csv
import io
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.data.content import file_hash
from vcsd.data.skips import RowError, how_to_convert, not_utf8
from vcsd.data.table import image_cells, row_name
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike


MAX_CELL = 2**27
"""The most characters of a cell, which may hold an image in base64. The default of `csv` is 128 KiB."""


_OTHERS = (";", "\t", ",", "|")
"""Delimiters that other programs use."""


class CsvTable:
    """A file of rows under a header. Tabs separate the cells of a `.tsv`, commas those of any other file."""

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
        if any("\0" in name for name in header):
            raise ConfigError([f"{self.path} is not UTF-8. {how_to_convert('UTF-16')}"])
        if len(header) == 1 and (other := next((mark for mark in _OTHERS if mark in header[0]), None)):
            raise ConfigError(
                [
                    f"{self.path}: {other!r} separates the columns. In a {self.kind} file it must be "
                    f"{self._delimiter!r}. Choose this separator when you save the file, and UTF-8."
                ]
            )
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise ConfigError([f"{self.path}: the header names {', '.join(map(repr, twice))} more than once."])
        self.columns = header

    def __len__(self) -> int:
        return len(self._starts)

    def row(self, index: int) -> Mapping[str, object]:
        """Return the cells of one row; an empty cell is None."""
        start = self._starts[index]
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self._end
        with self.path.open("rb") as file:
            file.seek(start)
            content = file.read(end - start)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._broken(index, not_utf8(error)) from error
        cells: list[str] = next((cells for cells in self._reader(io.StringIO(text, newline="")) if cells), [])
        if len(cells) != len(self.columns):
            marks = "tabs" if self._delimiter == "\t" else "commas"
            counts = f"{len(cells)} cells under {len(self.columns)} columns"
            raise self._broken(index, f"it has {counts}. Quote its {marks}.")
        return {name: cell or None for name, cell in zip(self.columns, cells, strict=True)}

    def values(self, column: str) -> Iterator[str | None]:
        """Yield the cells of one column; None where the cell is empty or the row is broken."""
        index = self.columns.index(column)
        rows = self._scan()
        next(rows)
        for _, cells in rows:
            yield (cells[index] or None) if len(cells) == len(self.columns) else None

    def content_hash(self) -> str:
        """Return a hash of the file."""
        return file_hash(self.path)

    def num_images(self, column: str) -> Iterator[int]:
        """Yield the number of images in each row."""
        return (len(image_cells(value)) for value in self.values(column))

    def _scan(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the offset and the cells of each row. `csv` reads no line beyond a row, so offsets can be counted."""
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
        csv.field_size_limit(max(MAX_CELL, csv.field_size_limit()))
        return csv.reader(lines, delimiter=self._delimiter, strict=True)

    def _broken(self, index: int, message: str) -> RowError:
        return RowError(row_name(self, index), message, reason="malformed_row", file=self.name)
