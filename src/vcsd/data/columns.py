"""Which columns of a table hold the fields of an Example, and how to read their cells."""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from vcsd.data.formats.conversation import message_text
from vcsd.data.formats.encoded_image import decode_base64, is_base64
from vcsd.data.skips import RowError
from vcsd.data.table import is_nan
from vcsd.errors import ConfigError, did_you_mean, shown
from vcsd.types import HALF_PAIR
from vcsd.views.original import open_image

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": ("id",),
    "prompt": ("prompt", "messages", "conversations", "question", "problem", "query"),
    "images": ("images", "image", "image_path"),
    "answer": ("answer", "solution", "completion"),
    "boxes": ("boxes",),
    "demonstration": ("demonstration",),
    "feedback": ("feedback",),
    "control_images": ("control_images", "control_image"),
    "category": ("category",),
}
"""Field -> the columns that may hold it. If a table has several, the first non-empty one of a row counts."""

REQUIRED = ("prompt", "images")

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|data:", re.IGNORECASE)
_SEVERAL = re.compile(r"\.\w{2,5}\s*[;,|]\s*\S")
"""Two paths in one text, such as "a.png;b.png"."""

_MAX_SHOWN = 200
_LIKE = 0.6
"""Share of letters in common from which on a column is suggested."""
_OBJECT = re.compile(r"<_io\.[^>]*>")


@dataclass(frozen=True)
class Columns:
    """The columns of each field of an Example; empty for a field that the table lacks.

    >>> columns = Columns.find("a.csv", ["question", "image", "images"])
    >>> columns.of("prompt"), columns.of("answer")
    (('question',), ())
    >>> columns.cell({"question": "How many?", "image": "a.png", "images": None}, "images")
    'a.png'
    """

    by_field: Mapping[str, tuple[str, ...]]

    @classmethod
    def find(cls, name: str, present: Iterable[str], chosen: Mapping[str, str | None] | None = None) -> Columns:
        """Find the columns by their usual names. `chosen` maps a field to another column, or to None to ignore it."""
        present, chosen = list(present), dict(chosen or {})
        problems = [
            f"data.columns.{field} is not a field. {did_you_mean(field, FIELDS)}"
            for field in chosen
            if field not in FIELDS
        ]
        by_field: dict[str, tuple[str, ...]] = {}
        for field, usual in FIELDS.items():
            by_field[field] = tuple(column for column in usual if column in present)
            if field in chosen:
                column = chosen[field]
                by_field[field] = () if column is None else (column,)
                if column is not None and column not in present:
                    problems.append(
                        f"data.columns.{field} = {column!r} is not a column of {name}. {_nearest(column, present)}"
                    )
            if not by_field[field] and (field == "prompt" or (field in REQUIRED and field not in chosen)):
                problems.append(_missing(name, field, present))
        if problems:
            raise ConfigError(problems)
        return cls(by_field)

    def of(self, field: str) -> tuple[str, ...]:
        """Return the columns that may hold a field."""
        return self.by_field[field]

    def cell(self, row: Mapping[str, object], field: str) -> object:
        """Return a row's first non-empty cell for a field, or None."""
        return first_cell(row, self.of(field))

    def report(self) -> str:
        """Describe which column each field comes from."""
        return ", ".join(
            field if columns == (field,) else f"{field} from {' or '.join(map(repr, columns))}"
            for field, columns in self.by_field.items()
            if columns
        )


def first_cell(row: Mapping[str, object], columns: Iterable[str]) -> object:
    """Return the first cell of some columns that is not empty, or None.

    >>> first_cell({"image": float("nan"), "images": ["a.png"]}, ("image", "images"))
    ['a.png']
    """
    cells = (row.get(column) for column in columns)
    filled = (cell for cell in cells if not is_nan(cell))
    return next((cell for cell in filled if not isinstance(cell, str | list | tuple | None) or cell), None)


def _missing(name: str, field: str, present: list[str]) -> str:
    *others, last = (repr(column) for column in FIELDS[field])
    wanted = f"{', '.join(others)} or {last}" if others else last
    without = " For data without images, set data.columns.images to null." if field == "images" else ""
    near = f"Did you mean {similar!r}?" if (similar := _similar(field, present)) else _nearest("", present)
    return f"{name} has no column {wanted}. {near} Set data.columns.{field}=COLUMN to use another one.{without}"


def _similar(field: str, present: list[str]) -> str | None:
    """Return the column most like a field's usual names, ignoring case; None if no column is like them.

    >>> _similar("prompt", ["image", "Question"])  # 'image' is like 'messages', but another field has it
    'Question'
    """
    taken = {column for other, usual in FIELDS.items() if other != field for column in usual}
    likeness = {
        column: max(SequenceMatcher(None, column.lower(), usual).ratio() for usual in FIELDS[field])
        for column in present
        if column not in taken
    }
    best = max(likeness, key=likeness.__getitem__, default=None)
    return best if best is not None and likeness[best] >= _LIKE else None


def _nearest(word: object, present: list[str]) -> str:
    words = did_you_mean(word, present).replace("Allowed:", "It has:")
    return words.replace("None of the", "None of its").replace("allowed words", "columns")


def read_text(row_id: str, field: str, cell: object) -> str | None:
    """Read a text, or a number as text; None for an empty cell, which pandas writes as NaN.

    >>> read_text("a", "answer", 7), read_text("a", "answer", " "), read_text("a", "answer", float("nan"))
    ('7', None, None)
    """
    if cell is None or (isinstance(cell, str) and not cell.strip()) or is_nan(cell):
        return None
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        raise RowError(row_id, f"its {field} is {shown(cell)}, not text.", reason="malformed_row")
    return str(cell)


