"""The progress of any long work: a bar with the time left on a terminal, otherwise a line in the log now and then.

    with WorkBar("tiles") as bar:
        bar.begin(0, 36)
        for tile in range(36):
            ...
            bar.step()

The count and the time left are shown at every width; the bar and then the title give way on a narrow terminal.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from vcsd.visible import visible

if TYPE_CHECKING:
    from typing import Self

log = logging.getLogger(__name__)

LOG_EVERY_SECONDS = 30.0

_COUNT_AND_TIME = 30
"""Columns for the count, the time left, and the spaces between them."""

_LEAST_BAR = 10
_LEAST_TITLE = 8


def bar_columns(width: int, title: str) -> list[ProgressColumn]:
    """Choose what fits into a line: count and time left always, then the title, then the bar.

    >>> [type(column).__name__ for column in bar_columns(30, "tiles")]
    ['MofNCompleteColumn', 'TimeRemainingColumn']
    >>> len(bar_columns(44, "tiles")), len(bar_columns(80, "tiles"))
    (3, 4)
    """
    columns: list[ProgressColumn] = [MofNCompleteColumn(), TimeRemainingColumn()]
    room = width - _COUNT_AND_TIME
    if room < _LEAST_TITLE:
        return columns
    columns.insert(0, TextColumn("{task.description}", markup=False))
    room -= min(len(title), room) + 1
    if room >= _LEAST_BAR:
        columns.insert(1, BarColumn(bar_width=min(40, room)))
    return columns


def fitting_title(width: int, title: str) -> str:
    """Cut a title so that the count and the time left stay visible.

    >>> fitting_title(44, "contrast decoding")
    'contrast deco\u2026'
    """
    title, room = visible(title), max(_LEAST_TITLE, width - _COUNT_AND_TIME)
    return title if len(title) <= room else title[: room - 1] + "\u2026"


class WorkBar:
    """Shows how many of some pieces of work are done, and the time left."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._console = Console(stderr=True) if console is None else console
        self._progress: Progress | None = None
        self._first = self._num_done = self._num_total = 0
        self._start = self._logged = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def begin(self, num_done: int, num_total: int) -> None:
        """Start, with the number of pieces that are already done."""
        self._first, self._num_done, self._num_total = num_done, num_done, num_total
        self._start = self._logged = time.monotonic()
        if self._console.is_terminal and num_done < num_total:
            width = self._console.width
            columns = bar_columns(width, visible(self._title))
            # Redirecting shows printed text above the bar. If stdout is a file, the text must go there instead.
            self._progress = Progress(
                *columns, console=self._console, speed_estimate_period=600, redirect_stdout=Console().is_terminal
            )
            self._progress.add_task(fitting_title(width, self._title), total=num_total, completed=num_done)
            self._progress.start()

    def step(self, num: int = 1) -> None:
        """Count finished pieces."""
        self._num_done += num
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=self._num_done)
        elif time.monotonic() - self._logged >= LOG_EVERY_SECONDS:
            self._logged = time.monotonic()
            log.info("%s", self.line())

    def advance(self, num_done: int, num_total: int, title: str) -> None:
        """Show that this many pieces are done, under a new title. The first call begins."""
        self._title = title
        if not self._num_total:
            self.begin(max(0, num_done - 1), num_total)
        if self._progress is not None:
            shown = fitting_title(self._console.width, title)
            self._progress.update(self._progress.task_ids[0], description=shown)
        self.step(num_done - self._num_done)

    def line(self) -> str:
        """Describe the progress in words."""
        worked = max(1, self._num_done - self._first)
        seconds = (time.monotonic() - self._start) / worked * (self._num_total - self._num_done)
        return f"{self._title}: {self._num_done} of {self._num_total}, {timedelta(seconds=round(seconds))} left"
