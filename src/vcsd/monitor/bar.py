"""The progress bar: six numbers, chosen so that each answers a question no other one does.

loss       does the student move towards the target?
contrast   does the image matter for what the student says? (nats, the method's purpose)
grad       is a step of a sane size?
length     do answers grow? The first sign of collapse
repeat     do they repeat themselves? The second
drift      do they leave the prompt's language? The third

Without a terminal there is no bar: every SAY_EVERY steps the same numbers are one line of the log.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

SAY_EVERY = 10
WIDE = 110
"""Columns of a terminal from which on there is room for more than the numbers: the bar itself, and the time left."""

SIX: Mapping[str, tuple[str, str]] = {
    "loss": ("loss", ".4f"),
    "contrast": ("realised_contrast", ".2f"),
    "grad": ("gradient_norm", ".2g"),
    "length": ("length", ".0f"),
    "repeat": ("repetition", ".1%"),
    "drift": ("language_drift", ".1%"),
}
"""What is shown -> the metric, and how it is written."""


def six_numbers(metrics: Mapping[str, float]) -> str:
    """The six numbers in one line; a dash for one that the step does not have.

    >>> six_numbers({"loss": 0.71234, "length": 301.2, "repetition": 0.0125})
    'loss 0.7123 contrast - grad - length 301 repeat 1.2% drift -'
    """

    def shown(metric: str, form: str) -> str:
        value = metrics.get(metric, math.nan)
        return format(value, form) if math.isfinite(value) else "-"

    return " ".join(f"{label} {shown(metric, form)}" for label, (metric, form) in SIX.items())


class Bar:
    """A bar where there is a terminal, lines in the log where there is none."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(stderr=True) if console is None else console
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def begin(self, step: int, max_steps: int) -> None:
        """Show the bar at a step."""
        if self._console.is_terminal:
            columns: list[ProgressColumn] = [MofNCompleteColumn(), TextColumn("{task.fields[six]}")]
            if self._console.width >= WIDE:
                columns = [BarColumn(bar_width=20), *columns, TimeRemainingColumn()]
            self._progress = Progress(*columns, console=self._console)
            self._task = self._progress.add_task("train", total=max_steps, completed=step, six="")
            self._progress.start()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Move to a step that is done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=step, six=six_numbers(metrics))
        elif step % SAY_EVERY == 0:
            log.info("step %d  %s", step, six_numbers(metrics))

    def end(self) -> None:
        """Leave the bar as it is and give the terminal back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
