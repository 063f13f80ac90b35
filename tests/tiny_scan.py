"""Chunks of the gated delta rule as `delta_scan` takes them, drawn, and the loop that defines what it gives."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NAMES = ("read", "expected", "written", "writer", "inner", "shrink", "state")
ROUNDED = ("read", "expected", "writer", "inner")


def drawn_chunks(
    draw: Callable[..., Tensor], heads: int, length: int, sizes: tuple[int, int, int], dtype: torch.dtype
) -> dict[str, Any]:
    """Tokens beyond the length are no different from others: it is the kernel that must leave them out."""
    C, K, V = sizes
    J = -(-length // C)
    given = {
        "read": draw(heads, J, C, K, seed=1) * K**-0.5,
        "expected": draw(heads, J, C, K, seed=2) * (0.5 * K**-0.5),
        "written": draw(heads, J, C, V, seed=3),
        "writer": draw(heads, J, C, K, seed=4) * K**-0.5,
        "inner": draw(heads, J, C, C, seed=5).tril() * C**-0.5,
        "shrink": torch.sigmoid(draw(heads, J, seed=6)),
        "state": draw(heads, K, V, seed=7),
    }
    return {name: x.to(dtype) if name in ROUNDED else x for name, x in given.items()}


def by_loop(given: dict[str, Any], length: int, num_sequences: int = 2) -> tuple[Tensor, Tensor]:
    """The definition, one chunk after the other."""
    read, expected, written, writer, inner, shrink, state = (given[name] for name in NAMES)
    if state is None:
        state = written.new_zeros(len(read), read.shape[-1], written.shape[-1])
    outs = []
    for j in range(read.shape[1]):
        new = written[:, j] - expected[:, j] @ state
        outs.append(read[:, j] @ state + inner[:, j] @ new)
        state = shrink[:, j, None, None] * state + writer[:, j].mT @ new
    out = torch.cat(outs, 1)[:, :length]
    return out.unflatten(0, (num_sequences, -1)).transpose(1, 2), state
