"""The token budget: the largest number of tokens in a row, measured before the first step on worst-case rows.

Memory grows linearly with the tokens of a row: hidden states, and what the backward pass keeps. Running two rows of
different length forward and backward gives slope and offset; the budget is what fits next to Adam's moments. Where
memory cannot be measured (CPU), the budget is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vcsd.batch import Batch, Shown, gather
from vcsd.errors import ConfigError
from vcsd.kernels.device import free_bytes
from vcsd.models.packed.packing import Cost, shared_cost
from vcsd.parallel.distress import in_step_or_none
from vcsd.parallel.ranks import gathered, on_every
from vcsd.parallel.sharding import local_part
from vcsd.types import Rollout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from vcsd.models.packed.packing import Group

DEFAULT_BUDGET = 16_384
"""Tokens per row where memory is unknown."""

LARGEST_BUDGET = 131_072
"""Longer rows are no faster: the device is already fully used."""

_MARGIN = 0.1
"""Share of the free memory reserved for fragmentation and for the attention of longer responses."""

_SHORT, _LONG = 2_048, 4_096
_BYTES_OF_MOMENTS = 8

Measure = Callable[[Batch], int]
"""Runs a batch as one row, forward and backward, and returns its peak memory in bytes."""


@dataclass(frozen=True)
class Room:
    """Memory in bytes: what is free now, and what Adam's moments will take.

    >>> Room(free=100, moments=30).left
    63
    """

    free: int
    moments: int

    @property
    def left(self) -> int:
        """Bytes that a row may use."""
        return int((self.free - self.moments) * (1 - _MARGIN))


def room_of(model: nn.Module, device: torch.device, *, has_moments: bool = True) -> Room:
    """Measure the free memory of a CUDA device before the optimizer allocates its moments, if they stay there."""
    trained = sum(local_part(parameter).numel() for parameter in model.parameters() if parameter.requires_grad)
    return Room(free_bytes(device), _BYTES_OF_MOMENTS * trained * has_moments)


def worst_row(shown: Sequence[Shown], token_id: int, num_tokens: int, max_new_tokens: int) -> Batch:
    """Build a row of about `num_tokens`: the longest prompt with full-length responses, at least one."""
    longest = max(shown, key=lambda example: example.num_prompt_tokens)
    count = max(1, (num_tokens - longest.num_prompt_tokens) // max_new_tokens)
    response = (token_id,) * max_new_tokens
    rollouts = [Rollout(longest.example.id, index, response, "length") for index in range(count)]
    return gather([longest], rollouts, [[0.0] * max_new_tokens for _ in rollouts])


def row_tokens(batch: Batch, cost: Cost = shared_cost) -> int:
    """Return the cost of a batch as one row, in tokens."""
    return cost([(size.prompt, size.responses) for size in batch.sizes()])


def calibrate(measure: Measure, room: Room, row_of: Callable[[int], Batch], cost: Cost = shared_cost) -> int:
    """Measure two rows and return the largest budget that fits. Raise a ConfigError if not even one response does.

    `row_of(num_tokens)` builds the worst-case row of about that many tokens.
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


def agreed_budget(
    measure: Measure, room: Room, row_of: Callable[[int], Batch], cost: Cost = shared_cost, *, in_step: bool
) -> int:
    """Calibrate on every rank and return the smallest budget. If one has no room, raise on all. Collective.

    With `in_step`, ranks wait for each other inside a row.
    """

    def measure_together(row: Batch) -> int:
        peak = in_step_or_none(lambda: measure(row)) if in_step else measure(row)
        if peak is None:
            raise torch.OutOfMemoryError("a rank is out of memory")
        return peak

    return min(gathered(on_every(lambda: calibrate(measure_together, room, row_of, cost))))


def _doubled(batch: Batch) -> Batch:
    def twice(groups: list[Group]) -> list[Group]:
        return [group.only([*range(len(group.responses))] * 2) for group in groups]

    contrast = None if batch.contrast is None else twice(batch.contrast)
    return Batch(twice(batch.student), twice(batch.target), contrast, batch.rollouts)


def fitting(sizes: Sequence[int], peaks: Sequence[int], room: Room) -> int:
    """Return how many tokens fit, given two measured rows, rounded down to a multiple of 256.

    >>> fitting([1000, 2000], [10_000_000, 15_000_000], Room(free=120_000_000, moments=0))      # 5 MB + 5 kB per token
    20480
    """
    slope = max((peaks[1] - peaks[0]) / (sizes[1] - sizes[0]), 1.0)
    offset = max(peaks[0] - slope * sizes[0], 0.0)
    return min(LARGEST_BUDGET, math.floor((room.left - offset) / slope / 256) * 256)


def _too_small(needed: int, room: Room) -> str:
    return (
        f"a packed row of {needed} tokens (the longest prompt with one full response) does not fit into the "
        f"remaining {room.left / 2**30:.1f} GiB. Lower model.max_pixels or rollout.max_new_tokens, freeze a part "
        "of the model, or set trainer.gradient_checkpointing: true."
    )
