"""A benchmark file as rows. Text cells are in memory; images stay in the file until they are opened.

StoredImage   an image inside a file, read when it is opened
Record        the cells of one question, and its images
RecordTable   the rows of a file, and the file's checksum
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from vcsd.data.formats.vlmevalkit_tsv import MISSING
from vcsd.errors import DataError
from vcsd.views.original import open_image

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

ParquetRow: TypeAlias = "Mapping[str, Any]"
"""The cells of a row in an authors' Parquet file, by column."""

JPEG_QUALITY = 75


@dataclass(frozen=True)
class StoredImage:
    """An image inside a benchmark's file. Pillow opens it like a file and reads the bytes when it needs them."""

    name: str
    identity: str
    """The checksum of its file, the row, and the position in the row."""
    fetch: Callable[[], bytes] = field(compare=False, repr=False)
    is_recoded: bool = False

    def __str__(self) -> str:
        return self.name

    def read(self) -> bytes:
        """Return the image as encoded in the file."""
        content = self.fetch()
        if not self.is_recoded:
            return content
        with open_image(io.BytesIO(content)) as image:
            written = io.BytesIO()
            image.convert("RGB").save(written, "JPEG", quality=JPEG_QUALITY)
        return written.getvalue()

    def recoded(self) -> StoredImage:
        """Return the same image re-encoded as JPEG, as VLMEvalKit does with very large files."""
        return replace(self, identity=f"{self.identity}/jpeg{JPEG_QUALITY}", is_recoded=True)


@dataclass(frozen=True)
class Record:
    """One row of a file. `images` are StoredImages or paths.

    >>> row = Record("toy.tsv, row 1", {"index": "0", "A": "red", "B": "None"}, ())
    >>> row.get("A"), row.get("B"), row.get("C")
    ('red', None, None)
    """

    name: str
    cells: Mapping[str, str]
    images: tuple[Any, ...]
    picture: str = ""
    """Equal for rows that show the same images."""
    is_published: bool = False
    """Whether its file has the published checksum, so that any errors in it are the benchmark's own."""

    def get(self, column: str) -> str | None:
        """Return a cell, or None if it is missing."""
        cell = self.cells.get(column)
        return None if cell is None or cell in MISSING else cell

    def need(self, column: str) -> str:
        """Return a cell that must not be missing."""
        cell = self.get(column)
        if cell is None:
            raise DataError(
                self.id, f"{self.name} has nothing under {column!r}. Download the file again, or correct the row."
            )
        return cell

    @property
    def id(self) -> str:
        """The row's index; without one, its name."""
        return self.cells.get("index") or self.name


@dataclass(frozen=True)
class RecordTable:
    """The rows of a benchmark's file or files. `num_without_image` rows had no image and were skipped."""

    path: Path
    kind: str
    md5: str
    columns: tuple[str, ...]
    rows: tuple[Record, ...]
    num_without_image: int = 0
    problems: tuple[str, ...] = ()
    """Descriptions of the rows whose images are missing or broken."""
