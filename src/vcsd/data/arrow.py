"""Parquet files and Hugging Face `datasets`, read in parts as Arrow tables.

Images stay undecoded bytes until a view shows them. Requires the extra `data`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vcsd.data.content import cells_hash, file_hash
from vcsd.data.skips import RowError
from vcsd.data.table import image_cells, row_name
from vcsd.errors import ConfigError, did_you_mean, install_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike
    from types import ModuleType

CACHE_BYTES = 2**28
"""Limit on the row groups kept in memory, because rows are read in shuffled order. The last one read always stays."""

_BATCH = 1024


class ArrowScalar(Protocol):
    """The part of `pyarrow.Scalar` used here."""

    def as_py(self) -> object: ...  # noqa: D102


class ArrowArray(Protocol):
    """The part of `pyarrow.Array` used here."""

    type: object

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> ArrowScalar: ...
    def to_pylist(self) -> list[object]: ...  # noqa: D102


class ArrowTable(Protocol):
    """The part of `pyarrow.Table` and `pyarrow.RecordBatch` used here."""

    nbytes: int

    def column(self, index: int, /) -> ArrowArray: ...  # noqa: D102
    def slice(self, offset: int, length: int) -> ArrowTable: ...  # noqa: D102
    def to_pylist(self) -> list[dict[str, object]]: ...  # noqa: D102


class HubDataset(Protocol):
    """The part of `datasets.Dataset` used here."""

    column_names: Sequence[str]

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> ArrowTable: ...
    def with_format(self, name: str, /) -> HubDataset: ...  # noqa: D102
    def select_columns(self, names: list[str], /) -> HubDataset: ...  # noqa: D102
    def iter(self, *, batch_size: int) -> Iterator[ArrowTable]: ...  # noqa: D102


def need(package: str) -> ModuleType:
    """Import a package of the extra `data`, or raise a ConfigError that says how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError([f"this format needs {package}: {error}. Install it: {install_command('data')}."]) from error


class _ArrowColumns(ABC):
    """Columns that are read in batches."""

    @abstractmethod
    def _batches(self, column: str) -> Iterator[ArrowArray]:
        """Yield the Arrow arrays that make up a column."""

    def values(self, column: str) -> Iterator[object]:
        """Yield the cells of one column without reading the others; None for a text that is not UTF-8."""
        for array in self._batches(column):
            yield from _cells(array)

    def num_images(self, column: str) -> Iterator[int]:
        """Yield the number of images in each row."""
        for array in self._batches(column):
            yield from _num_images(array)


class ParquetTable(_ArrowColumns):
    """A Parquet file. Reading a row reads its whole row group, unless that is cached."""

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
        self._cache: OrderedDict[int, ArrowTable] = OrderedDict()
        if not len(self):
            raise ConfigError([f"{self.path} has no rows."])

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def row(self, index: int) -> dict[str, object]:
        """Return the cells of one row."""
        group = bisect_right(self._ends, index)
        start = self._ends[group - 1] if group else 0
        try:
            return self._group(group).slice(index - start, 1).to_pylist()[0]
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the machine's fault, not the file's
                raise
            problem = f"its row group cannot be read: {_sentence(error)}. Download the file again."
            raise RowError(row_name(self, index), problem, reason="malformed_row", file=self.name) from error

    def content_hash(self) -> str:
        """Return a hash of the file."""
        return file_hash(self.path)

    def _batches(self, column: str) -> Iterator[ArrowArray]:
        try:
            for batch in self._file.iter_batches(batch_size=_BATCH, columns=[column]):
                yield batch.column(0)
        except (OSError, ValueError) as error:
            raise ConfigError([f"{self.path} is damaged: {_sentence(error)}. Download it again."]) from error

    def _group(self, group: int) -> ArrowTable:
        if group not in self._cache:
            self._cache[group] = self._file.read_row_group(group)
            while len(self._cache) > 1 and sum(table.nbytes for table in self._cache.values()) > CACHE_BYTES:
                self._cache.popitem(last=False)
        self._cache.move_to_end(group)
        return self._cache[group]


