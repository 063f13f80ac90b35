"""Reads VLMEvalKit's TSV files, which hold images as base64, in one pass with one row in memory at a time.

The pass computes the checksum, keeps the text cells and records the position of each row, from which images are read
when they are opened. The `image` cell holds one image, a Python list of images, or, in at most 64 characters, the index
of another row with the same images. A file without this column has paths of image files in the column `image_path`.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import os
import re
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from vcsd.data.formats.vlmevalkit_tsv import MISSING, REFERENCE_LENGTH
from vcsd.data.table import image_cells
from vcsd.errors import ConfigError, shown
from vcsd.evaluation.benchmarks.files.records import Record, RecordTable, StoredImage
from vcsd.views.image_hash import image_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from os import PathLike

_FEW = 5
_LIMIT = Lock()
"""Several threads fetch images at once and must not undo each other's change to the field limit of `csv`."""


@dataclass(frozen=True)
class _Place:
    """A row's position in its file, its cells, and what its image cell holds."""

    name: str
    start: int
    end: int
    cells: Mapping[str, str]
    num_images: int
    reference: str | None
    picture: str
    problem: str | None


def read_tsv(path: str | PathLike[str]) -> RecordTable:
    """Read the rows of a file. An unreadable file raises ConfigError; broken images are listed in `problems`."""
    path = Path(path)
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file, _no_field_limit():
        records = _records(file, digest.update)
        try:
            columns = _header(path, next(records, None))
            places = [_place(path, columns, number, *record) for number, record in enumerate(records, start=1)]
        except csv.Error as error:
            raise ConfigError([f"{path} is not a TSV file: {error}. Download it again."]) from error
    if not places:
        raise ConfigError([f"{path} has no rows below its header. Download it again, or add rows if it is yours."])
    _refuse_duplicates(path, places)
    return _table(path, columns, places, digest.hexdigest())


def _table(path: Path, columns: tuple[str, ...], places: Sequence[_Place], md5: str) -> RecordTable:
    by_index = {place.cells.get("index", ""): place for place in places}
    rows, problems, num_without_image = [], [], 0
    for place in places:
        if "image" not in columns:
            images = _paths(path, place)
            if images:
                rows.append(Record(place.name, place.cells, images, picture=str(images)))
            num_without_image += not images
            continue
        holder = place if place.reference is None else by_index.get(place.reference, place)
        if place.problem is not None:
            problems.append(f"{place.name}: {place.problem}")
        elif place.reference is not None and (holder is place or holder.reference is not None):
            problem = "has none" if holder is not place else "does not exist"
            fix = " Put paths into a column image_path." if re.search(r"[/\\.]", place.reference) else ""
            problems.append(f"{place.name}: its image is that of row {place.reference!r}, which {problem}.{fix}")
        if not holder.num_images:
            num_without_image += 1
            continue
        column = columns.index("image")
        rows.append(Record(place.name, place.cells, _images(path, md5, column, holder), holder.picture))
    return RecordTable(path, "TSV", md5, columns, tuple(rows), num_without_image, tuple(problems))


def _images(path: Path, md5: str, column: int, holder: _Place) -> tuple[StoredImage, ...]:
    return tuple(
        StoredImage(
            f"{holder.name}, image {index + 1}",
            f"{md5}/{holder.start}/{index}",
            partial(_fetch, path, holder.start, holder.end, column, index),
        )
        for index in range(holder.num_images)
    )


def _fetch(path: Path, start: int, end: int, column: int, index: int) -> bytes:
    """Read one image from its row's position in the file."""
    with path.open("rb") as file, _no_field_limit():
        file.seek(start)
        lines = io.BytesIO(file.read(end - start))  # splits lines at \n only, as reading the file did
        cells = _split(next(lines), lines)
    return base64.b64decode(_encoded_images(cells[column])[index], validate=True)


def _paths(path: Path, place: _Place) -> tuple[Path, ...]:
    """Return the image files, relative to the table's folder, from a cell with one name or a list of names."""
    cell = place.cells.get("image_path", "")
    if cell in MISSING:
        return ()
    paths = tuple(Path(os.path.normpath(path.parent / str(name))) for name in image_cells(cell))
    folder = os.path.normpath(path.parent.absolute())
    for image in paths:
        if not Path(os.path.normpath(image.absolute())).is_relative_to(folder):
            name = shown(str(image), 200)
            raise ConfigError([f"{place.name}: its image {name} is outside the folder of {path.name}. Move it there."])
    return paths


