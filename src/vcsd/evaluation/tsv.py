"""VLMEvalKit's TSV files, which hold their images as base64: one pass over the file, and one row in memory at a time.

The pass takes the checksum, keeps the small cells and remembers where each row lies; an image is read again from
there when it is opened. The `image` cell holds one image, a Python list of images, or, in at most 64 characters, the
index of another row whose images are shown. A file without such a column names image files under `image_path`.
"""

from __future__ import annotations

import ast
import base64
import binascii
import csv
import hashlib
import io
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError
from vcsd.evaluation.rows import MISSING, Row, StoredImage, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

REFERENCE_LENGTH = 64
"""An image cell of at most this many characters is the index of another row."""

_FEW = 5
_LIMIT = Lock()
"""Images are fetched from several threads at once, which must not undo each other's limit of `csv`."""


@dataclass(frozen=True)
class _Place:
    """Where a row lies in its file, and what its image cell holds."""

    name: str
    start: int
    end: int
    cells: Mapping[str, str]
    num_images: int
    reference: str | None
    picture: str
    problem: str | None


def read_tsv(path: str | PathLike[str]) -> Table:
    """The rows of a file. What makes it unreadable is a ConfigError; broken images are told in `problems`."""
    path = Path(path)
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file, _no_field_limit():
        records = _records(file, digest.update)
        try:
            columns = _header(path, next(records, None))
            places = [_place(path, columns, number, *record) for number, record in enumerate(records, start=1)]
        except csv.Error as error:
            raise ConfigError([f"{path} is no TSV: {error}. Download it again."]) from error
    if not places:
        raise ConfigError([f"{path} has no rows below its header. Download it again."])
    _refuse_doubles(path, places)
    return _table(path, columns, places, digest.hexdigest())


def _table(path: Path, columns: tuple[str, ...], places: Sequence[_Place], md5: str) -> Table:
    by_index = {place.cells.get("index", ""): place for place in places}
    rows, problems, num_without_image = [], [], 0
    for place in places:
        if "image" not in columns:
            images: tuple[Any, ...] = _paths(path, place)
            if images:
                rows.append(Row(place.name, place.cells, images, picture=str(images)))
            num_without_image += not images
            continue
        holder = place if place.reference is None else by_index.get(place.reference, place)
        if place.problem is not None:
            problems.append(f"{place.name}: {place.problem}")
        elif place.reference is not None and (holder is place or holder.reference is not None):
            shown = f"its image is that of row {place.reference!r}"
            problems.append(f"{place.name}: {shown}, which {'has none' if holder is not place else 'is not there'}.")
        if not holder.num_images:
            num_without_image += 1
            continue
        column = columns.index("image")
        rows.append(Row(place.name, place.cells, _images(path, md5, column, holder), holder.picture))
    return Table(path, "TSV", md5, columns, tuple(rows), num_without_image, tuple(problems))


def _images(path: Path, md5: str, column: int, holder: _Place) -> tuple[StoredImage, ...]:
    return tuple(
        StoredImage(
            f"{holder.name}, image {place + 1}",
            f"{md5}/{holder.start}/{place}",
            partial(_fetch, path, holder.start, holder.end, column, place),
        )
        for place in range(holder.num_images)
    )


def _fetch(path: Path, start: int, end: int, column: int, place: int) -> bytes:
    """Read one image from where its row lies."""
    with path.open("rb") as file, _no_field_limit():
        file.seek(start)
        lines = io.BytesIO(file.read(end - start))  # cut at \n alone, as the file was
        cells = _split(next(lines), lines)
    return base64.b64decode(_encoded_images(cells[column])[place], validate=True)


def _paths(path: Path, place: _Place) -> tuple[Path, ...]:
    """Image files beside the table, from a cell with one name or a list of names."""
    cell = place.cells.get("image_path", "")
    if cell in MISSING:
        return ()
    try:
        names = ast.literal_eval(cell) if cell.startswith("[") else [cell]
    except (SyntaxError, ValueError) as error:
        raise ConfigError([f"{place.name}: image_path = {cell!r} is no list of names: {error}."]) from error
    return tuple(path.parent / str(name) for name in names)


