"""Small copies of sampled images in a run's folder, so that its report needs no data files and no network.

A file is named by a hash of its content, so an image that is sampled twice, or again by a resumed run, is stored once.
"""

from __future__ import annotations

import logging
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import DataError, RunError
from vcsd.views.image_hash import image_hash
from vcsd.views.original import load_image

if TYPE_CHECKING:
    from os import PathLike

    from PIL.Image import Image

    from vcsd.types import Example

log = logging.getLogger(__name__)

FOLDER = "thumbnails"
SIDE = 192
"""Pixels of the longer side."""

MOST_PER_SAMPLE = 4
MOST_FILES = 1000
"""Files of a run; about 5 MB. Later samples name their images but have no thumbnail."""


class Thumbnails:
    """Writes thumbnails into a run's folder, up to a limit."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._folder = Path(folder) / FOLDER
        self._is_full = False

    def add(self, example: Example) -> list[str]:
        """Store the images of an example; return their paths in the run's folder. An unreadable image is left out."""
        paths = [self._stored(example.id, image) for image in example.images[:MOST_PER_SAMPLE]]
        return [path for path in paths if path is not None]

    def _stored(self, example_id: str, image: Image | str | PathLike[str]) -> str | None:
        try:
            content = thumbnail(load_image(example_id, image))
        except DataError as error:  # readable when it was trained on
            log.warning("No thumbnail: %s", error)
            return None
        path = self._folder / f"{image_hash(content)}.jpg"
        try:
            if not path.exists():
                if self._has_no_room():
                    return None
                self._folder.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(path.name + ".partial")
                partial.write_bytes(content)
                partial.replace(path)
        except OSError as error:
            advice = "Fix that; the same command resumes from what was saved."
            raise RunError(f"{path} cannot be written: {error}. {advice}") from error
        return f"{FOLDER}/{path.name}"

    def _has_no_room(self) -> bool:
        if not self._is_full and self._folder.is_dir():
            self._is_full = sum(1 for _ in self._folder.iterdir()) >= MOST_FILES
            if self._is_full:
                log.info("%s holds %d thumbnails: no more are written.", self._folder, MOST_FILES)
        return self._is_full


def thumbnail(image: Image) -> bytes:
    """Return a small JPEG of an image, without metadata."""
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    buffer = BytesIO()
    small.save(buffer, format="jpeg", quality=85, subsampling=0)
    return buffer.getvalue()
