"""Algorithm 1: the student answers, the teacher looks twice, the difference shapes a target, the student moves.

    sample    n answers per prompt from the student's original view
    distil    for each row: score the teacher under two views and the student under one, shape, diverge, reduce

Left out: the optimizer step and the teacher's update, which follow, and everything about memory, time and logging.

The teacher's pass encloses the student's, and each head's forward encloses the loss: sharded weights exist only while
their module's forward runs. Rows add up to the step's loss: weights per position carry scale, length and number of
responses, so that it does not matter how the step is cut into rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from vcsd.batch import Batch, Shown, gather
from vcsd.core import response_weights, token_weights
from vcsd.kernels import distillation_loss
from vcsd.models.family import base_model, family_of
from vcsd.models.inside import inside, reshard
from vcsd.models.packing import plan_rows
from vcsd.models.score import hidden_states, with_pixels_on
from vcsd.models.vision import FeatureCache, same_weights, tower_of, trains, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.kernels import Statistics
    from vcsd.method import Method
    from vcsd.models.packing import Group
    from vcsd.rollout.sampling import Sampling
    from vcsd.rollout.transformers import TransformersEngine
    from vcsd.types import Head

Looks = tuple["Tensor", "Tensor | None"]
"""The teacher's hidden states under the target view and, where there is one, the contrast view."""

Phase = Callable[[str], AbstractContextManager[Any]]
"""Called with the name of a part of the step, "rollout", "teacher", "student" or "backward", around it."""


def _untimed(name: str) -> AbstractContextManager[Any]:
    return nullcontext()


@dataclass(frozen=True)
class Rollouts:
    """How the student answers: how many times per prompt, and how a token is drawn."""

    sampling: Sampling
    num_per_prompt: int = 8
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Distiller:
    """Whose weights move towards whose, by which method, in rows of how many tokens."""

    student: nn.Module
    teacher: nn.Module
    method: Method
    end_token_ids: frozenset[int]
    num_ranks: int = 1
    phase: Phase = _untimed
    features: FeatureCache = field(default_factory=FeatureCache)
    alike: dict[Hashable, bool] = field(default_factory=dict, repr=False)
    """What `has_one_tower` has found, for copies of this one too."""

    @property
    def towers(self) -> tuple[nn.Module | None, nn.Module | None]:
        """The student's and the teacher's."""
        return tower_of(base_of(self.student)), tower_of(base_of(self.teacher))

    @property
    def trains_tower(self) -> bool:
        """Whether the student's way to see images is trained."""
        return trains(self.towers[0])

    @property
    def vision_version(self) -> Hashable:
        """A value that changes with the vision weights of student or teacher. Sharded ones must be at rest."""
        return tuple(map(version_of, self.towers))

    @property
    def has_one_tower(self) -> bool:
        """Whether student and teacher see images alike: compared once for each version of their weights."""
        version = self.vision_version
        if version not in self.alike:
            self.alike.clear()
            self.alike[version] = same_weights(*self.towers)
        return self.alike[version]


def sample(engine: TransformersEngine, shown: Sequence[Shown], rollouts: Rollouts, step: int) -> Batch:
    """Let the student answer every prompt as it sees it. A rollout is keyed by step, example and index."""
    prompts = [each.student for each in shown]
    drawn = engine.sample(
        prompts, rollouts.sampling, num_rollouts=rollouts.num_per_prompt, seed=rollouts.seed, step=step
    )
    return gather(shown, drawn.rollouts)


