"""A quick hash of a model's weights, which tells two models apart without reading all of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

_NUM_VALUES = 16
"""How many values of each weight are hashed: another model differs in all of them."""


def weights_hash(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Hash names, types, shapes and some values of weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in weights:
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(_some_values(weight).numpy().tobytes())
    return digest.hexdigest()


def _some_values(weight: Tensor) -> Tensor:
    """Return a few values, spread over a weight, as bytes on the CPU."""
    flat = weight.detach().reshape(-1)
    return flat[:: max(1, len(flat) // _NUM_VALUES)].contiguous().cpu().view(torch.uint8)
