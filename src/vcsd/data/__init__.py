"""Data: files and datasets become Examples, row by row, in an order that a seed and an integer determine.

load_examples   a path or hub id -> a Source that says what it found
Source          Examples by row number, read when asked for, with stable ids
Stream          examples in shuffled order from a cursor; rows that cannot be used are passed over
Skips           counts and lists what was passed over, and stops a run when it is too much

A table (`table.py`) knows bytes and rows, `columns.py` and `prompts.py` know what cells mean, `source.py` joins them.
Nothing is downloaded but a dataset of the hub that was asked for by name.
"""

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
    "reason",
]
