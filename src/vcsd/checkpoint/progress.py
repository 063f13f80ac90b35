"""The counters of a run, which a checkpoint holds besides its tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """Counters of a run. `cursor` is the position in the data order; `token_budget` is None before it is measured.

    >>> Progress(cursor=64).num_empty_steps
    0
    """

    cursor: int = 0
    token_budget: int | None = None
    num_rollouts: int = 0
    num_empty_steps: int = 0
    num_nonfinite_steps: int = 0
    num_nonfinite_in_a_row: int = 0
    best_step: int | None = None
    best_value: float | None = None
