"""What the monitors read: a few numbers per position, formed where the logits are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Statistics:
    """Per position, without gradient: how wide the target is, how far the image moved it, how sure the student is.

        divergence: (N,), nats; the loss of each position before weights, scale and mean.
        support_size: (N,), int32; tokens in the plausible support.
        kl_target_original: (N,), nats; KL(target || original), what the contrast changed.
        argmax_changed: (N,), bool; whether no token is at once a most probable one of the original and of the target.
        student_entropy: (N,), nats, at the distillation temperature.
        realised_contrast: (N,), nats; contrast of the token the student sampled, zero for an end token. None without
            sampled tokens or without a control.

    >>> import torch
    >>> Statistics.empty(3, torch.zeros(()), has_realised=False).support_size.shape
    torch.Size([3])
    """

    divergence: Tensor
    support_size: Tensor
    kl_target_original: Tensor
    argmax_changed: Tensor
    student_entropy: Tensor
    realised_contrast: Tensor | None

    @classmethod
    def empty(cls, num_positions: int, like: Tensor, *, has_realised: bool) -> Statistics:
        """Room for N positions, on the device and in the dtype of `like`; the values are not set."""
        return cls(
            divergence=like.new_empty(num_positions),
            support_size=like.new_empty(num_positions, dtype=torch.int32),
            kl_target_original=like.new_empty(num_positions),
            argmax_changed=like.new_empty(num_positions, dtype=torch.bool),
            student_entropy=like.new_empty(num_positions),
            realised_contrast=like.new_empty(num_positions) if has_realised else None,
        )

    def rows(self, start: int, stop: int) -> Statistics:
        """A view of some positions: writing to it writes to the whole."""
        return Statistics(
            self.divergence[start:stop],
            self.support_size[start:stop],
            self.kl_target_original[start:stop],
            self.argmax_changed[start:stop],
            self.student_entropy[start:stop],
            None if self.realised_contrast is None else self.realised_contrast[start:stop],
        )

    def copy_(self, other: Statistics) -> None:
        """Take over the values of another of the same length."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine is not None:
                mine.copy_(theirs)
