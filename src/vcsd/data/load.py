"""Open a path or a hub id as examples: detect the format, and log what the data contains."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.data.arrow import ParquetTable, hub_dataset, saved_dataset
from vcsd.data.csv_file import CsvTable
from vcsd.data.formats import virl39k
from vcsd.data.formats.rows import JsonTable
from vcsd.data.formats.vlmevalkit_tsv import COLUMNS as VLMEVALKIT_COLUMNS
from vcsd.data.formats.vlmevalkit_tsv import VlmevalkitTable, is_vlmevalkit
from vcsd.data.jsonl import JsonlTable
from vcsd.data.source import Source
from vcsd.errors import ConfigError, did_you_mean, nearest_path, similar_path

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
    ".json": JsonTable,
}
"""File extension -> the table class that reads it."""

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
    """Open a file, a folder or a hub dataset as examples. Only an index is read into memory.

    `images` is the folder that relative image paths start from and that no path may leave (default: the file's folder).
    `split` selects a split or, in a folder of files, a file by its name. `columns` maps fields to columns, such as
    {"prompt": "problem", "id": None}. `multi_image` and `text_only` are "keep" or "drop", for rows with several images
    and without an image. By default ViRL39K drops both, as the authors' run does, and all other data keeps both.
    """
    folder = None if images is None else Path(images)
    if folder is not None and not folder.is_dir():
        raise ConfigError(
            [f"data.images = {str(images)!r} is not a folder. Name the folder that the paths of images start from."]
        )
    try:
        table = _open(str(path), split=split, images=folder)
    except OSError as error:
        raise ConfigError([f"data.path = {str(path)!r} cannot be read: {error}."]) from error
    chosen = dict(columns or {})
    default = "keep"
    if isinstance(table, virl39k.ViRL39K):
        chosen, default = {**virl39k.COLUMNS, **chosen}, "drop"
    elif isinstance(table, VlmevalkitTable):
        present = {field: column for field, column in VLMEVALKIT_COLUMNS.items() if column in table.columns}
        chosen = {**present, **chosen}
    source = Source(
        table,
        images=folder,
        columns=chosen,
        multi_image=default if multi_image is None else multi_image,
        text_only=default if text_only is None else text_only,
        instruction=instruction,
    )
    log.info("%s", source.report())
    return source


def _open(name: str, *, split: str | None, images: Path | None) -> Table:
    path = Path(name)
    if path.is_dir():
        return _open_folder(path, split=split, images=images)
    if path.is_file():
        if split is not None:
            raise ConfigError([f"{name} is a single file, but data.split = {split!r}. Leave it out."])
        return _open_file(path, images=images)
    if _HUB_ID.fullmatch(name) and path.suffix.lower() not in FORMATS and not path.parent.is_dir():
        if (similar := similar_path(name, wants_file=True)) is None:
            return hub_dataset(name, split=split)
        raise ConfigError(
            [
                f"there is no data at {name!r}, but there is {similar!r}, so the hub was not asked. If you mean a "
                f"dataset on the hub: hf download {name} --repo-type dataset --local-dir {name}"
            ]
        )
    hint = nearest_path(name, wants_file=True)
    raise ConfigError([f"there is no data at {name!r}. Give a file, a folder, or the id of a hub dataset.{hint}"])


_FIXES = {
    **dict.fromkeys((".gz", ".zip", ".tar", ".tgz", ".xz", ".bz2", ".zst", ".7z"), " Unpack it first."),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), " Save it as CSV."),
}
"""Advice for endings of files that hold data in another form."""


def _open_file(path: Path, *, images: Path | None) -> Table:
    if path.name == virl39k.FILE:
        return virl39k.ViRL39K(path, images=images)
    if path.suffix.lower() not in FORMATS:
        fix = _FIXES.get(path.suffix.lower(), "")
        raise ConfigError(
            [f"{path}: {path.suffix or 'no ending'} is not a format. Allowed: {', '.join(FORMATS)}.{fix}"]
        )
    table = FORMATS[path.suffix.lower()](path)
    return VlmevalkitTable(path) if isinstance(table, CsvTable) and is_vlmevalkit(table.columns) else table


def _open_folder(folder: Path, *, split: str | None, images: Path | None) -> Table:
    """Open ViRL39K, a saved dataset, or the folder's only file of a known format."""
    if (folder / virl39k.FILE).is_file() and split in (None, Path(virl39k.FILE).stem):
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
        raise ConfigError([f"{folder} holds several tables: {names}. Pass the path of one, or its name as data.split."])
    raise ConfigError([f"{folder} holds no data. It needs a file that ends in one of {', '.join(FORMATS)}."])