def _place(path: Path, columns: tuple[str, ...], number: int, start: int, end: int, found: list[bytes]) -> _Place:
    name = f"{path.name}, row {number}"
    if len(found) != len(columns):
        raise ConfigError([
            f"{name} has {len(found)} cells under {len(columns)} columns. The file may be cut off: download it again."
        ])  # fmt: skip
    try:
        cells = {column: cell.decode() for column, cell in zip(columns, found, strict=True) if column != "image"}
    except UnicodeDecodeError as error:
        raise ConfigError([f"{name} is not UTF-8: {error.reason} at byte {error.start} of a cell."]) from error
    image = found[columns.index("image")].strip() if "image" in columns else b""
    if len(image) <= REFERENCE_LENGTH:
        text = image.decode("utf-8", "replace")
        return _Place(name, start, end, cells, 0, None if text in MISSING else text, "", None)
    parts = _encoded_images(image)
    picture = hashlib.blake2b(image, digest_size=8).hexdigest()
    problem = next((trouble for part in parts if (trouble := _trouble(part)) is not None), None)
    return _Place(name, start, end, cells, len(parts), None, picture, problem)


def _encoded_images(cell: bytes) -> list[bytes]:
    """The base64 texts of an image cell: its only one, or those of a Python list."""
    cell = cell.strip()
    if not cell.startswith(b"["):
        return [cell]
    texts = (part.strip().strip(b"'\"") for part in cell.strip(b"[]").split(b","))
    return [text for text in texts if text]


def _trouble(text: bytes) -> str | None:
    """What is wrong with a base64 text, if anything."""
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        return f"its image is broken base64 ({error})."
    return None


def _header(path: Path, record: tuple[int, int, list[bytes]] | None) -> tuple[str, ...]:
    if record is None:
        raise ConfigError([f"{path} is empty. Download it again."])
    names = tuple(cell.decode("utf-8-sig", "replace").strip() for cell in record[2])
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice or len(names) < 2:
        what = f"names {', '.join(map(repr, twice))} twice" if twice else f"has the one column {names[0][:40]!r}"
        raise ConfigError([f"{path}: the header {what}. It must name the columns, with tabs between them."])
    if "image" not in names and "image_path" not in names:
        raise ConfigError([f"{path} has neither a column 'image' nor 'image_path'. Its columns: {', '.join(names)}."])
    return names


def _refuse_doubles(path: Path, places: Sequence[_Place]) -> None:
    if not all("index" in place.cells for place in places[:1]):
        return
    counts = Counter(place.cells["index"] for place in places)
    twice = [index for index, count in counts.items() if count > 1]
    if twice:
        shown = ", ".join(map(repr, twice[:_FEW])) + (", ..." if len(twice) > _FEW else "")
        raise ConfigError(
            [f"{path}: {len(twice)} indices stand in several rows: {shown}. An index names one question."]
        )


def _records(file: io.BufferedReader, seen: Any) -> Iterator[tuple[int, int, list[bytes]]]:
    """Where each row begins and ends, and its cells; `seen` is shown every byte of the file."""
    offset = 0

    def lines() -> Iterator[bytes]:
        nonlocal offset
        for line in file:
            seen(line)
            offset += len(line)
            yield line

    stream = lines()
    for line in stream:
        start = offset - len(line)
        if line.strip():
            cells = _split(line, stream)
            yield start, offset, cells


def _split(line: bytes, more: Iterator[bytes]) -> list[bytes]:
    """The cells of a row. Quotes are rare and slow: only rows that have any are read as `csv` does."""
    if b'"' not in line:
        return line.rstrip(b"\r\n").split(b"\t")
    texts = (each.decode("utf-8", "surrogateescape") for each in chain([line], more))
    return [cell.encode("utf-8", "surrogateescape") for cell in next(csv.reader(texts, delimiter="\t"))]


@contextmanager
def _no_field_limit() -> Iterator[None]:
    """`csv` refuses cells above 128 KiB unless told otherwise, and can only be told so for the whole process."""
    with _LIMIT:
        limit = csv.field_size_limit(sys.maxsize)
        try:
            yield
        finally:
            csv.field_size_limit(limit)
