"""What a monitor sees of a step, and the interface of a monitor."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.batch import Batch
    from vcsd.loss import Statistics
    from vcsd.types import Example


log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Observation:
    """What a monitor sees of a step. `step` counts from 1.

    `is_taken` is True if the optimizer updated the student. The statistics cover every response position. `metrics` are
    those of the trainer and of the monitors before this one.
    """

    step: int
    is_taken: bool
    loss: float
    examples: Sequence[Example]
    batch: Batch
    statistics: Sequence[Statistics]
    metrics: Mapping[str, float] = field(default_factory=dict)
    scored: Sequence[tuple[str, Sequence[int]]] = ()
    """Example id and token ids of each response, in the order of the statistics' positions."""

    def contrasts(self) -> dict[tuple[str, tuple[int, ...]], list[float]]:
        """Return the contrast of every token of each response, by example id and token ids; empty without a control.

        Equal responses to one prompt have equal contrasts, so that one of them stands for all.
        """
        columns = [rows.realised_contrast for rows in self.statistics]
        if not self.scored or any(column is None for column in columns):
            return {}
        values = [value for column in columns if column is not None for value in column.tolist()]
        ends = list(accumulate(len(response) for _, response in self.scored))
        if len(values) != ends[-1]:  # samples are only displayed: this must not end the run
            log.warning(
                "Step %d has %d contrasts for %d tokens, so its samples show none. Please report this.",
                *(self.step, len(values), ends[-1]),
            )
            return {}
        return {
            (name, tuple(response)): values[end - len(response) : end]
            for (name, response), end in zip(self.scored, ends, strict=True)
        }


class Monitor(Protocol):
    """Watches a run step by step. If it has a `last_good_step`, the checkpoint at or before that step is kept.

    A monitor that has it but never raises an alarm can set `may_alarm` to False, so that no disk space is reserved for
    that checkpoint. A monitor without state may omit `state` and `restore`.
    """

    def observe(self, seen: Observation) -> Mapping[str, float] | None:
        """Return the metrics to log for a step, if any. A RunError stops the run."""
        ...

    def state(self) -> Mapping[str, object]:
        """Return what a checkpoint keeps, as plain JSON."""
        ...

    def restore(self, state: Any, step: int) -> None:
        """Continue from the `state` of a checkpoint written after this step."""
        ...
