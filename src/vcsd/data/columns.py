"""Which column of a table holds which field of an Example, and how its cells are read."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image

from vcsd.data.skips import RowError
from vcsd.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": ("id",),
    "prompt": ("prompt", "question"),
    "images": ("images", "image"),
    "answer": ("answer",),
    "boxes": ("boxes",),
    "demonstration": ("demonstration",),
    "feedback": ("feedback",),
}
"""Field -> the columns that may hold it. Where a table has several, a row's first that is not empty counts."""

REQUIRED = ("prompt", "images")


@dataclass(frozen=True)
class Columns:
    """The columns of each field of an Example; none for a field that the table does not have.

    >>> columns = Columns.find("a.csv", ["question", "image", "images"])
    >>> columns.of("prompt"), columns.of("answer")
    (('question',), ())
    >>> columns.cell({"question": "How many?", "image": "a.png", "images": None}, "images")
    'a.png'
    """

    by_field: Mapping[str, tuple[str, ...]]

    @classmethod
    def find(cls, name: str, present: Iterable[str], chosen: Mapping[str, str | None] | None = None) -> Columns:
        """Look for the usual names; `chosen` names another column for a field, or None to leave it unused."""
        present, chosen = list(present), dict(chosen or {})
        problems = [
            f"data.columns.{field} is not a field. {did_you_mean(field, FIELDS)}"
            for field in chosen
            if field not in FIELDS
        ]
        found: dict[str, tuple[str, ...]] = {}
        for field, usual in FIELDS.items():
            found[field] = tuple(column for column in usual if column in present)
            if field in chosen:
                column = chosen[field]
                found[field] = () if column is None else (column,)
                if column is not None and column not in present:
                    problems.append(
                        f"data.columns.{field} = {column!r} is no column of {name}. {_nearest(column, present)}"
                    )
            if not found[field] and (field == "prompt" or (field in REQUIRED and field not in chosen)):
                problems.append(_missing(name, field, present))
        if problems:
            raise ConfigError(problems)
        return cls(found)

    def of(self, field: str) -> tuple[str, ...]:
        """The columns that may hold a field."""
        return self.by_field[field]

    def cell(self, row: Mapping[str, Any], field: str) -> Any:
        """What a row has for a field: its first cell that is not empty."""
        cells = (row.get(column) for column in self.of(field))
        return next((cell for cell in cells if not _is_empty(cell)), None)

    def report(self) -> str:
        """Which field comes from where, in words."""
        return ", ".join(
            field if columns == (field,) else f"{field} from {' or '.join(map(repr, columns))}"
            for field, columns in self.by_field.items()
            if columns
        )


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str | list | tuple) and not cell)


def _missing(name: str, field: str, present: list[str]) -> str:
    wanted = " or ".join(repr(column) for column in FIELDS[field])
    without = " For data without images, set data.columns.images to null." if field == "images" else ""
    near = next((n for usual in FIELDS[field] if (n := _nearest(usual, present)).startswith("Did")), None)
    near = near or _nearest(field, present)
    return f"{name} has no column {wanted}. {near} Set data.columns.{field} to use another one.{without}"


def _nearest(word: object, present: list[str]) -> str:
    return did_you_mean(word, present).replace("Allowed:", "It has:")


def read_text(row_id: str, field: str, cell: Any) -> str | None:
    """A text or a number as text; None for an empty cell."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        raise RowError(row_id, f"its {field} is {cell!r}, not a text.", reason="malformed_row")
    return str(cell)


def read_boxes(row_id: str, cell: Any) -> tuple[tuple[float, float, float, float], ...]:
    """Boxes (left, top, right, bottom): one, or a list of them, or either as JSON text."""
    try:
        boxes = json.loads(cell) if isinstance(cell, str) and cell.strip() else cell or ()
        boxes = [boxes] if len(boxes) == 4 and all(isinstance(value, int | float) for value in boxes) else boxes
        numbers = [tuple(float(value) for value in box) for box in boxes]
    except (TypeError, ValueError) as error:
        raise RowError(row_id, f"its boxes are {cell!r}, not lists of four numbers.", reason="malformed_row") from error
    if not all(len(box) == 4 and all(map(math.isfinite, box)) for box in numbers):
        raise RowError(row_id, f"its boxes are {cell!r}, not lists of four numbers.", reason="malformed_row")
    return tuple((left, top, right, bottom) for left, top, right, bottom in numbers)


def read_image(row_id: str, cell: Any, folder: Path) -> Image.Image | Path:
    """An image as a path that exists, or as an image that is opened but not decoded yet."""
    if isinstance(cell, Image.Image):
        return cell
    if isinstance(cell, dict):  # as `datasets` stores images
        cell, name = (cell["bytes"], str(cell.get("path") or "")) if cell.get("bytes") else (cell.get("path"), "")
    else:
        name = ""
    if isinstance(cell, bytes):
        return _open(row_id, cell, name)
    if not isinstance(cell, str) or not cell:
        raise RowError(row_id, f"an image is {type(cell).__name__}, not a path or bytes.", reason="malformed_row")
    if cell.startswith(("http://", "https://")):
        raise RowError(
            row_id, f"its image is at {cell}. Nothing is downloaded; save it first.", reason="missing_file", file=cell
        )
    path = folder / cell
    if not path.is_file():
        raise RowError(row_id, f"there is no file {str(path)!r}.", reason="missing_file", file=str(path))
    return path


def _open(row_id: str, content: bytes, name: str) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(content))
    except Exception as error:  # on broken bytes, decoders fail in whatever way the bytes lead them to
        message = f"its image {name or 'in the table'} cannot be read: {error}."
        raise RowError(row_id, message, reason="broken_image", file=name or None) from error
    # What `views.original` calls the image in messages. Not its `info`: a mark there says that it is decoded.
    image.filename = name or f"image of {row_id}"
    return image
