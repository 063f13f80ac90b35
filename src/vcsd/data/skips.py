"""Count and list rows that cannot be used, and stop a run that has too many of them.

    {"position": 17, "id": "virl-00042", "reason": "missing_file", "file": "images/42.png", "message": "..."}

Each skipped row is one such line in `skipped.jsonl`; `position` is its position in the shuffled order. A row that is
read in several epochs has a line for each. Messages count it once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypedDict

from vcsd.errors import UNGIVEN, ConfigError, DataError
from vcsd.monitor.lines import Lines, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

MAX_SKIPPED_SHARE = 0.05
"""The largest share of rows that may be skipped. More points to a wrong path or format rather than to noisy data."""

MIN_ROWS_SEEN = 100
"""Rows read before the share is checked: one broken row among the first ten says nothing yet."""

REASONS = ("malformed_row", "missing_file", "outside_folder", "broken_image", "over_long_prompt", UNGIVEN)
"""Why a row may be skipped."""


FIXES = {
    "malformed_row": "Correct the rows, or name other columns with data.columns.",
    "missing_file": "Correct the paths, or set data.images to the folder that they start from.",
    "broken_image": "Save the images again as PNG or JPEG.",
    "over_long_prompt": "Raise data.max_prompt_tokens, or lower model.max_pixels.",
}
"""Advice for the usual reasons; the messages of other reasons contain their own."""


class SkipsState(TypedDict):
    """The part of `Skips` that a checkpoint keeps."""

    num_seen: int
    counts: dict[str, int]


class RowError(DataError):
    """A DataError with one of the REASONS and, where known, the file that caused it."""

    def __init__(self, example_id: str, message: str, *, reason: str, file: str | None = None) -> None:
        assert reason in REASONS, f"{reason!r} is not one of {REASONS}"
        super().__init__(example_id, message, reason=reason, file=file)


def not_utf8(error: UnicodeDecodeError) -> str:
    """Describe where a row is not UTF-8, and how to convert a file in one of the encodings that Windows writes."""
    encoding = "UTF-16" if b"\0" in error.object else "WINDOWS-1252"
    return f"it is not UTF-8: {error.reason} at byte {error.start}. {how_to_convert(encoding)}"


def how_to_convert(encoding: str) -> str:
    """Say how to convert a file in an encoding that Windows writes."""
    return f"If Windows wrote the file: iconv -f {encoding} -t UTF-8 FILE > NEW."


@contextmanager
def reason(word: str) -> Iterator[None]:
    """Add a reason to any DataError raised inside that has none.

    >>> with reason("over_long_prompt"):
    ...     raise DataError("virl-00042", "its prompt has 9000 tokens.")
    Traceback (most recent call last):
        ...
    vcsd.data.skips.RowError: example 'virl-00042': its prompt has 9000 tokens.
    """
    try:
        yield
    except DataError as error:
        if error.reason != UNGIVEN:
            raise
        raise RowError(error.example_id, error.message, reason=word, file=error.file) from error


class Skips:
    """Counts the rows that were read and skipped, and lists the skipped ones in a file if a path is given.

    >>> skips = Skips(max_share=0.5, min_rows=2)
    >>> skips.use()
    >>> skips.skip(DataError("b", "no image."), position=1)
    >>> skips.num_seen, skips.share, dict(skips.counts)
    (2, 0.5, {'unusable': 1})
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        max_share: float = MAX_SKIPPED_SHARE,
        min_rows: int = MIN_ROWS_SEEN,
    ) -> None:
        self._lines = None if path is None else Lines(path)
        self._max_share, self._min_rows = max_share, min_rows
        self.num_seen = 0
        self.counts: Counter[str] = Counter()
        self.num_rows: int | None = None
        """How many rows the data has, if known; further reads repeat rows."""
        self._first: dict[str, tuple[int, str]] = {}
        """Id of a skipped row -> where it was skipped first, and why."""
        self.last: DataError | None = None
        """The error of the row that was skipped last."""

    def without_file(self) -> Skips:
        """Return new Skips with the same limits and no file: only one rank writes the file."""
        return Skips(max_share=self._max_share, min_rows=self._min_rows)

    @property
    def num_skipped(self) -> int:
        """How often a row was skipped, for any reason and in any epoch."""
        return self.counts.total()

    @property
    def num_rows_skipped(self) -> int:
        """How many different rows were skipped."""
        return len(self._first)

    @property
    def num_rows_seen(self) -> int:
        """How many different rows were read: an epoch reads each once."""
        return self.num_seen if self.num_rows is None else min(self.num_seen, self.num_rows)

    @property
    def share(self) -> float:
        """The share of what was read so far that was skipped."""
        return self.num_skipped / self.num_seen if self.num_seen else 0.0

    def use(self) -> None:
        """Count a usable row."""
        self.num_seen += 1

    def skip(self, error: DataError, *, position: int) -> None:
        """Count and list a skipped row. Raise a ConfigError once there are too many."""
        self.num_seen += 1
        self.counts[error.reason] += 1
        self._first.setdefault(error.example_id, (position, error.reason))
        self.last = error
        self._list(error, position)
        if self.num_seen >= self._min_rows and self.share > self._max_share:
            raise ConfigError([self._too_many(error)])

    def none_usable(self, errors: Sequence[DataError], name: str) -> str:
        """List rows that are all unusable. Return why the first is, where they are listed, and what to do."""
        for position, error in enumerate(errors):
            self._list(error, position)
        summary = _in_words(Counter(error.reason for error in errors))
        listed = f" All are listed in {self._lines.path}." if self._lines else ""
        fix = FIXES.get(errors[0].reason, "")
        start = f"none of the first {len(errors)} rows of {name} can be used ({summary})."
        return f"{start} The first: {errors[0]}{listed} {fix}".rstrip()

    def _list(self, error: DataError, position: int) -> None:
        if self._lines is not None:
            details = {"reason": error.reason, "file": error.file, "message": error.message}
            self._lines.append({"position": position, "id": error.example_id, **details})

    def _too_many(self, error: DataError) -> str:
        listed = f" All are listed in {self._lines.path}." if self._lines else ""
        num, num_seen = self.num_rows_skipped, self.num_rows_seen
        return (
            f"{num} of the {num_seen} rows read so far cannot be used ({self.summary()}), more than "
            f"{self._max_share:.0%}. The last one: {error}{listed} Fix the data, or raise data.max_skipped_share."
        )

    def reasons(self) -> str:
        """Return the reasons in words, such as 'missing_file', or '3 missing_file, 1 broken_image' for several."""
        words = {word for _, word in self._first.values()}
        return next(iter(words)) if len(words) == 1 else self.summary()

    def summary(self) -> str:
        """Return how many rows were skipped and why, such as '3 missing_file, 1 broken_image'."""
        return _in_words(Counter(word for _, word in self._first.values()))

    def state(self) -> SkipsState:
        """Return what a checkpoint keeps, as plain JSON."""
        return {"num_seen": self.num_seen, "counts": dict(self.counts)}

    def restore(self, state: SkipsState, *, cursor: int) -> None:
        """Continue from a checkpoint at this cursor, and drop the rows that an interrupted run listed after it."""
        self.num_seen, self.counts = state["num_seen"], Counter(state["counts"])
        if self._lines is not None:
            self._lines.keep_until("position", cursor - 1)
        self._first = {row: first for row, first in self._first.items() if first[0] < cursor}
        for line in read_lines(self._lines.path) if self._lines is not None else ():
            self._first.setdefault(str(line.get("id")), (int(line.get("position", 0)), str(line.get("reason"))))


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "none skipped"
