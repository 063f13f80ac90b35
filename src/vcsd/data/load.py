"""From a path to examples: look at what is there, open it as what it is, and say what was found."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.data import virl39k
from vcsd.data.arrow import ParquetTable, hub_dataset, saved_dataset
from vcsd.data.csv_file import CsvTable
from vcsd.data.jsonl import JsonlTable
from vcsd.data.source import Source
from vcsd.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from vcsd.data.table import Table

log = logging.getLogger(__name__)

FORMATS: Mapping[str, Callable[[Path], Table]] = {
    ".jsonl": JsonlTable,
    ".ndjson": JsonlTable,
    ".csv": CsvTable,
    ".tsv": CsvTable,
    ".parquet": ParquetTable,
}
"""The end of a file's name -> the table it is opened as."""

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def load_examples(
    path: str | PathLike[str],
    *,
    images: str | PathLike[str] | None = None,
    split: str | None = None,
    columns: Mapping[str, str | None] | None = None,
    multi_image: str | None = None,
    text_only: str | None = None,
    instruction: str | None = None,
) -> Source:
    """Open a file, a folder or a dataset of the hub as examples; nothing but an index is read into memory.

    `images` is where relative image paths start (default: beside the file); `split` chooses among splits or, in a
    folder of files, by name; `columns` names the column of a field, such as {"prompt": "problem", "id": None}.
    `multi_image` and `text_only` are "keep" or "drop" for rows with several images and with none; left out, ViRL39K
    drops both, as the authors' run does, and all other data keeps both.
    """
    folder = None if images is None else Path(images)
    if folder is not None and not folder.is_dir():
        raise ConfigError([f"data.images = {str(images)!r} is not a folder."])
    table = _open(str(path), split=split, images=folder)
    chosen = dict(columns or {})
    settings: dict[str, Any] = {"columns": chosen}
    if isinstance(table, virl39k.ViRL39K):
        settings = virl39k.settings(chosen)
    switches = {"multi_image": multi_image, "text_only": text_only}
    settings |= {name: value for name, value in switches.items() if value is not None}
    source = Source(table, images=folder, instruction=instruction, **settings)
    log.info("%s", source.report())
    return source


def _open(name: str, *, split: str | None, images: Path | None) -> Table:
    path = Path(name)
    if path.is_dir():
        return _open_folder(path, split=split, images=images)
    if path.is_file():
        if split is not None:
            raise ConfigError([f"{name} is one file, but data.split = {split!r} was asked for. Leave it out."])
        return _open_file(path, images=images)
    if _HUB_ID.fullmatch(name) and path.suffix.lower() not in FORMATS and not path.parent.is_dir():
        return hub_dataset(name, split=split)
    raise ConfigError([f"there is no data at {name!r}. Give a file, a folder, or the id of a dataset on the hub."])


def _open_file(path: Path, *, images: Path | None) -> Table:
    if path.name == virl39k.FILE:
        return virl39k.ViRL39K(path, images=images)
    if path.suffix.lower() not in FORMATS:
        if path.suffix.lower() == ".json":
            raise ConfigError([f"{path} is JSON, which cannot be read row by row. Write one object per line: .jsonl."])
        raise ConfigError([f"{path}: {path.suffix or 'no ending'} is not a format. Allowed: {', '.join(FORMATS)}."])
    return FORMATS[path.suffix.lower()](path)


def _open_folder(folder: Path, *, split: str | None, images: Path | None) -> Table:
    """ViRL39K, a saved dataset, or the one file of a known format that the folder holds."""
    if (folder / virl39k.FILE).is_file():
        return virl39k.ViRL39K(folder, images=images)
    if any((folder / name).is_file() for name in ("dataset_dict.json", "dataset_info.json")):
        return saved_dataset(folder, split=split)
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in FORMATS and path.is_file())
    chosen = [path for path in files if split is None or path.stem == split]
    if len(chosen) == 1:
        return _open_file(chosen[0], images=images)
    if files and split is not None:
        advice = did_you_mean(split, [path.stem for path in files])
        raise ConfigError([f"{folder} has {len(chosen)} files for split {split!r}. {advice}"])
    if files:
        names = ", ".join(path.name for path in files)
        raise ConfigError([f"{folder} holds several tables: {names}. Give one of them, or its name as data.split."])
    raise ConfigError([f"{folder} holds no data. Put a file there that ends in one of {', '.join(FORMATS)}."])
