"""Where a run stands, in plain numbers: what a checkpoint must hold besides tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.batch import Batch
    from vcsd.kernels import Statistics
    from vcsd.types import Example


@dataclass
class Progress:
    """Counters of a run. `cursor` is the position in the data's order, `token_budget` None before it is measured.

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


@dataclass(frozen=True, eq=False)
class Observation:
    """What one step did, for those who watch. `batch` is None for a step without prompts to train on.

    `is_taken` tells whether the optimizer moved the student. Statistics are those of every response position.
    """

    step: int
    is_taken: bool
    loss: float
    examples: Sequence[Example]
    batch: Batch | None
    statistics: Sequence[Statistics]
    metrics: Mapping[str, float] = field(default_factory=dict)


class Monitor(Protocol):
    """Watches a run, step by step. With a `last_good_step`, the checkpoint at or before it is not removed."""

    def observe(self, seen: Observation) -> Mapping[str, float]:
        """What to log of a step. A RunError stops the run."""
        ...

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as plain JSON."""
        ...

    def restore(self, state: Mapping[str, Any], step: int) -> None:
        """Continue from a checkpoint taken after this step."""
        ...
