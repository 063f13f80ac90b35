"""Per-position statistics for the monitors, computed where the logits are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Statistics:
    """Numbers per position, without gradient.

    divergence: (N,), nats, before weights, scale and mean.
    support_size: (N,), int32; tokens in the plausible support.
    kl_target_original: (N,), nats; KL(target || original), what the contrast changed.
    argmax_changed: (N,), bool; whether the contrast changed the most probable token (any of several equal ones).
    student_entropy: (N,), nats, at the distillation temperature.
    realised_contrast: (N,), nats; contrast of the token the student sampled, zero for an end token. None without
        sampled tokens or without a control.
    """

    divergence: Tensor
    support_size: Tensor
    kl_target_original: Tensor
    argmax_changed: Tensor
    student_entropy: Tensor
    realised_contrast: Tensor | None

    @classmethod
    def empty(cls, num_positions: int, like: Tensor, *, has_realised: bool) -> Statistics:
        """Allocate for N positions on the device and in the dtype of `like`; values are not set."""
        return cls(
            divergence=like.new_empty(num_positions),
            support_size=like.new_empty(num_positions, dtype=torch.int32),
            kl_target_original=like.new_empty(num_positions),
            argmax_changed=like.new_empty(num_positions, dtype=torch.bool),
            student_entropy=like.new_empty(num_positions),
            realised_contrast=like.new_empty(num_positions) if has_realised else None,
        )

    def rows(self, start: int, stop: int) -> Statistics:
        """A view of some positions; writing to it writes to this object."""
        return replace(self, **{name: x[start:stop] for name, x in vars(self).items() if x is not None})

    def copy_(self, other: Statistics) -> None:
        """Copy the values of another object of the same length."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine is not None:
                mine.copy_(theirs)
