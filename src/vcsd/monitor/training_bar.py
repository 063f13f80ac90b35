"""The progress bar: six numbers, each of which answers a different question.

loss       does the student move towards the target?
contrast   does the image matter for the student's responses? (nats; the purpose of the method)
grad       is the gradient of a normal size?
length     do responses grow? The first sign of collapse
repeat     do they repeat themselves? The second
drift      do they leave the prompt's language? The third

The time left is shown at every width; numbers that do not fit are left out from the end. Without a terminal there is
no bar: the log gets a line with the same numbers after the first and the last step, every LOG_EVERY steps, and after
LOG_EVERY_SECONDS if steps are slow. In a script that set up no logging, the line is printed.
"""

from __future__ import annotations

import logging
import math
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from vcsd.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

LOG_EVERY = 10
LOG_EVERY_SECONDS = 60.0
WIDE = 110
"""Terminal width from which on there is room for the bar itself."""

_BAR, _TIME = 22, 10
"""Columns of the bar, and of the time left with the spaces around it."""

_ONE = 5
"""The fewest columns that fit a single number and the space before it."""

SIX: Mapping[str, tuple[str, str]] = {
    "loss": ("loss", ".4f"),
    "contrast": ("realised_contrast", ".2f"),
    "grad": ("gradient_norm", ".2g"),
    "length": ("length", ".0f"),
    "repeat": ("repetition", ".1%"),
    "drift": ("language_drift", ".1%"),
}
"""Label -> the metric and its format."""


def six_numbers(metrics: Mapping[str, float], width: int = 1000) -> str:
    """Return the six numbers in one line, with a dash for a missing one, and as many of them as fit.

    >>> six_numbers({"loss": 0.71234, "length": 301.2, "repetition": 0.0125})
    'loss 0.7123 contrast - grad - length 301 repeat 1.2% drift -'
    >>> six_numbers({"loss": 0.71234, "length": 301.2}, width=30)
    'loss 0.7123 contrast - grad -'
    >>> six_numbers({"loss": 0.71234}, width=6)
    ''
    """

    def formatted(metric: str, form: str) -> str:
        value = metrics.get(metric, math.nan)
        return format(value, form) if math.isfinite(value) else "-"

    words = [f"{label} {formatted(metric, form)}" for label, (metric, form) in SIX.items()]
    while words and len(" ".join(words)) > width:
        words.pop()
    return " ".join(words)


def time_left(seconds: float, num_done: int, num_left: int) -> str:
    """Return how long the remaining steps will take, at the pace of the finished ones.

    >>> time_left(60.0, 10, 80)
    '0:08:00 left'
    """
    return f"{timedelta(seconds=round(seconds / max(1, num_done) * num_left))} left"


class TrainingBar:
    """A progress bar on a terminal, log lines elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(stderr=True) if console is None else console
        self._progress: Progress | None = None
        self._start = self._logged = 0.0
        self._first: int | None = None
        self._last = 0

    def begin(self, step: int, max_steps: int) -> None:
        """Show the bar after `step` completed steps."""
        self._first, self._last = None, max_steps
        if self._console.is_terminal:
            columns: list[ProgressColumn] = [MofNCompleteColumn(), TimeRemainingColumn()]
            if self._room >= _ONE:
                columns.append(TextColumn("{task.fields[six]}"))
            if self._is_wide:
                columns = [BarColumn(bar_width=20), *columns]
            self._progress = Progress(*columns, console=self._console)
            self._progress.add_task("train", total=max_steps, completed=step, six="")
            self._progress.start()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Advance to a completed step, counted from 1."""
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=step, six=six_numbers(metrics, self._room))
        else:
            self._log(step, metrics)

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log a step if a line is due. The pace is known from the second step on."""
        now, left = time.monotonic(), ""
        if self._first is None:
            self._first, self._start = step, now
        elif step % LOG_EVERY and step != self._last and now - self._logged < LOG_EVERY_SECONDS:
            return
        else:
            left = f", {time_left(now - self._start, step - self._first, self._last - step)}"
        self._logged = now
        line = f"step {step} of {self._last}{left}  {six_numbers(metrics)}"
        if log.hasHandlers():
            log.info("%s", line)
        else:  # without it, a script that set up no logging would train for hours without output
            self._console.print(plain(line), soft_wrap=True)

    @property
    def _room(self) -> int:
        """Columns that are left for the numbers."""
        count = 2 * len(str(self._last)) + 1
        return self._console.width - count - _TIME - (_BAR if self._is_wide else 0)

    @property
    def _is_wide(self) -> bool:
        return self._console.width >= WIDE

    def end(self) -> None:
        """Leave the bar as it is and release the terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
