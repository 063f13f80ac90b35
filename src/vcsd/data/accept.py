"""Opens what a caller may pass as `train_dataset` as examples.

Accepts Examples, a path or hub id, rows as dictionaries, a `datasets.Dataset`, or an `IterableDataset`, of which only
the rows that the run can use are read. Columns and images are read as in files (`load.py`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.data.arrow import DatasetTable
from vcsd.data.formats.rows import RowsTable
from vcsd.data.load import load_examples
from vcsd.data.source import Source
from vcsd.errors import ConfigError, DataError, few, shown
from vcsd.types import Example

if TYPE_CHECKING:
    from vcsd.data.stream import ExampleSource
    from vcsd.data.table import Table

log = logging.getLogger(__name__)

_NAME = "train_dataset"
_NAMED = 3
"""How many ids an error names."""

_KINDS = "Examples, dictionaries, a datasets.Dataset, or the path of a file"


def open_examples(dataset: object, *, max_rows: int) -> ExampleSource:
    """Open a data set of any accepted kind. From one without a length, at most `max_rows` rows are read.

    >>> rows = open_examples([{"prompt": "How many?", "image": []}], max_rows=1)
    >>> rows[0].prompt
    ({'role': 'user', 'content': [{'type': 'text', 'text': 'How many?'}]},)
    """
    _refuse_others(dataset)
    if isinstance(dataset, Source):
        return dataset
    if isinstance(dataset, str | PathLike):
        return load_examples(dataset)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        dataset = _read(dataset, max_rows)
    rows: Any = dataset
    if not len(rows):
        raise ConfigError([f"{_NAME} has no rows."])
    table = _table(rows)
    if table is None:
        _refuse_repeated_ids(rows)
        return rows  # type: ignore[no-any-return]
    source = Source(table, trusts_paths=True)
    log.info("%s", source.report())
    return source


def _refuse_others(dataset: object) -> None:
    """Raise a ConfigError for what is often passed by mistake."""
    if dataset is None:
        raise ConfigError([f"{_NAME} is missing. Give {_KINDS}."])
    if isinstance(dataset, Mapping):
        splits = ", ".join(map(repr, dataset))
        raise ConfigError([f"{_NAME} is a dictionary of {splits}. Pass one split, such as dataset['train']."])
    if hasattr(dataset, "to_dict") and hasattr(dataset, "iloc"):
        raise ConfigError([f"{_NAME} is a pandas DataFrame. Pass its rows: frame.to_dict('records')."])
    if hasattr(dataset, "collate_fn"):
        raise ConfigError([f"{_NAME} is a DataLoader. Pass its dataset; batches are made by the trainer."])
    if not isinstance(dataset, str | PathLike | Iterable) and not hasattr(dataset, "__getitem__"):
        raise ConfigError([f"{_NAME} is {type(dataset).__name__}. Give {_KINDS}."])


def _refuse_repeated_ids(rows: object) -> None:
    """Raise a ConfigError if Examples of a list share an id, which seeds rollouts and identifies them across ranks."""
    ids = Counter(row.id for row in rows if isinstance(row, Example)) if isinstance(rows, list | tuple) else Counter()
    repeated = [shown(example_id) for example_id, count in ids.items() if count > 1]
    if repeated:
        raise ConfigError([f"{_NAME}: several examples have the id {few(repeated, _NAMED)}. Make ids unique."])


def _read(dataset: object, max_rows: int) -> Sequence[object]:
    """Read the rows of an iterable that a run can use. Images stay encoded where `datasets` allows it."""
    assert isinstance(dataset, Iterable)
    rows = dataset
    if hasattr(dataset, "decode") and getattr(dataset, "features", None) is not None:  # else nothing is decoded
        rows = dataset.decode(False)
    items = list(islice(rows, max_rows))
    log.info("%s has no length: read %d rows, of at most %d that the run can use.", _NAME, len(items), max_rows)
    return items


def _table(rows: Any) -> Table | None:
    """Return the table of rows; None if they are Examples already."""
    if hasattr(rows, "with_format") and hasattr(rows, "select_columns"):
        is_transformed = (getattr(rows, "format", None) or {}).get("type") == "custom"
        return RowsTable(rows, name=_NAME) if is_transformed else DatasetTable(rows, name=_NAME, folder=Path())
    try:
        first = rows[0]
    except DataError:
        return None
    if isinstance(first, Example):
        return None
    return RowsTable(rows, name=_NAME)
