"""What a monitor sees of a step, and the interface of a monitor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.batch import Batch
    from vcsd.loss import Statistics
    from vcsd.types import Example


@dataclass(frozen=True, eq=False)
class Observation:
    """What a monitor sees of a step. `step` counts from 1; `batch` is None for a step without prompts to train on.

    `is_taken` tells whether the optimizer updated the student. The statistics cover every response position.
    """

    step: int
    is_taken: bool
    loss: float
    examples: Sequence[Example]
    batch: Batch | None
    statistics: Sequence[Statistics]
    metrics: Mapping[str, float] = field(default_factory=dict)


class Monitor(Protocol):
    """Watches a run step by step. If it has a `last_good_step`, the checkpoint at or before that step is kept."""

    def observe(self, seen: Observation) -> Mapping[str, float]:
        """Return the metrics to log for a step. A RunError stops the run."""
        ...

    def state(self) -> Mapping[str, object]:
        """Return what a checkpoint keeps, as plain JSON."""
        ...

    def restore(self, state: Any, step: int) -> None:
        """Continue from the `state` of a checkpoint written after this step."""
        ...
