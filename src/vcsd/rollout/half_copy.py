"""A half-precision copy of the student for sampling rollouts, refreshed before each step.

Under autocast the float32 student computes norms and residuals in float32 and casts in every layer. Decoding is limited
by kernel launches and memory, so a copy in bfloat16 decodes faster. It costs two bytes per parameter.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import nn


class HalfCopy:
    """A copy with cast parameters. Buffers keep their type, since rotary frequencies need the precision."""

    def __init__(self, student: nn.Module, dtype: torch.dtype = torch.bfloat16) -> None:
        self.student = student
        self.module = copy.deepcopy(student).eval().requires_grad_(False)
        for parameter in self.module.parameters():
            parameter.data = parameter.data.to(dtype)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the student's current weights, and move to its device."""
        device = next(self.student.parameters()).device
        self.module.to(device)
        ours, theirs = ([p.detach() for p in model.parameters()] for model in (self.module, self.student))
        torch._foreach_copy_(ours, theirs)
        for mine, buffer in zip(self.module.buffers(), self.student.buffers(), strict=True):
            mine.copy_(buffer)
