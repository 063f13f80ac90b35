"""Dither: random offsets that let a pass in bfloat16 see small updates of float32 weights.

A pass in bfloat16 rounds every weight to the nearest bfloat16 number. The weights of a released model are such numbers,
each in the middle of the interval that rounds to it. An update that stays within the interval changes nothing that a
pass computes, while the float32 weights keep moving without feedback.

So each weight gets an offset once, before the first step: a random place in its interval, each as likely as the others.
The rounded model is still the same bit for bit. From then on, an update of a tenth of the interval changes one rounded
weight in ten, so the mean over many weights is as if nothing were rounded.

Left as they are: frozen weights; weights that are not bfloat16 numbers, which have such an offset already; zeros and
numbers below 2^-125, where bfloat16 numbers are closer to each other than any update.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

log = logging.getLogger(__name__)

_LOW_BITS = 0xFFFF
"""The bits of a float32 number that a bfloat16 number does not have."""

_FARTHEST = 0x7FFF
"""The largest offset, in units of the last bit. One more is the end of the interval, which may round away."""

_MANTISSA, _MAGNITUDE = 0x7FFFFF, 0x7FFFFFFF
_SMALLEST, _INFINITY = 0x01000000, 0x7F800000
"""The bits of 2^-125 and of infinity."""

_AT_ONCE = 2**20
"""Weights that get their offsets together, which bounds the memory for random numbers."""


@torch.no_grad()
def add_offsets(model: nn.Module, seed: int) -> int:
    """Add an offset to each trained float32 weight that is a bfloat16 number, and return how many there are.

    Call it on whole weights, before copies are made. An offset depends on the seed, the parameter's name and the place
    in the parameter alone. Tied parameters get it once. Idempotent.

    >>> layer = torch.nn.Linear(64, 64, bias=False)
    >>> _ = torch.nn.init.constant_(layer.weight, 0.5)
    >>> add_offsets(layer, seed=0), len(layer.weight.unique()) > 3000, len(layer.weight.bfloat16().unique())
    (4096, True, 1)
    """
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    count = sum(_add_to(p, _seed_of(seed, name)) for name, p in trained if p.dtype == torch.float32)
    log.info("Dither: %d of %d trained weights have an offset.", count, sum(p.numel() for _, p in trained))
    return count


def _seed_of(seed: int, name: str) -> int:
    """Return the seed of a parameter: 32 bits, since torch's generator uses no more."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=4).digest(), "big")


def _add_to(weight: Tensor, seed: int) -> int:
    """Add offsets in place, and return how many. Random numbers come from the CPU, whatever the weight's device."""
    generator, count = torch.Generator().manual_seed(seed), 0
    flat = weight.detach().reshape(-1)
    for bits in flat.view(torch.int32).split(_AT_ONCE):  # type: ignore[no-untyped-call]
        draws = torch.empty(len(bits), dtype=torch.int32).random_(-_FARTHEST, _FARTHEST + 1, generator=generator)
        gets_offset = _gets_offset(bits)
        bits.add_(_in_interval(bits, draws.to(bits.device)).mul_(gets_offset))
        count += int(gets_offset.sum())
    weight.detach().copy_(flat.view_as(weight))  # if it is not contiguous, flat is a copy
    return count


def _gets_offset(bits: Tensor) -> Tensor:
    """Whether numbers, given as bits, are those of bfloat16, finite, and not tiny."""
    magnitude = bits & _MAGNITUDE
    return (bits & _LOW_BITS == 0) & (magnitude >= _SMALLEST) & (magnitude < _INFINITY)


def _in_interval(bits: Tensor, draws: Tensor) -> Tensor:
    """Return what to add to the bits of bfloat16 numbers, given draws between -0x7FFF and 0x7FFF.

    Adding one to the bits gives the next float32 number, so a draw is an offset. Powers of two differ: numbers below
    them are half as far apart, so a third of the interval lies below, with as many numbers as the two thirds above.
    For these, draws are spread over the interval in the wider spacing, and those that fall below count double.
    """
    draws_of_power = (3 * draws + _FARTHEST).div_(4, rounding_mode="trunc")
    of_power = torch.where(draws_of_power < 0, 2 * draws_of_power, draws_of_power)
    return torch.where(bits & _MANTISSA == 0, of_power, draws)