class DatasetTable(_ArrowColumns):
    """A dataset of Hugging Face `datasets`, mapped from disk. Its own format and image decoding are bypassed."""

    kind = "Hugging Face dataset"

    def __init__(self, dataset: HubDataset, *, name: str, folder: Path) -> None:
        self.name, self.stem, self.folder = name, name.rstrip("/").rpartition("/")[2], folder
        # In Arrow format, images come as stored: bytes and a path, not decoded.
        self._dataset = dataset.with_format("arrow")
        self.columns = tuple(str(column) for column in dataset.column_names)
        if not len(dataset):
            raise ConfigError([f"{name} has no rows."])

    def __len__(self) -> int:
        return len(self._dataset)

    def row(self, index: int) -> dict[str, object]:
        """Return the cells of one row."""
        try:
            return self._dataset[index].to_pylist()[0]
        except UnicodeDecodeError as error:
            problem = f"it has a text that is not UTF-8: {error.reason} at byte {error.start}."
            raise RowError(row_name(self, index), problem, reason="malformed_row") from error

    def content_hash(self) -> str:
        """Return a hash of the cells: how the dataset is divided into files depends on who saved it."""
        return cells_hash(cell for column in self.columns for cell in chain([column], self.values(column)))

    def _batches(self, column: str) -> Iterator[ArrowArray]:
        batches = self._dataset.select_columns([column]).iter(batch_size=_BATCH)
        return (batch.column(0) for batch in batches)


def _sentence(error: Exception) -> str:
    """Return the message of an Arrow error, which may have several lines, on one line."""
    return " ".join(str(error).split()).rstrip(".")


def _cells(array: ArrowArray) -> list[object]:
    """Return all cells, with None for a text that is not UTF-8: Parquet does not check."""
    try:
        return array.to_pylist()
    except UnicodeDecodeError:
        return [_cell(array, index) for index in range(len(array))]


def _cell(array: ArrowArray, index: int) -> object:
    try:
        return array[index].as_py()
    except UnicodeDecodeError:
        return None


def _num_images(array: ArrowArray) -> list[int]:
    """Count the images in each cell. Bytes are not copied."""
    types, compute = need("pyarrow.types"), need("pyarrow.compute")
    if types.is_list(array.type) or types.is_large_list(array.type) or types.is_fixed_size_list(array.type):
        return [length or 0 for length in compute.list_value_length(array).to_pylist()]
    if types.is_string(array.type) or types.is_large_string(array.type):
        return [len(image_cells(cell)) for cell in _cells(array)]
    return [int(is_image) for is_image in compute.is_valid(array).to_pylist()]


def saved_dataset(folder: Path, *, split: str | None) -> DatasetTable:
    """Open a dataset written by `save_to_disk`."""
    datasets = need("datasets")
    return _choose_split(datasets.load_from_disk(str(folder)), name=str(folder), folder=folder, split=split)


def hub_dataset(name: str, *, split: str | None) -> DatasetTable:
    """Load a dataset from the hub, downloaded once into the hub's cache. No code from the hub runs."""
    datasets = need("datasets")
    try:
        dataset = datasets.load_dataset(name)
    except Exception as error:  # the hub, its client and the builders fail in many ways; the user needs the reason
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(
            [f"data {name!r} is not a file or folder, and loading it from the hub failed: {reason}"]
        ) from error
    # Where a dataset names its images by path, they are in the hub's cache.
    return _choose_split(dataset, name=name, folder=Path(str(datasets.config.HF_CACHE_HOME)), split=split)


def _choose_split(
    dataset: HubDataset | Mapping[str, HubDataset], *, name: str, folder: Path, split: str | None
) -> DatasetTable:
    """Choose a split: the one asked for, the only one, or 'train'."""
    if not isinstance(dataset, Mapping):
        if split is not None:
            raise ConfigError([f"{name} has a single split, but data.split = {split!r}. Leave it out."])
        return DatasetTable(dataset, name=name, folder=folder)
    names = [str(key) for key in dataset]
    chosen = split or (names[0] if len(names) == 1 else "train")
    if chosen not in names:
        raise ConfigError([f"{name} has no split {chosen!r}. {did_you_mean(chosen, names)}"])
    return DatasetTable(dataset[chosen], name=f"{name} ({chosen})", folder=folder)
