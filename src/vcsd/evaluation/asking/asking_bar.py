"""Progress of asking: a bar with the time left on a terminal, otherwise a line in the log."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn

from vcsd.monitor.work_bar import bar_columns, fitting_title
from vcsd.visible import visible

if TYPE_CHECKING:
    from typing import Self

log = logging.getLogger(__name__)

LOG_EVERY_SECONDS = 60.0

BATCH_SECONDS = 1.0
"""All answers of a batch arrive within this time."""

_FAILED = 10
"""Columns for the number of failed questions."""

_WITH_FAILED = 24
"""The narrowest terminal with room for this number next to the count and the time left."""


class AskingBar:
    """Shows how many questions are answered, how many failed, and the time left. A title of None shows nothing."""

    def __init__(self, title: str | None, console: Console | None = None) -> None:
        self._title = title
        self._console = Console(stderr=True) if console is None else console
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._num_known = self._num_done = self._num_total = self._num_failed = 0
        self._start = self._logged = self._latest = 0.0
        self._due: float | None = None
        """When the next line became due."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        elif self._title is not None and self._num_done:
            log.info("%s: %s", self._title, self.line())

    def begin(self, num_known: int, num_total: int) -> None:
        """Start, with the number of answers that are already known."""
        self._num_known, self._num_done, self._num_total, self._num_failed = num_known, num_known, num_total, 0
        self._start = self._logged = self._latest = time.monotonic()
        self._due = None
        if self._title is not None and self._console.is_terminal and num_known < num_total:
            width = self._console.width - _FAILED
            columns = bar_columns(width, visible(self._title))
            if self._console.width >= _WITH_FAILED:
                columns.append(TextColumn("{task.fields[failed]}"))
            self._progress = Progress(*columns, console=self._console, speed_estimate_period=600)
            title = fitting_title(width, self._title)
            self._task = self._progress.add_task(title, total=num_total, completed=num_known, failed="")
            self._progress.start()

    def step(self, *, is_failed: bool) -> None:
        """Count one more prediction.

        The predictions of a batch arrive together, so a line that is due waits until all are counted: otherwise the
        first one would seem to have taken the time of the whole batch.
        """
        now = time.monotonic()
        if now - self._logged >= LOG_EVERY_SECONDS and self._due is None:
            self._due = now
        if self._is_logged and self._due is not None and now - self._due >= BATCH_SECONDS:
            self._logged, self._due = now, None
            log.info("%s: %s", self._title, self.line())
        self._num_done += 1
        self._num_failed += is_failed
        self._latest = now
        if self._progress is not None:
            failed = f"{self._num_failed} failed" if self._num_failed else ""
            self._progress.update(self._task, completed=self._num_done, failed=failed)

    @property
    def _is_logged(self) -> bool:
        return self._title is not None and self._progress is None and self._num_done > self._num_known

    def line(self) -> str:
        """Describe the progress in words.

        >>> bar = AskingBar("BLINK", Console(force_terminal=False))
        >>> bar.begin(3, 5)
        >>> bar.step(is_failed=True)
        >>> bar.line()[:34]
        '3 of 5 answered, 1 failed, 0:00:00'
        """
        failed = f", {self._num_failed} failed" if self._num_failed else ""
        asked = self._num_done - self._num_known if self._num_done < self._num_total else 0
        seconds = (self._latest - self._start) * (self._num_total - self._num_done) / max(1, asked)
        left = f", {int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02} left" if asked else ""
        return f"{self._num_done - self._num_failed} of {self._num_total} answered{failed}{left}"
