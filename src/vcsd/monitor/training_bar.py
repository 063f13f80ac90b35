"""The progress bar: six numbers, each of which answers a different question.

loss       does the student move towards the target?
contrast   does the image matter for what the student says? (nats; the purpose of the method)
grad       is the gradient of a normal size?
length     do responses grow? The first sign of collapse
repeat     do they repeat themselves? The second
drift      do they leave the prompt's language? The third

Without a terminal there is no bar; every LOG_EVERY steps the log gets one line with the same numbers.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

LOG_EVERY = 10
WIDE = 110
"""Terminal width from which on there is room for the bar itself and the time left."""

SIX: Mapping[str, tuple[str, str]] = {
    "loss": ("loss", ".4f"),
    "contrast": ("realised_contrast", ".2f"),
    "grad": ("gradient_norm", ".2g"),
    "length": ("length", ".0f"),
    "repeat": ("repetition", ".1%"),
    "drift": ("language_drift", ".1%"),
}
"""Label -> the metric and its format."""


def six_numbers(metrics: Mapping[str, float]) -> str:
    """Return the six numbers in one line, with a dash for a missing one.

    >>> six_numbers({"loss": 0.71234, "length": 301.2, "repetition": 0.0125})
    'loss 0.7123 contrast - grad - length 301 repeat 1.2% drift -'
    """

    def formatted(metric: str, form: str) -> str:
        value = metrics.get(metric, math.nan)
        return format(value, form) if math.isfinite(value) else "-"

    return " ".join(f"{label} {formatted(metric, form)}" for label, (metric, form) in SIX.items())


class TrainingBar:
    """A progress bar on a terminal, log lines elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(stderr=True) if console is None else console
        self._progress: Progress | None = None

    def begin(self, step: int, max_steps: int) -> None:
        """Show the bar after `step` completed steps."""
        if self._console.is_terminal:
            columns: list[ProgressColumn] = [MofNCompleteColumn(), TextColumn("{task.fields[six]}")]
            if self._console.width >= WIDE:
                columns = [BarColumn(bar_width=20), *columns, TimeRemainingColumn()]
            self._progress = Progress(*columns, console=self._console)
            self._progress.add_task("train", total=max_steps, completed=step, six="")
            self._progress.start()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Advance to a completed step, counted from 1."""
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=step, six=six_numbers(metrics))
        elif step % LOG_EVERY == 0:
            log.info("step %d  %s", step, six_numbers(metrics))

    def end(self) -> None:
        """Leave the bar as it is and release the terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
