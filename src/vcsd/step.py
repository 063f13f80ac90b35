"""Algorithm 1 of the paper: one step of visual contrastive self-distillation.

    sample       The student draws n rollouts for each prompt, seeing the original image.
    look twice   The teacher scores every response with the image and with the image erased.
    shape        Their difference, the contrast, sharpens the teacher's distribution on its plausible support (Eq. 6-8).
    distill      The student moves towards that target by full-vocabulary forward KL (Eq. 10).
    update       The optimizer moves the student; the teacher follows as its moving average.

`sample` and `distill` are here. Shaping is part of `vcsd.loss`, which never holds a whole target. The update is left to
`transformers.Trainer`, which calls `Teacher.update` after the optimizer step (`trainer/after_step.py`).

The rest of a step is elsewhere: views and prompts in `batch.py`, rows of a bounded size in `models/packed`,
FSDP2 and autocast in `models/inside.py`, cached vision features in `models/features.py`; ranks and their gradients in
`parallel/`; out-of-memory retries, checks for finite values and logging in `trainer/`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from vcsd.loss import distillation_loss
from vcsd.models.family import base_model, family_of
from vcsd.models.features import FeatureCache
from vcsd.models.inside import inside_both
from vcsd.models.score import hidden_states, with_pixels_on
from vcsd.parallel.gradients import GradientSync
from vcsd.parallel.padding import own_rows, with_filler
from vcsd.parallel.sharding import towers_gathered
from vcsd.parallel.split import plan_ranks
from vcsd.rollout.shares import RolloutSettings as RolloutSettings
from vcsd.rollout.shares import of_all_ranks, sample_share, where_rollouts_fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.batch import Batch, Shown
    from vcsd.loss import Statistics
    from vcsd.method import Method
    from vcsd.models.packed.packing import PackingPlan
    from vcsd.rollout.engine import RolloutEngine
    from vcsd.types import Scores

Phase = Callable[[str], AbstractContextManager[None]]
"""Called with "rollout", "teacher", "student" or "backward"; times that part of the step."""


def _untimed(name: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, eq=False)
class Distiller:
    """The student that learns, the teacher it learns from, the method, and which of how many ranks this is."""

    student: nn.Module
    teacher: nn.Module
    method: Method
    end_token_ids: frozenset[int]
    phase: Phase = _untimed
    features: FeatureCache = field(default_factory=FeatureCache)
    sync: GradientSync = field(default_factory=GradientSync)
    rank: int = 0
    num_ranks: int = 1


def sample(
    engine: RolloutEngine,
    prompts: Sequence[Shown],
    rollouts: RolloutSettings,
    step: int,
    *,
    with_log_probs: bool = False,
) -> Batch:
    """Let the student answer every prompt. The key of a rollout is (seed, step, example id, index).

    Each rank samples for its share of the prompts, and all return the rollouts of all. `with_log_probs` records the
    log-probability of every token, which `Method.importance_clip` needs.
    """
    own = where_rollouts_fit(lambda: sample_share(engine, prompts, rollouts, step, with_log_probs=with_log_probs))
    return of_all_ranks(prompts, own)


def distill(
    distiller: Distiller, batch: Batch, budget: int, backward: Callable[[Tensor], object]
) -> tuple[Tensor, list[Statistics]]:
    """Compute the step's loss (Eq. 10) in rows of at most `budget` tokens, and its gradient by calling `backward`.

    Returns the loss without gradient, and the statistics of each row's positions. How the batch is cut into rows does
    not matter: the weight of each position accounts for the whole step, and the losses of the rows add up. With several
    ranks, the result is this rank's part; its gradients are complete after `distiller.sync.finish()`.
    """
    student = base_model(distiller.student)
    plans = _plans(distiller, batch, budget)
    rows = own_rows(batch, plans, distiller.rank, in_step=distiller.sync.in_step)
    loss, statistics = torch.zeros((), device=student.device), []
    with (
        distiller.features.step(distiller.student, distiller.teacher),
        towers_gathered(distiller.student, distiller.teacher),
    ):
        for number, (row, filler) in enumerate(rows, start=1):
            own_N = batch.weights_of(row, distiller.method, distiller.num_ranks)
            weights_N = with_filler(own_N, filler).to(student.device)
            with distiller.sync.row(is_last=number == len(rows)):
                whole_row = row if filler is None else row.joined(filler)
                row_loss, row_statistics = _distill_row(distiller, whole_row, weights_N)
                with distiller.phase("backward"):
                    if row_loss.requires_grad:  # not if only the tower is trained and the row has no image
                        backward(row_loss)
            loss += row_loss.detach() / distiller.num_ranks
            statistics.append(row_statistics.rows(0, row.num_tokens))
    return loss, statistics


def scored_responses(distiller: Distiller, batch: Batch, budget: int) -> list[tuple[str, Sequence[int]]]:
    """Return the example and the tokens of every response, in the order in which all ranks score their positions."""
    rows = [row for plan in _plans(distiller, batch, budget) for row in batch.rows(plan)]
    return [(group.example_id, response) for row in rows for group in row.student for response in group.responses]


def _plans(distiller: Distiller, batch: Batch, budget: int) -> list[PackingPlan]:
    """The rows of every rank."""
    return plan_ranks(batch.sizes(), budget, family_of(distiller.student).cost, distiller.num_ranks)


def _distill_row(distiller: Distiller, row: Batch, weights_N: Tensor) -> tuple[Tensor, Statistics]:
    """Look twice with the teacher, once with the student, and compare."""
    phase, features, device = distiller.phase, distiller.features, weights_N.device
    student_view, teacher_view = with_pixels_on(device, row.student, row.target)
    objective = distiller.method.objective(distiller.end_token_ids)
    token_ids_N = torch.tensor(row.token_ids, device=device)
    log_p_N = None if row.log_probs is None else torch.tensor(row.log_probs, device=device)

    def look_twice(teacher: nn.Module) -> tuple[Tensor, Tensor | None]:
        with phase("teacher"):
            original_ND = hidden_states(teacher, teacher_view, features)
            return original_ND, None if row.contrast is None else hidden_states(teacher, row.contrast, features)

    def look(student: nn.Module) -> Tensor:
        with phase("student"):
            return hidden_states(student, student_view, features.for_student)

    def compare(student: Scores, original: Scores, control: Scores | None) -> tuple[Tensor, Statistics]:
        with phase("student"):
            return distillation_loss(
                student,
                original,
                control,
                objective,
                weights_N,
                realised_token_ids=token_ids_N,
                sampled_log_probs=log_p_N,
            )

    return inside_both(distiller.teacher, distiller.student, look_twice, look, compare)
