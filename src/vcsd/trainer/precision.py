"""Precision: what is trained is kept in float32, whatever it is computed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn


def refuse_half_precision(model: nn.Module) -> None:
    """Raise a ConfigError if a trained weight is in half precision: at a learning rate of 2e-6 it would not move."""
    half = {
        str(p.dtype).removeprefix("torch.")
        for p in model.parameters()
        if p.requires_grad and p.dtype.itemsize < torch.float32.itemsize
    }
    if half:
        raise ConfigError(
            [
                f"trained weights are in {' and '.join(sorted(half))}: steps at a learning rate of 2e-6 round to "
                "nothing there. Load the model with dtype=torch.float32 and set bf16=True to compute in bfloat16."
            ]
        )
