"""Run code inside a wrapped model's forward, where its sharded weights exist.

DDP synchronises gradients, FSDP2 gathers weights and accelerate enters autocast in hooks around the wrapped model's
`forward`. Code that calls an inner module directly bypasses these hooks: FSDP2 raises, DDP silently skips the
synchronisation, autocast silently computes in float32. So `Family.prepare` gives the model and its head a forward that
also accepts a function to run:

    inside(model, partial(loss_of, ...))           # the hooks of the root fire, then loss_of(model) runs
    with_head(model, lambda head: ...)             # the hooks of the head fire: FSDP2 may shard it on its own

Pass tensors through `partial` or a closure, not as arguments of `model(...)`: FSDP2 casts every floating-point tensor
among the root's arguments to its compute type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

from vcsd.models.family import family_of
from vcsd.types import Scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from vcsd.types import Head

Result = TypeVar("Result")


def inside(module: nn.Module, run: Callable[[nn.Module], Result]) -> Result:
    """Return `run(module)`, called inside the forward of a prepared module.

    >>> from torch import nn
    >>> from vcsd.models.patch import open_to_code
    >>> layer = nn.Linear(2, 3)
    >>> open_to_code(layer)
    >>> inside(layer, lambda layer: layer.weight.shape)
    torch.Size([3, 2])
    """
    result: Result = module(run=run)
    return result


def with_head(model: nn.Module, run: Callable[[Head], Result]) -> Result:
    """Return `run(head)`, called inside the head's own forward, where a sharded weight is whole."""
    family = family_of(model)
    return inside(family.head_module(model), lambda _: run(family.head(model)))


def inside_both(
    teacher: nn.Module,
    student: nn.Module,
    look_twice: Callable[[nn.Module], tuple[Tensor, Tensor | None]],
    look: Callable[[nn.Module], Tensor],
    compare: Callable[[Scores, Scores, Scores | None], Result],
) -> Result:
    """Return `compare(student, original, control)` of what the student sees in one look and the teacher in two.

    The looks return hidden states (N, D). FSDP2 gathers a model's weights, and its head's, only while their forwards
    run, so the teacher's forward encloses the student's and each head's forward encloses the comparison. The teacher
    runs without gradient. A student that is its own teacher is entered once: leaving the autocast context of a nested
    forward of the same module would not restore it.
    """

    def compared(model: nn.Module, hidden: tuple[Tensor, Tensor | None], teacher_head: Head | None) -> Result:
        student_ND, (original_ND, control_ND) = look(model), hidden

        def with_both_heads(head: Head) -> Result:
            other = teacher_head or head  # without one, the student is its own teacher
            control = None if control_ND is None else Scores(control_ND, other)
            return compare(Scores(student_ND, head), Scores(original_ND, other), control)

        return with_head(model, with_both_heads)

    def enter_student(hidden: tuple[Tensor, Tensor | None], teacher_head: Head) -> Result:
        with torch.enable_grad():
            return inside(student, lambda model: compared(model, hidden, teacher_head))

    def teach(model: nn.Module) -> Result:
        hidden = look_twice(model)
        return with_head(model, lambda head: enter_student(hidden, head))

    def teach_itself(model: nn.Module) -> Result:
        with torch.no_grad():
            hidden = look_twice(model)
        torch.clear_autocast_cache()  # it may hold casts of weights made without gradient
        return compared(model, hidden, None)

    if teacher is student:
        return inside(student, teach_itself)
    with torch.no_grad():
        return inside(teacher, teach)


def reshard(*models: nn.Module) -> None:
    """Shard parameters again: after a forward without a backward, FSDP2 leaves some of them gathered."""
    for model in models:
        for module in model.modules():
            shard_again = getattr(module, "reshard", None)
            if shard_again is not None:
                shard_again()
