"""The token budget: how many tokens a row may have, measured before the first step on the worst row there can be.

Memory grows linearly with the tokens of a row: hidden states, and what backward needs of them. Two rows of different
length, forward and backward, give slope and offset; the budget is what fits into the memory that is left when Adam's
moments have theirs. Where memory cannot be measured (CPU), a fixed budget is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from vcsd.batch import Batch, Shown, gather
from vcsd.errors import ConfigError
from vcsd.models.packing import Cost, shared_cost
from vcsd.types import Rollout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

DEFAULT_BUDGET = 16_384
"""Tokens per row where memory is unknown."""

LARGEST_BUDGET = 131_072
"""Longer rows save nothing: the device has been busy for long."""

_MARGIN = 0.1
"""Of the free memory, left for fragmentation and for what attention needs of longer responses."""

_SHORT, _LONG = 2_048, 4_096
_BYTES_OF_MOMENTS = 8

Measure = Callable[[Batch], int]
"""Runs a batch as one row, forward and backward, and returns the bytes it needed at its peak."""


@dataclass(frozen=True)
class Room:
    """Memory in bytes: what is free now, and what Adam's moments will take of it.

    >>> Room(free=100, moments=30).left
    63
    """

    free: int
    moments: int

    @property
    def left(self) -> int:
        """What a row may use."""
        return int((self.free - self.moments) * (1 - _MARGIN))


def room_of(model: nn.Module, device: torch.device) -> Room:
    """Free memory of a CUDA device, before the optimizer has made its state."""
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Room(free + unused, _BYTES_OF_MOMENTS * trained)


def worst_row(shown: Sequence[Shown], token_id: int, num_tokens: int, max_new_tokens: int) -> Batch:
    """The longest prompt with as many full responses as make a row of about `num_tokens`, at least one."""
    longest = max(shown, key=lambda each: each.num_prompt_tokens)
    count = max(1, (num_tokens - longest.num_prompt_tokens) // max_new_tokens)
    response = (token_id,) * max_new_tokens
    rollouts = [Rollout(longest.example.id, index, response, "length") for index in range(count)]
    return gather([longest], rollouts)


def row_tokens(batch: Batch, cost: Cost = shared_cost) -> int:
    """What a batch costs in one row."""
    return cost([(size.prompt, size.responses) for size in batch.sizes()])


def calibrate(measure: Measure, room: Room, row_of: Callable[[int], Batch], cost: Cost = shared_cost) -> int:
    """The largest budget that fits, by two measured rows. A ConfigError if not even one response does.

    `row_of` gives the worst row of about so many tokens.
    """
    rows = [row_of(size) for size in (_SHORT, _LONG)]
    if row_tokens(rows[0]) == row_tokens(rows[1]):
        rows[1] = _doubled(rows[1])
    needed = row_tokens(row_of(0), cost)
    try:
        sizes, peaks = zip(*((row_tokens(row, cost), measure(row)) for row in rows), strict=True)
    except torch.OutOfMemoryError as error:
        raise ConfigError([_too_small(needed, room)]) from error
    budget = fitting(sizes, peaks, room)
    if budget < needed:
        raise ConfigError([_too_small(needed, room)])
    return budget


def _doubled(batch: Batch) -> Batch:
    groups = [replace(group, responses=[*group.responses, *group.responses]) for group in batch.student]
    target = [replace(group, responses=groups[0].responses) for group in batch.target]
    contrast = None if batch.contrast is None else [replace(g, responses=groups[0].responses) for g in batch.contrast]
    return Batch(groups, target, contrast, batch.rollouts)


def fitting(sizes: Sequence[int], peaks: Sequence[int], room: Room) -> int:
    """Tokens that fit, from two measured rows, rounded down to 256.

    >>> fitting([1000, 2000], [10_000_000, 15_000_000], Room(free=120_000_000, moments=0))      # 5 MB + 5 kB per token
    20480
    """
    slope = max((peaks[1] - peaks[0]) / (sizes[1] - sizes[0]), 1.0)
    offset = max(peaks[0] - slope * sizes[0], 0.0)
    return min(LARGEST_BUDGET, math.floor((room.left - offset) / slope / 256) * 256)


def _too_small(needed: int, room: Room) -> str:
    return (
        f"a row of {needed} tokens (the longest prompt with one full response) does not fit into the "
        f"{room.left / 2**30:.1f} GiB that are left. Lower model.max_pixels or rollout.max_new_tokens, freeze a part "
        "of the model, or set trainer.gradient_checkpointing: true."
    )
