"""Parquet files by row group, and Hugging Face `datasets`: both are Arrow tables, read a part at a time.

Images stay undecoded bytes until a view shows them. Needs the extra: pip install 'vcsd[data]'.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

CACHE_BYTES = 2**28
"""Row groups kept in memory, at most, but always the last one read: rows are asked for in shuffled order."""

_BATCH = 1024


def need(package: str) -> Any:
    """Import a package of the extra `data`, or say how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError([f"this format needs {package}: {error}. Install it: pip install 'vcsd[data]'."]) from error


class _ArrowColumns(ABC):
    """A column read in batches, whatever holds it."""

    @abstractmethod
    def _batches(self, column: str) -> Iterator[Any]:
        """Arrow arrays that make up the column."""

    def values(self, column: str) -> Iterator[Any]:
        """One column, without reading the others."""
        for array in self._batches(column):
            yield from array.to_pylist()

    def num_images(self, column: str) -> Iterator[int]:
        """How many images each row has."""
        for array in self._batches(column):
            yield from _num_images(array)


class ParquetTable(_ArrowColumns):
    """A Parquet file. A row costs the reading of its row group, unless that was read lately."""

    kind = "Parquet"

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.name, self.stem, self.folder = str(path), self.path.stem, self.path.parent
        parquet = need("pyarrow.parquet")
        try:
            self._file = parquet.ParquetFile(self.path)
        except (OSError, ValueError) as error:
            raise ConfigError([f"{self.path} is not a Parquet file: {error}. Download it again."]) from error
        self.columns = tuple(str(name) for name in self._file.schema_arrow.names)
        sizes = (self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups))
        self._ends = list(accumulate(sizes))
        self._cache: OrderedDict[int, Any] = OrderedDict()
        if not len(self):
            raise ConfigError([f"{self.path} has no rows."])

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def row(self, index: int) -> dict[str, Any]:
        """The cells of one row."""
        group = bisect_right(self._ends, index)
        start = self._ends[group - 1] if group else 0
        row: dict[str, Any] = self._group(group).slice(index - start, 1).to_pylist()[0]
        return row

    def _batches(self, column: str) -> Iterator[Any]:
        return (batch.column(0) for batch in self._file.iter_batches(batch_size=_BATCH, columns=[column]))

    def _group(self, group: int) -> Any:
        if group not in self._cache:
            self._cache[group] = self._file.read_row_group(group)
            while len(self._cache) > 1 and sum(table.nbytes for table in self._cache.values()) > CACHE_BYTES:
                self._cache.popitem(last=False)
        self._cache.move_to_end(group)
        return self._cache[group]


class DatasetTable(_ArrowColumns):
    """A dataset of Hugging Face `datasets`, mapped from disk; its format and decoding are left aside."""

    kind = "Hugging Face dataset"

    def __init__(self, dataset: Any, *, name: str, folder: Path) -> None:
        self.name, self.stem, self.folder = name, name.rstrip("/").rpartition("/")[2], folder
        # As Arrow, images come as they are stored: bytes and a path, not decoded by a library of its choice.
        self._dataset = dataset.with_format("arrow")
        self.columns = tuple(str(column) for column in dataset.column_names)
        if not len(dataset):
            raise ConfigError([f"{name} has no rows."])

    def __len__(self) -> int:
        return len(self._dataset)

    def row(self, index: int) -> dict[str, Any]:
        """The cells of one row."""
        row: dict[str, Any] = self._dataset[index].to_pylist()[0]
        return row

    def _batches(self, column: str) -> Iterator[Any]:
        batches = self._dataset.select_columns([column]).iter(batch_size=_BATCH)
        return (batch.column(0) for batch in batches)


def _num_images(array: Any) -> list[int]:
    """The number of images in each cell, without a copy of their bytes."""
    types, compute = need("pyarrow.types"), need("pyarrow.compute")
    if types.is_list(array.type) or types.is_large_list(array.type) or types.is_fixed_size_list(array.type):
        return [length or 0 for length in compute.list_value_length(array).to_pylist()]
    has_image = compute.is_valid(array)
    if types.is_string(array.type) or types.is_large_string(array.type):
        has_image = compute.fill_null(compute.not_equal(array, ""), False)
    return [int(found) for found in has_image.to_pylist()]


def saved_dataset(folder: Path, *, split: str | None) -> DatasetTable:
    """A dataset written by `save_to_disk`."""
    datasets = need("datasets")
    return _choose_split(datasets.load_from_disk(str(folder)), name=str(folder), folder=folder, split=split)


def hub_dataset(name: str, *, split: str | None) -> DatasetTable:
    """A dataset of the hub, downloaded once into the hub's cache. No code from the hub is run."""
    datasets = need("datasets")
    try:
        found = datasets.load_dataset(name)
    except Exception as error:  # the hub, its client and the builders fail in many ways; the user needs the reason
        raise ConfigError(
            [f"data {name!r} is no file or folder, and cannot be loaded from the hub: {type(error).__name__}: {error}"]
        ) from error
    return _choose_split(found, name=name, folder=Path(), split=split)


def _choose_split(found: Any, *, name: str, folder: Path, split: str | None) -> DatasetTable:
    """One of the splits: the one asked for, the only one, or 'train'."""
    if not hasattr(found, "keys"):
        if split is not None:
            raise ConfigError([f"{name} is a single split, but data.split = {split!r} was asked for. Leave it out."])
        return DatasetTable(found, name=name, folder=folder)
    names = [str(key) for key in found]
    chosen = split or (names[0] if len(names) == 1 else "train")
    if chosen not in names:
        raise ConfigError([f"{name} has no split {chosen!r}. {did_you_mean(chosen, names)}"])
    return DatasetTable(found[chosen], name=f"{name} ({chosen})", folder=folder)