def _place(path: Path, columns: tuple[str, ...], number: int, start: int, end: int, raw_cells: list[bytes]) -> _Place:
    name = f"{path.name}, row {number}"
    if len(raw_cells) != len(columns):
        raise ConfigError([
            f"{name} has {len(raw_cells)} cells under {len(columns)} columns. "
            "The file may be cut off: download it again."
        ])  # fmt: skip
    try:
        cells = {column: cell.decode() for column, cell in zip(columns, raw_cells, strict=True) if column != "image"}
    except UnicodeDecodeError as error:
        raise ConfigError([f"{name} is not UTF-8: {error.reason} at byte {error.start} of a cell."]) from error
    image = raw_cells[columns.index("image")].strip() if "image" in columns else b""
    if len(image) <= REFERENCE_LENGTH:
        text = image.decode("utf-8", "replace")
        return _Place(name, start, end, cells, 0, None if text in MISSING else text, "", None)
    parts = _encoded_images(image)
    picture = image_hash(image, algorithm="blake2b", num_digits=16)
    problem = next((problem for part in parts if (problem := _problem(part)) is not None), None)
    return _Place(name, start, end, cells, len(parts), None, picture, problem)


def _encoded_images(cell: bytes) -> list[bytes]:
    """Split an image cell into its base64 texts: one, or those of a Python list."""
    cell = cell.strip()
    if not cell.startswith(b"["):
        return [cell]
    texts = (part.strip().strip(b"'\"") for part in cell.strip(b"[]").split(b","))
    return [text for text in texts if text]


def _problem(text: bytes) -> str | None:
    """Describe what is wrong with a base64 text; None if nothing is."""
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        return f"its image is broken base64 ({error})."
    return None


def _header(path: Path, record: tuple[int, int, list[bytes]] | None) -> tuple[str, ...]:
    if record is None:
        raise ConfigError([f"{path} is empty. Download it again, or add a header and rows if it is yours."])
    names = tuple(cell.decode("utf-8-sig", "replace").strip() for cell in record[2])
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated or len(names) < 2:
        listed = ", ".join(map(repr, repeated))
        problem = f"names {listed} twice" if repeated else f"has only the column {names[0][:40]!r}"
        raise ConfigError([f"{path}: the header {problem}. It must name the columns, with tabs between them."])
    if "image" not in names and "image_path" not in names:
        if any("\0" in name for name in names):
            raise ConfigError([f"{path} is not UTF-8. Save it as UTF-8."])
        raise ConfigError([f"{path} has neither a column 'image' nor 'image_path'. Its columns: {', '.join(names)}."])
    return names


def _refuse_duplicates(path: Path, places: Sequence[_Place]) -> None:
    if "index" not in places[0].cells:
        return
    counts = Counter(place.cells["index"] for place in places)
    repeated = [index for index, count in counts.items() if count > 1]
    if repeated:
        listed = ", ".join(map(repr, repeated[:_FEW])) + (", ..." if len(repeated) > _FEW else "")
        raise ConfigError([f"{path}: {len(repeated)} indices occur in several rows: {listed}. Make them unique."])


def _records(file: io.BufferedReader, update: Callable[[bytes], None]) -> Iterator[tuple[int, int, list[bytes]]]:
    """Yield each row's start and end, and its cells; call `update` with every line, for the checksum."""
    offset = 0

    def lines() -> Iterator[bytes]:
        nonlocal offset
        for line in file:
            update(line)
            offset += len(line)
            yield line

    stream = lines()
    for line in stream:
        start = offset - len(line)
        if line.strip():
            cells = _split(line, stream)
            yield start, offset, cells


def _split(line: bytes, more: Iterator[bytes]) -> list[bytes]:
    """Split a row into its cells. Only rows with quotes go through `csv`, which is slow."""
    if b'"' not in line:
        return line.rstrip(b"\r\n").split(b"\t")
    texts = (part.decode("utf-8", "surrogateescape") for part in chain([line], more))
    return [cell.encode("utf-8", "surrogateescape") for cell in next(csv.reader(texts, delimiter="\t"))]


@contextmanager
def _no_field_limit() -> Iterator[None]:
    """Lift the process-wide limit of `csv` on the size of a cell (128 KiB)."""
    with _LIMIT:
        limit = csv.field_size_limit(sys.maxsize)
        try:
            yield
        finally:
            csv.field_size_limit(limit)
