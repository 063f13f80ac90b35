"""A whole copy of a sharded student for sampling rollouts: filled before sampling, emptied after it.

Ranks decode responses of different lengths, so decoding must not wait for other ranks. All weights are gathered once
for the whole rollout phase; between steps the copy holds none.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import nn

from vcsd.parallel.sharding import whole

if TYPE_CHECKING:
    from torch import Tensor


class GatheredCopy:
    """The structure of a student, and its weights while they are needed. Build it before the student is sharded.

    With `dtype`, weights are cast. Buffers keep their type, since rotary frequencies need the precision.
    """

    def __init__(self, student: nn.Module, dtype: torch.dtype | None = None) -> None:
        self.student, self.dtype = student, dtype
        known = {id(weight): _empty(weight) for weight in student.parameters()}
        self.module = copy.deepcopy(student, known).eval().requires_grad_(False)

    @torch.no_grad()
    def refresh(self) -> None:
        """Gather the student's current weights. Collective."""
        self.module.to(next(self.student.parameters()).device)
        for mine, theirs in zip(self.module.parameters(), self.student.parameters(), strict=True):
            mine.data = whole(theirs.detach()).to(self.dtype or theirs.dtype)
        for buffer, current in zip(self.module.buffers(), self.student.buffers(), strict=True):
            buffer.copy_(current)

    def release(self) -> None:
        """Free the weights."""
        for weight in self.module.parameters():
            weight.data = weight.data.new_empty(0)


def _empty(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.new_empty(0), requires_grad=False)