def distil(
    distiller: Distiller, batch: Batch, budget: int, backward: Callable[[Tensor], object]
) -> tuple[Tensor, list[Statistics]]:
    """Score, shape, diverge and reduce a batch in rows of at most `budget` tokens; gradients go to the student.

    Returns the step's loss (Eq. 10) without gradient, and the statistics of each row's positions.
    """
    method = distiller.method
    totals: dict[str, Any] = {"loss_scale": method.loss_factor, "num_ranks": distiller.num_ranks}
    weigh: Callable[[Tensor], Tensor]
    if method.reduction == "response_mean":
        weigh = partial(response_weights, num_responses=batch.num_responses, **totals)
    else:
        weigh = partial(token_weights, num_tokens=batch.num_tokens, **totals)
    plan = plan_rows(batch.sizes(), budget, family_of(base_of(distiller.student)).cost)
    reshard(distiller.student, distiller.teacher)
    # A tower that is not trained stays as it is in a teacher that follows, so that constant images last.
    distiller.features.begin_step(None if distiller.trains_tower else distiller.vision_version)
    reads = not distiller.trains_tower and distiller.has_one_tower
    students = distiller.features if reads else None
    loss, found = torch.zeros((), device=base_of(distiller.student).device), []
    for row in range(len(plan.rows)):
        student, target = plan.select(batch.student, row), plan.select(batch.target, row)
        contrast = None if batch.contrast is None else plan.select(batch.contrast, row)
        lengths = torch.tensor([length for group in student for length in group.lengths])
        part, statistics = _pull(distiller, (student, target, contrast), weigh(lengths), students)
        with distiller.phase("backward"):
            backward(part)
        loss += part.detach() / distiller.num_ranks
        found.append(statistics)
    distiller.features.end_step()
    return loss, found


def _pull(
    distiller: Distiller,
    views: tuple[list[Group], list[Group], list[Group] | None],
    weights_N: Tensor,
    features_of_student: FeatureCache | None,
) -> tuple[Tensor, Statistics]:
    """The row's part of the loss. The teacher's pass is without gradient, the student's inside it is with."""
    method, features, device = distiller.method, distiller.features, base_of(distiller.student).device
    student, target = with_pixels_on(device, *views[:2])
    contrast = views[2]
    realised_N = torch.tensor([token for group in student for response in group.responses for token in response])

    def look(teacher: nn.Module) -> Looks:
        with distiller.phase("teacher"), torch.no_grad():
            original_ND = hidden_states(teacher, target, features)
            return original_ND, None if contrast is None else hidden_states(teacher, contrast, features)

    def learn(looks: Looks, teacher_head: Head | None, model: nn.Module) -> tuple[Tensor, Statistics]:
        hidden_ND = hidden_states(model, student, features_of_student)
        return family_of(model).with_head(
            model,
            lambda head: distillation_loss(
                *(hidden_ND, head, *looks, teacher_head or head),
                end_token_ids=distiller.end_token_ids,
                realised_token_ids=realised_N.to(device),
                weights=weights_N.to(device),
                **_objective(method),
            ),
        )

    def teach(teacher: nn.Module) -> tuple[Tensor, Statistics]:
        return family_of(teacher).with_head(teacher, partial(enter_student, look(teacher)))

    def enter_student(looks: Looks, teacher_head: Head) -> tuple[Tensor, Statistics]:
        with distiller.phase("student"), torch.enable_grad():
            return inside(distiller.student, partial(learn, looks, teacher_head))

    def teach_oneself(model: nn.Module) -> tuple[Tensor, Statistics]:
        looks = look(model)
        torch.clear_autocast_cache()  # autocast may reuse casts made without gradient, which are constants
        with distiller.phase("student"):
            return learn(looks, None, model)

    if distiller.teacher is distiller.student:  # one forward: an autocast entered twice is never left
        return inside(distiller.student, teach_oneself)
    with torch.no_grad():
        return inside(distiller.teacher, teach)


def _objective(method: Method) -> dict[str, Any]:
    """The fields of a method that shape target and divergence."""
    names = ("alpha", "beta", "anchor", "end_tokens_keep_anchor", "divergence", "js_weight", "log_floor", "temperature")
    return {name: getattr(method, name) for name in names}


def base_of(model: nn.Module) -> Any:
    """The transformers model inside DDP and PEFT."""
    return base_model(getattr(model, "module", model))
