"""Hashes of the data's content, so that a run does not resume with other rows.

file_hash       the bytes of a table's file
cells_hash      the cells of columns, where a table is more than one file
examples_hash   all examples of a list, or a sample of examples that are built on access
images_hash     the files of a sample of images

In the first three, an image that is given by its path counts as that path: reading every image would take longer than
loading the model.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.errors import ConfigError, DataError
from vcsd.views.image_hash import image_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vcsd.data.stream import ExampleSource
    from vcsd.types import Example

NUM_SAMPLED = 64
"""How many examples are sampled, where data is not a list or image files are hashed: each may have to be downloaded or
drawn."""


def file_hash(path: Path) -> str:
    """Hash a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error}."]) from error


def cells_hash(cells: Iterable[object]) -> str:
    """Hash cells: texts, numbers, bytes, and lists and dictionaries of them.

    >>> cells_hash(["a", "b"]) == cells_hash(["ab"]), cells_hash([["a"], "b"]) == cells_hash(["a", ["b"]])
    (False, False)
    """
    digest = hashlib.blake2b(digest_size=16)
    for cell in cells:
        for part in _parts(cell):
            digest.update(part)
    return digest.hexdigest()


def examples_hash(rows: ExampleSource) -> str:
    """Hash the ids and the content of examples."""
    count = len(rows)
    step = 1 if isinstance(rows, list | tuple) else max(1, count // NUM_SAMPLED)
    return cells_hash(_example_cells(rows, row) for row in range(0, count, step))


def images_hash(rows: ExampleSource) -> str | None:
    """Hash the image files of a sample of examples, evenly spread; None if no image is named by its path.

    Another folder of images changes it, and so does converting or resizing all images. A change in an image outside the
    sample does not.
    """
    step = max(1, len(rows) // NUM_SAMPLED)
    files = [file for row in range(0, len(rows), step) for file in _image_files(rows, row)]
    return cells_hash(files) if files else None


def _image_files(rows: ExampleSource, row: int) -> list[str]:
    try:
        images = rows[row].images
    except DataError:
        return []
    paths = [Path(image) for image in images if isinstance(image, str | PathLike)]
    return [file_hash(path) if path.is_file() else "missing" for path in paths]


def _example_cells(rows: ExampleSource, row: int) -> object:
    try:
        example = rows[row]
    except DataError as error:  # it will be skipped for the same reason in every run
        return error.example_id
    # A category changes nothing in a run.
    cells = {field.name: _field(example, field.name) for field in fields(example) if field.name != "category"}
    if not cells["control_images"]:  # a later addition: examples without it keep their hash
        del cells["control_images"]
    return cells


def _field(example: Example, name: str) -> object:
    if name in ("images", "control_images"):
        images = example.images if name == "images" else example.control_images
        return [image_hash(image) if isinstance(image, Image) else str(image) for image in images]
    if name == "prompt":
        return json.dumps(example.prompt, sort_keys=True, default=str)
    return getattr(example, name)


def _parts(cell: object) -> Iterator[bytes]:
    """Yield the bytes of a cell, each with its kind and length in front, so that no two cells look the same."""
    if isinstance(cell, dict):
        yield b"dict %d " % len(cell)
        for key, value in cell.items():
            yield from _parts(key)
            yield from _parts(value)
    elif isinstance(cell, list | tuple):
        yield b"list %d " % len(cell)
        for value in cell:
            yield from _parts(value)
    elif isinstance(cell, Image):
        yield f"image {image_hash(cell)} ".encode()
    elif isinstance(cell, bytes):
        yield b"bytes %d " % len(cell)
        yield cell
    else:
        text = (cell if isinstance(cell, str) else repr(cell)).encode("utf-8", "surrogatepass")
        yield b"%s %d " % (type(cell).__name__.encode(), len(text))
        yield text
