"""A teacher whose float32 weights are in host memory. A bfloat16 copy of them scores on the device.

The average is computed on the device, a bucket of weights at a time, and equals that of a teacher on the device bit for
bit. The scores do not: under autocast, a float32 teacher computes norms and residuals in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.models.freeze import cast_copy_of
from vcsd.parallel.offload import buckets, in_host_memory, visits
from vcsd.teacher import Teacher

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    Change = Callable[[list[Tensor], list[Tensor], list[Tensor]], None]
    """Changes the teacher's weights, given those of the student and of the copy that scores."""


class HostTeacher(Teacher):
    """A teacher with two sets of weights: those that follow the student, and those that score.

    Call `refresh` when the student and `module` are on the device and the weights are loaded.
    """

    def __init__(self, student: nn.Module, kind: str = "ema", *, ema_rate: float = 0.05, every: int = 10) -> None:
        super().__init__(student, kind, ema_rate=ema_rate, every=every)
        self._gap: float | None = None
        if kind == "current":
            return
        self._homes = [in_host_memory(parameter.data) for parameter in self._weights.parameters()]
        """The weights' memory, which is page-locked as long as these tensors exist."""
        for parameter, home in zip(self._weights.parameters(), self._homes, strict=True):
            parameter.data = home
        self.module = cast_copy_of(self._weights, torch.bfloat16)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy all weights to the model that scores, after they were loaded from a checkpoint."""
        if self.kind == "current":
            return
        homes, scoring = ([*module.parameters(), *module.buffers()] for module in (self._weights, self.module))
        for home, scores in zip(homes, scoring, strict=True):
            scores.copy_(home)
        self._gap = None

    @torch.no_grad()
    def update(self) -> None:
        """Follow the student, and refresh the copy that scores."""
        self.num_updates += 1
        is_due = self.kind == "periodic" and self.num_updates % self.every == 0
        if self.kind != "ema" and not is_due:
            self._gap = None  # the student has moved
            return
        self._visit(self._follow)
        for student, home, scoring in self._all_buffers():
            home.copy_(student)
            scoring.copy_(student)

    def _follow(self, teacher: list[Tensor], student: list[Tensor], scoring: list[Tensor]) -> None:
        if self.kind == "ema":
            torch._foreach_lerp_(teacher, student, self.ema_rate)
        else:
            torch._foreach_copy_(teacher, student)
        torch._foreach_copy_(scoring, teacher)

    def distance(self) -> float:
        """Return |teacher - student| / |student| over all trained parameters, as measured by the last update."""
        if self.kind == "current":
            return 0.0
        if self._gap is None:
            self._visit(lambda teacher, student, scoring: None)
        assert self._gap is not None
        return self._gap

    @torch.no_grad()
    def _visit(self, change: Change) -> None:
        """Bring the trained weights to the device, change them there, and measure the distance to the student."""
        students, homes = (list(tensors) for tensors in zip(*self._pairs(), strict=True))
        trained = zip(self.student.parameters(), self.module.parameters(), strict=True)
        scoring = [scores.detach() for student, scores in trained if student.requires_grad]
        gaps: list[Tensor] = []
        sizes: list[Tensor] = []
        parts, start = list(buckets(homes)), 0
        for visitors, part in zip(visits(parts, students[0].device), parts, strict=True):
            here = slice(start, start + len(part))
            change(visitors, students[here], scoring[here])
            gaps += [(mine - theirs).norm().double() for mine, theirs in zip(visitors, students[here], strict=True)]
            sizes += [student.norm().double() for student in students[here]]
            start += len(part)
        self._gap = float(torch.stack(gaps).norm() / torch.stack(sizes).norm())

    def _all_buffers(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        modules = (self.student, self._weights, self.module)
        return list(zip(*(module.buffers() for module in modules), strict=True))
