"""A benchmark file as rows: small cells in memory, images left where they are until someone looks.

StoredImage   an image inside a file, read when it is opened
Row           the cells of one question, and its images
Table         the rows of a file, and the file's checksum
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from PIL import Image

from vcsd.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

JPEG_QUALITY = 75

MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
        *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
"""What a cell says when it says nothing, in the words of pandas, with which VLMEvalKit reads its files. An option that
reads "None" is therefore no option there, nor here: the published numbers were made without it."""


@dataclass(frozen=True)
class StoredImage:
    """An image inside a benchmark's file. Pillow opens it as it opens a file: it asks for the bytes when it needs them.

    >>> stored = StoredImage("toy.tsv, row 1", "d41d/1/0", lambda: b"GIF89a")
    >>> str(stored), stored.read()
    ('toy.tsv, row 1', b'GIF89a')
    """

    name: str
    identity: str
    """What the image is known by: the checksum of its file, the row, the place."""
    fetch: Callable[[], bytes] = field(compare=False, repr=False)
    is_recoded: bool = False

    def __str__(self) -> str:
        return self.name

    def read(self) -> bytes:
        """The bytes of the image's file."""
        content = self.fetch()
        return _as_jpeg(content) if self.is_recoded else content

    def recoded(self) -> StoredImage:
        """The same image through JPEG, as VLMEvalKit does to the images of very large files."""
        return replace(self, identity=f"{self.identity}/jpeg{JPEG_QUALITY}", is_recoded=True)


def _as_jpeg(content: bytes) -> bytes:
    with Image.open(io.BytesIO(content)) as image:
        written = io.BytesIO()
        image.convert("RGB").save(written, "JPEG", quality=JPEG_QUALITY)
    return written.getvalue()


@dataclass(frozen=True)
class Row:
    """One question as its file has it. `images` are StoredImages or paths.

    >>> row = Row("toy.tsv, row 1", {"index": "0", "A": "red", "B": "None"}, ())
    >>> row.get("A"), row.get("B"), row.get("C")
    ('red', None, None)
    """

    name: str
    cells: Mapping[str, str]
    images: tuple[Any, ...]
    picture: str = ""
    """Equal for rows that show the same picture."""

    def get(self, column: str) -> str | None:
        """A cell, or None where it says nothing."""
        cell = self.cells.get(column)
        return None if cell is None or cell in MISSING else cell

    def need(self, column: str) -> str:
        """A cell that must say something."""
        cell = self.get(column)
        if cell is None:
            raise DataError(
                self.id, f"{self.name} has nothing under {column!r}. Download the file again, or mend the row."
            )
        return cell

    @property
    def id(self) -> str:
        """What the row is called; its place where it has no index."""
        return self.cells.get("index") or self.name


@dataclass(frozen=True)
class Table:
    """The rows of a benchmark's file or files. `num_without_image` rows had no image and are left out."""

    path: Path
    kind: str
    md5: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    num_without_image: int = 0
    problems: tuple[str, ...] = ()
    """Rows whose images cannot be had, in words."""