def read_answer(row_id: str, cell: object) -> str | None:
    """Read a reference answer: a text, a number, or TRL's completion, a list with the assistant's message."""
    if isinstance(cell, list | tuple) and cell and all(isinstance(message, Mapping) for message in cell):
        cell = message_text(cell[-1])
    return read_text(row_id, "answer", cell)


def read_category(cell: object) -> str | None:
    """Read a category: a text, a number, or a list of them. Anything else gives None: a bad label costs no row.

    >>> read_category("math"), read_category(["math", "geometry"]), read_category({"a": 1}), read_category(float("nan"))
    ('math', 'math, geometry', None, None)
    """
    labels = cell if isinstance(cell, list | tuple) else [cell]
    if not all(isinstance(label, str | int | float) and not is_nan(label) for label in labels):
        return None
    return HALF_PAIR.sub("\ufffd", ", ".join(str(label).strip() for label in labels)) or None


def read_boxes(row_id: str, cell: object) -> tuple[tuple[float, float, float, float], ...]:
    """Read boxes (left, top, right, bottom): one, or a list of them, or either as JSON text."""
    try:
        boxes = json.loads(cell.strip() or "null") if isinstance(cell, str) else cell
        boxes = () if boxes is None else boxes
        if not isinstance(boxes, list | tuple):
            raise TypeError("not a list")
        boxes = [boxes] if len(boxes) == 4 and all(isinstance(value, int | float) for value in boxes) else boxes
        numbers = [tuple(float(value) for value in box) for box in boxes]
        if not all(len(box) == 4 and all(map(math.isfinite, box)) for box in numbers):
            raise ValueError("not four finite numbers")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # 400 digits do not fit into a float
        shown_cell = shown(cell, _MAX_SHOWN)
        raise RowError(
            row_id, f"its boxes are {shown_cell}, not lists of four numbers.", reason="malformed_row"
        ) from error
    return tuple((left, top, right, bottom) for left, top, right, bottom in numbers)


@dataclass(frozen=True)
class ImageFolder:
    """The folder that image paths in a table start from and may not leave: a stranger may have written the table.

    By default it is the folder of the table, and a link in it may not leave it either, because links come with
    downloaded data. A folder that the user names is trusted with its links.
    """

    path: Path
    is_named: bool = False
    is_open: bool = False
    """Whether paths may leave it: rows that the user's own code passes may name any file."""

    def find(self, row_id: str, name: str) -> Path:
        """Return the path of a file in the folder. Raise a RowError if it is elsewhere or does not exist."""
        path = self.path / name
        try:
            # "link/../a.png" is checked and opened without the link, where links are trusted.
            path = Path(os.path.normpath(path)) if self.is_named else path
            is_inside = self._contains(path)
            is_file = is_inside and path.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # too long, a null character, links in a circle
            problem = error.strerror if isinstance(error, OSError) else error
            raise RowError(
                row_id, f"{shown(name)} is not the path of a file: {problem}.", reason="malformed_row"
            ) from error
        if not is_inside:
            raise RowError(
                row_id,
                f"its image {shown(str(path), _MAX_SHOWN)} is outside the data folder {str(self.path)!r}. Set "
                "data.images to the folder of the images; it may be the data folder itself, if a link in it leads "
                "elsewhere and you trust that.",
                reason="outside_folder",
                file=str(path),
            )
        if not is_file:
            several = ' For several images, write a list: ["a.png", "b.png"].' if _SEVERAL.search(name) else ""
            raise RowError(row_id, f"there is no file {str(path)!r}.{several}", reason="missing_file", file=str(path))
        return path

    def _contains(self, path: Path) -> bool:
        if self.is_open:
            return True
        if self.is_named:
            return path.is_relative_to(os.path.normpath(self.path)) or (
                path.is_absolute() and path.is_relative_to(self.path.resolve())
            )
        return path.resolve().is_relative_to(self.path.resolve())


def read_image(row_id: str, cell: object, folder: ImageFolder) -> Image.Image | Path:
    """Return an image as a path that exists, or as an opened image that is not decoded yet."""
    if isinstance(cell, Image.Image):
        return cell
    name = ""
    if isinstance(cell, dict):  # as `datasets` stores images
        address, path = cell.get("url"), cell.get("path")
        cell, name = (cell["bytes"], str(path or "")) if cell.get("bytes") else (path or address, "")
    if isinstance(cell, os.PathLike):
        cell = os.fspath(cell)
    elif isinstance(cell, str) and is_base64(cell):
        cell = decode_base64(row_id, cell)
    if isinstance(cell, bytes):
        return _open(row_id, cell, name)
    if not isinstance(cell, str) or not cell:
        message = f"an image is {type(cell).__name__}. Give a path, a PIL image, the bytes of a file, or base64."
        raise RowError(row_id, message, reason="malformed_row")
    cell = cell.removeprefix("file://")
    if _ADDRESS.match(cell):
        place = cell if len(cell) <= _MAX_SHOWN else cell[:_MAX_SHOWN] + "..."
        message = f"its image is at {place}. Nothing is downloaded: save it to disk and give its path."
        raise RowError(row_id, message, reason="missing_file", file=place)
    return folder.find(row_id, cell)


def _open(row_id: str, content: bytes, name: str) -> Image.Image:
    try:
        image = open_image(io.BytesIO(content))
    except Exception as error:  # decoders raise all kinds of errors on broken bytes
        message = f"its image {name or 'in the table'} cannot be read: {_OBJECT.sub('', str(error)).strip()}."
        raise RowError(row_id, message, reason="broken_image", file=name or None) from error
    # The name in messages (`views.original`). Not in `info`, where a name marks an image as decoded.
    image.filename = name or f"image of {row_id}"
    return image
