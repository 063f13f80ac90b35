"""ViRL39K (TIGER-Lab/ViRL39K): `39Krelease.parquet` and the folder `images/` that `images.zip` holds.

38,870 rows: `question` with literal `<image>` marks, `answer` in a box, `qid`, and `image`, a list of paths such as
`images/<qid>-0.jpg`. 36,039 rows have one image, 2,288 several, 543 none. The authors train on the rows with one image.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.data.arrow import ParquetTable
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from os import PathLike

FILE = "39Krelease.parquet"
COLUMNS = {"id": "qid", "prompt": "question", "images": "image", "answer": "answer"}


class ViRL39K(ParquetTable):
    """The table of ViRL39K, with its image folder beside it."""

    kind = "ViRL39K"

    def __init__(self, path: str | PathLike[str], *, images: Path | None = None) -> None:
        path = Path(path)
        super().__init__(path / FILE if path.is_dir() else path)
        folder = self.folder if images is None else images
        if not (folder / "images").is_dir():
            raise ConfigError([f"{folder} has no folder 'images'. Unzip images.zip beside {FILE}, or set data.images."])
