"""Monitors: record what a run does at every step, and notice when it collapses.

Watch    a monitor for the trainer: writes metrics.jsonl and samples.jsonl, shows a progress bar, obeys the guard
Guard    learns a baseline, then warns about or stops a run that leaves it; its state is plain JSON
Sums     the numbers of a step, added up over micro-batches and divided once
"""

from typing import TYPE_CHECKING

from vcsd import on_first_use

if TYPE_CHECKING:
    from vcsd.monitor.guard import SIGNALS, Alarm, Guard, Signal
    from vcsd.monitor.lines import Lines, read_lines
    from vcsd.monitor.metrics import Sums
    from vcsd.monitor.watch import Watch

__all__ = ["SIGNALS", "Alarm", "Guard", "Lines", "Signal", "Sums", "Watch", "read_lines"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "guard": "SIGNALS Alarm Guard Signal",
        "lines": "Lines read_lines",
        "metrics": "Sums",
        "watch": "Watch",
    },
)
