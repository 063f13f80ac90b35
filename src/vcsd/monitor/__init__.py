"""Monitors: what a run does, step by step, and when it goes wrong.

Watch    a monitor for the trainer: metrics.jsonl, samples.jsonl, progress bar, and the guard's verdict acted upon
Guard    learns what is usual, warns, says stop; state as plain JSON
Sums     the numbers of a step, added up over micro-batches and divided once
"""

from vcsd.monitor.guard import SIGNALS, Guard, Signal, Verdict
from vcsd.monitor.lines import Lines, read_lines
from vcsd.monitor.metrics import Sums
from vcsd.monitor.watch import Watch

__all__ = ["SIGNALS", "Guard", "Lines", "Signal", "Sums", "Verdict", "Watch", "read_lines"]
