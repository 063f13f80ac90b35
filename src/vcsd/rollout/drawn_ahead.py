"""Batches that are drawn some steps before they are trained on.

With a lag of k, the student of step s draws the batch of step s + k: the server samples while the trainer updates. At
the start of a run nothing could be drawn earlier, so the first student also draws the batches of the k steps after it.
A batch that was lost with its server is drawn again, by the student of that later step. So a batch is never older than
k steps, and it is fresher only where the queue planned it to be.

Steps are counted from 1. The student of step s is the one before the update of step s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

from vcsd.batch import gather
from vcsd.errors import RunError
from vcsd.types import Rollout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.batch import Batch, Shown

RowState = TypeVar("RowState")


class WaitingBatch(TypedDict):
    """A drawn batch as a checkpoint holds it. Its prompts are read again, from the data."""

    step: int
    student_step: int
    rollouts: list[tuple[str, int, list[int], str]]
    log_probs: list[list[float]] | None


@dataclass(frozen=True, eq=False)
class PromptsRead(Generic[RowState]):
    """The prompts of a step, the cursor after their rows, and the row counts up to there."""

    items: tuple[Shown, ...]
    cursor: int
    rows: RowState


@dataclass(frozen=True, eq=False)
class DrawnBatch:
    """The batch of a step, and the step whose student drew it."""

    batch: Batch
    student_step: int


@dataclass(eq=False)
class RolloutQueue(Generic[RowState]):
    """The prompts that are read and the batches that are drawn, by step. A lag of 0 draws each when it is needed.

    >>> queue = RolloutQueue(lag=2)
    >>> queue.plan(1, max_steps=90), queue.plan(1, max_steps=2)
    ([1, 2, 3], [1, 2])
    """

    lag: int
    before: RowState | None = None
    """The row counts before the first prompts were read."""
    prompts: dict[int, PromptsRead[RowState]] = field(default_factory=dict)
    drawn: dict[int, DrawnBatch] = field(default_factory=dict)
    _planned: dict[int, int] = field(default_factory=dict)
    _saved: list[WaitingBatch] = field(default_factory=list)

    def unread(self, step: int, max_steps: int) -> list[int]:
        """Return the steps up to the lag whose prompts are not read yet. Forgets steps that are over."""
        for past in [past for past in self.prompts if past < step]:
            self.drawn.pop(past, None)
            self._planned.pop(past, None)
            read = self.prompts.pop(past)
            if past == step - 1:  # its checkpoint may still be written, which does not need the images
                self.prompts[past] = replace(read, items=())
        return [ahead for ahead in self._until(step, max_steps) if ahead not in self.prompts]

    def plan(self, step: int, max_steps: int) -> list[int]:
        """Return the steps whose batches the student of a step must draw."""
        missing = [ahead for ahead in self._until(step, max_steps) if ahead not in self.drawn]
        self._planned |= dict.fromkeys(missing, step)
        return missing

    def _until(self, step: int, max_steps: int) -> range:
        return range(step, max(step, min(step + self.lag, max_steps)) + 1)

    def add(self, step: int, student_step: int, batch: Batch) -> None:
        """Keep the batch of a step. Raise a RunError if another student drew it than planned."""
        if student_step != self._planned.get(step):
            raise RunError(
                f"the rollouts of step {step} were drawn by the student of step {student_step}, not by that of step "
                f"{self._planned.get(step)} as planned. Nothing is trained on them."
            )
        self.drawn[step] = DrawnBatch(batch, student_step)

    def of(self, step: int) -> DrawnBatch:
        """Return the batch of a step. Raise a RunError if its student is older than the lag allows."""
        drawn = self.drawn[step]
        if not step - self.lag <= drawn.student_step <= step:
            raise RunError(
                f"the rollouts of step {step} were drawn by the student of step {drawn.student_step}, but "
                f"rollout.steps_ahead = {self.lag}. Nothing is trained on them."
            )
        return drawn

    def rows_after(self, step: int) -> RowState | None:
        """Return the row counts up to the rows of a step; None if no prompts were read."""
        return self.prompts[step].rows if step in self.prompts else self.before

    def state(self, step: int) -> list[WaitingBatch]:
        """Return the batches that wait after a step, for its checkpoint."""
        drawn: list[WaitingBatch] = [
            {
                "step": ahead,
                "student_step": drawn.student_step,
                "rollouts": [(r.example_id, r.index, list(r.token_ids), r.stop) for r in drawn.batch.rollouts],
                "log_probs": _log_probs(drawn.batch),
            }
            for ahead, drawn in sorted(self.drawn.items())
            if ahead > step
        ]
        return [*drawn, *self._saved]

    def load(self, state: Sequence[WaitingBatch]) -> None:
        """Remember the batches of a checkpoint, until their prompts are read."""
        self._saved = list(state)

    def restore(self) -> None:
        """Rebuild the batches of a checkpoint from the prompts that were read again.

        A run that is given fewer steps than before reads no prompts after its end. Those batches stay as saved.
        """
        saved = self._saved
        self._saved = [waiting for waiting in saved if waiting["step"] not in self.prompts]
        for waiting in saved:
            if waiting["step"] not in self.prompts:
                continue
            step, prompts = waiting["step"], self.prompts[waiting["step"]].items
            rollouts = [Rollout(name, index, tuple(ids), stop) for name, index, ids, stop in waiting["rollouts"]]  # type: ignore[arg-type]
            if [r.example_id for r in rollouts if r.index == 0] != [shown.example.id for shown in prompts]:
                raise RunError(
                    f"the checkpoint holds rollouts of step {step} for other prompts than the data has there. "
                    "Restore the data of the run."
                )
            self._planned[step] = waiting["student_step"]
            self.add(step, waiting["student_step"], gather(prompts, rollouts, waiting["log_probs"]))


def _log_probs(batch: Batch) -> list[list[float]] | None:
    """Return the log-probabilities of each rollout's tokens, if recorded; none for an empty rollout."""
    if any(group.log_probs is None for group in batch.student):
        return None
    kept = iter([list(logs) for group in batch.student for logs in group.log_probs or ()])
    return [next(kept) if rollout.token_ids else [] for rollout in batch.rollouts]
