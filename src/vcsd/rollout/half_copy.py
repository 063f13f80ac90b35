"""A half-precision copy of the student for sampling rollouts, refreshed before each step.

Under autocast the float32 student computes norms and residuals in float32 and casts in every layer. Decoding is limited
by kernel launches and memory, so a copy in bfloat16 decodes faster. It costs two bytes per parameter; with LoRA, two
bytes per parameter of the adapters, if the base is already in bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.models.freeze import cast_copy_of

if TYPE_CHECKING:
    from torch import nn


class HalfCopy:
    """A copy with cast parameters."""

    def __init__(self, student: nn.Module, dtype: torch.dtype = torch.bfloat16) -> None:
        self.student = student
        self.module = cast_copy_of(student, dtype).eval()

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the student's current weights, and move to its device."""
        device = next(self.student.parameters()).device
        self.module.to(device)
        pairs = zip(self.module.parameters(), self.student.parameters(), strict=True)
        own = [(mine.detach(), other.detach()) for mine, other in pairs if mine is not other]
        torch._foreach_copy_([mine for mine, _ in own], [other for _, other in own])
        for mine, buffer in zip(self.module.buffers(), self.student.buffers(), strict=True):
            mine.copy_(buffer)

    def release(self) -> None:
        """Keep the weights: they are overwritten before the next step."""
