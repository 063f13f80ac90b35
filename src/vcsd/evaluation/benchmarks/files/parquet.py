"""Reads the Parquet files that benchmark authors published: cells at once, images by row group when opened.

Each benchmark defines how its columns map to the cells of VLMEvalKit's files. Needs the extra `eval`.
"""

from __future__ import annotations

import base64
import hashlib
import os
from bisect import bisect_right
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, install_command
from vcsd.evaluation.benchmarks.files.records import Record, RecordTable, StoredImage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vcsd.evaluation.benchmarks.files.records import ParquetRow

    Convert = Callable[[ParquetRow], Mapping[str, str]]

_BATCH = 16
"""Rows whose images are in memory at once during the search for missing images."""


def read_parquet(paths: Sequence[Path], image_columns: Sequence[str], convert: Convert) -> RecordTable:
    """Read the rows of one or several files, one after the other."""
    assert paths, "no file to read"
    rows: list[Record] = []
    columns: tuple[str, ...] = ()
    num_rows, sums = 0, []
    for path in paths:
        with path.open("rb") as stream:
            sums.append(hashlib.file_digest(stream, "md5").hexdigest())
        file = _File(path, sums[-1])
        columns, num_rows = columns or file.columns, num_rows + file.num_rows
        rows += file.rows([name for name in image_columns if name in file.columns], convert)
    md5 = sums[0] if len(sums) == 1 else hashlib.md5(" ".join(sums).encode(), usedforsecurity=False).hexdigest()
    folder = paths[0] if len(paths) == 1 else Path(os.path.commonpath(paths))
    return RecordTable(folder, "Parquet", md5, columns, tuple(rows), num_rows - len(rows))


class _File:
    """One Parquet file. For each image column, the last row group read stays in memory."""

    def __init__(self, path: Path, md5: str) -> None:
        try:
            parquet = import_module("pyarrow.parquet")
        except ImportError as error:
            raise ConfigError([f"{path} needs pyarrow: {error}. Install it: {install_command('eval')}."]) from error
        try:
            self._file: Any = parquet.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise ConfigError([f"{path} is not a Parquet file: {error}. Download it again."]) from error
        self.path, self.md5 = path, md5
        self.columns = tuple(str(name) for name in self._file.schema_arrow.names)
        sizes = (self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups))
        self._ends = list(accumulate(sizes))
        self.num_rows = self._ends[-1] if self._ends else 0
        self._last: dict[str, tuple[int, Any]] = {}
        self._reading = Lock()

    def rows(self, image_columns: Sequence[str], convert: Convert) -> Iterator[Record]:
        """Yield the rows that have an image."""
        if not image_columns:
            raise ConfigError([f"{self.path} has no column of images. Its columns: {', '.join(self.columns)}."])
        others = [name for name in self.columns if name not in image_columns]
        has_image = list(zip(*(self._has_image(name) for name in image_columns), strict=True))
        rows = zip(self._file.read(columns=others).to_pylist(), has_image, strict=True)
        for number, (cells, has_images) in enumerate(rows):
            name = f"{self.path.name}, row {number + 1}"
            try:
                converted = convert(cells)
            except (LookupError, TypeError, ValueError) as error:
                raise ConfigError([
                    f"{name} is not in the published layout ({type(error).__name__}: {error}). Its columns: "
                    f"{', '.join(self.columns)}. Use the TSV instead."
                ]) from error  # fmt: skip
            images = tuple(
                StoredImage(f"{name}, {column}", f"{self.md5}/{number}/{column}", partial(self._fetch, column, number))
                for column, is_there in zip(image_columns, has_images, strict=True)
                if is_there
            )
            if images:
                yield Record(name, converted, images)

    def _has_image(self, column: str) -> Iterator[bool]:
        for batch in self._file.iter_batches(batch_size=_BATCH, columns=[column]):
            array = batch.column(0)
            if hasattr(array, "field") and array.type.get_field_index("bytes") >= 0:
                array = array.field("bytes")
            yield from array.is_valid().to_pylist()

    def _fetch(self, column: str, number: int) -> bytes:
        group = bisect_right(self._ends, number)
        with self._reading:
            if self._last.get(column, (-1, None))[0] != group:
                self._last[column] = (group, self._file.read_row_group(group, columns=[column]).column(0))
            start = self._ends[group - 1] if group else 0
            cell = self._last[column][1][number - start].as_py()
        if isinstance(cell, dict):
            cell = cell["bytes"]
        return base64.b64decode(cell, validate=True) if isinstance(cell, str) else bytes(cell)
