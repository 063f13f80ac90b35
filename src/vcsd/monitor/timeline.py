"""A timeline of the trainer and of a sampler beside it: one line of `timeline.jsonl` per step.

    {"step": 3, "trainer": [["rollout", 2.1, 2.4], ["distill", 2.4, 3.9], ["update", 3.9, 4.0]],
     "sampler": [["send", 3, 2.1, 2.2], ["draw", 4, 2.4, 3.6]]}

Times are seconds since the run was started or resumed. The sampler's entries name the step whose weights were sent, or
whose batch was drawn; a draw is written in the step in which its batch was collected.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.monitor.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

TIMELINE = "timeline.jsonl"
SYNC_FILE = "weight_sync.jsonl"
"""One line for each time that a sampler got the student's weights."""

_IN_ROWS = ("teacher", "student", "backward")
"""Parts that alternate row by row; together they are `distill`."""


class Timeline:
    """Writes the lines of a run. One that resumes after a step drops the lines of later steps."""

    def __init__(self, folder: str | PathLike[str], step: int) -> None:
        self._lines = Lines(Path(folder) / TIMELINE)
        self._lines.keep_until("step", step)
        self._start = time.perf_counter()

    def note(
        self,
        step: int,
        phases: Sequence[tuple[str, float, float]],
        sampler: Iterable[tuple[str, int, float, float]],
    ) -> None:
        """Write the line of a step, from times of `time.perf_counter`."""
        drawn = [[what, batch, *self._since(start, end)] for what, batch, start, end in sampler]
        trainer = [[name, *self._since(start, end)] for name, start, end in merged(phases)]
        self._lines.append({"step": step, "trainer": trainer, "sampler": drawn})

    def _since(self, *times: float) -> list[float]:
        return [round(time - self._start, 4) for time in times]


def merged(phases: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Merge the parts of all rows into one span, `distill`.

    >>> merged([("rollout", 0.0, 1.0), ("teacher", 1.0, 2.0), ("student", 2.0, 3.0), ("teacher", 3.0, 4.0)])
    [('rollout', 0.0, 1.0), ('distill', 1.0, 4.0)]
    """
    rows = [(start, end) for name, start, end in phases if name in _IN_ROWS]
    others = [span for span in phases if span[0] not in _IN_ROWS]
    distill = [("distill", min(start for start, _ in rows), max(end for _, end in rows))] if rows else []
    return sorted([*others, *distill], key=lambda span: span[1])
