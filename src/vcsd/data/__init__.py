"""Data: read files and datasets as Examples, row by row, in an order that depends only on a seed and a position.

load_examples   a path or hub id -> a Source that reports what it contains
open_examples   the same for data in memory: dictionaries, `datasets`, Examples
Source          Examples by row number, read on demand, with stable ids
Stream          examples in shuffled order from a cursor; skips rows that cannot be used
Skips           counts and lists the skipped rows, and stops a run with too many of them

A table (`table.py`) handles bytes and rows; `columns.py`, `conversation.py` and `prompts.py` interpret cells;
`source.py` joins them. Nothing is downloaded, except a hub dataset that the user names.
"""

from vcsd.data.accept import open_examples
from vcsd.data.load import load_examples
from vcsd.data.skips import MAX_SKIPPED_SHARE, MIN_ROWS_SEEN, RowError, Skips, reason
from vcsd.data.source import Source
from vcsd.data.stream import Stream, Taken

__all__ = [
    "MAX_SKIPPED_SHARE",
    "MIN_ROWS_SEEN",
    "RowError",
    "Skips",
    "Source",
    "Stream",
    "Taken",
    "load_examples",
    "open_examples",
    "reason",
]
