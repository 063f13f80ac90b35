"""Drawing tokens from logits: sampling values, keyed random numbers, and the draw.

Sampling values never come from a model's generation config, so that a released default cannot change an experiment.
Randomness is a function of (seed, step, example id, rollout index, token). It does not matter which rank draws a
rollout, which others share its batch, or whether the run was resumed.

Shape legend: R rollouts, V vocabulary.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vcsd.core.probability import at_least_float32
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_PER_DIGEST = 4
_NUCLEUS_GUESS = 1024
"""Candidates sorted first: they nearly always contain the nucleus, and sorting a whole vocabulary is slow."""

MIN_TEMPERATURE = 0.01
"""The lowest temperature above 0. vLLM raises lower values to this one; here they are refused."""


@dataclass(frozen=True)
class Sampling:
    """How rollouts are drawn. Temperature 0 is greedy. Definitions and order are those of vLLM, except for ties.

    First presence_penalty is subtracted from the logit of every token that the rollout (not the prompt) already
    contains, and logits are divided by temperature. Then min_p removes tokens below min_p times the largest
    probability, top_k keeps the k most likely of the rest, and top_p the smallest set of these with top_p of their
    mass. Tokens tied with the last one kept stay; vLLM keeps some of them, by their order.
    """

    max_new_tokens: int = 1024
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    presence_penalty: float = 0.0

    def __post_init__(self) -> None:
        is_greedy = _lies_in(self.temperature, 0, 0)
        is_warm = _lies_in(self.temperature, MIN_TEMPERATURE, math.inf)
        limits = {
            "max_new_tokens": (_counts(self.max_new_tokens), "a whole number of at least 1"),
            "temperature": (is_greedy or is_warm, f"0 (greedy), or a finite number from {MIN_TEMPERATURE} on"),
            "top_p": (_lies_in(self.top_p, 0, 1) and self.top_p > 0, "in (0, 1]; 1 is off"),
            "top_k": (self.top_k is None or _counts(self.top_k), "a whole number of at least 1, or null for off"),
            "min_p": (_lies_in(self.min_p, 0, 1) and self.min_p < 1, "in [0, 1); 0 is off"),
            "presence_penalty": (_lies_in(self.presence_penalty, -2, 2), "in [-2, 2]; 0 is off"),
        }
        problems = [
            f"sampling.{name} = {getattr(self, name)!r} must be {allowed}."
            for name, (ok, allowed) in limits.items()
            if not ok
        ]
        if problems:
            raise ConfigError(problems)


def _counts(value: object) -> bool:
    """Whether a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _lies_in(value: object, low: float, high: float) -> bool:
    """Whether a value is a finite number in [low, high]."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and low <= value <= high  # type: ignore[arg-type, operator]


def rollout_key(seed: int, step: int, example_id: str, index: int) -> str:
    """The key of one rollout's stream of random numbers."""
    return f"{seed}/{step}/{index}/{example_id}"


def uniforms(keys: Sequence[str], start: int, count: int) -> Tensor:
    """Uniform numbers in [0, 1) for tokens start to start + count of each rollout, (R, count) in float64.

    >>> a, b = uniforms(["7/0/0/x"], 0, 8), uniforms(["7/0/1/x", "7/0/0/x"], 4, 4)
    >>> torch.equal(a[0, 4:], b[1])
    True
    """
    assert start % _PER_DIGEST == 0, f"start = {start} is not a multiple of {_PER_DIGEST}"
    blocks = range(start // _PER_DIGEST, -(-(start + count) // _PER_DIGEST))
    rows = [[x for block in blocks for x in _four(f"{key}/{block}")] for key in keys]
    return torch.tensor(rows, dtype=torch.float64)[:, :count]


def _four(name: str) -> list[float]:
    """Four numbers from one digest. 52 bits each: u times a total is then always below the total."""
    words = struct.unpack("<4Q", hashlib.sha256(name.encode()).digest())
    return [(word >> 12) / 2**52 for word in words]


def draw(logits_RV: Tensor, uniform_R: Tensor, sampling: Sampling, seen_RV: Tensor | None = None) -> Tensor:
    """One token per row (R,). seen_RV marks the tokens that each rollout contains; needed for a presence penalty.

    A row with NaN or +inf, or without any finite logit, draws V, which is not a token.
    """
    logits_RV = at_least_float32(logits_RV)
    if sampling.presence_penalty and seen_RV is not None:
        logits_RV = logits_RV - sampling.presence_penalty * seen_RV
    if sampling.temperature == 0:
        token_R = logits_RV.argmax(-1)
        # A token can be drawn if and only if the largest logit is finite: argmax treats NaN as the largest.
        is_drawn_R = logits_RV.gather(1, token_R[:, None])[:, 0].isfinite()
        return torch.where(is_drawn_R, token_R, logits_RV.shape[-1])
    p_RV = filtered(logits_RV / sampling.temperature, sampling).softmax(-1)
    cumulative_RV = p_RV.cumsum(-1, dtype=torch.float64)
    aim_R = uniform_R * cumulative_RV[:, -1]
    return torch.searchsorted(cumulative_RV, aim_R[:, None], right=True)[:, 0]


def filtered(logits_RV: Tensor, sampling: Sampling) -> Tensor:
    """Logits with -inf for every token that min_p, top_k and top_p remove."""
    if sampling.min_p:
        floor_R1 = logits_RV.amax(-1, keepdim=True) + torch.tensor(sampling.min_p).log().item()
        logits_RV = logits_RV.masked_fill(logits_RV < floor_R1, -torch.inf)
    if sampling.top_k is not None and sampling.top_k < logits_RV.shape[-1]:
        floor_R1 = logits_RV.topk(sampling.top_k).values[:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < floor_R1, -torch.inf)
    if sampling.top_p < 1:
        logits_RV = logits_RV.masked_fill(logits_RV < _nucleus_floor(logits_RV, sampling.top_p), -torch.inf)
    return logits_RV


def _nucleus_floor(logits_RV: Tensor, top_p: float) -> Tensor:
    """The smallest logit (R, 1) of the nucleus: the most likely tokens that together hold top_p."""
    log_total_R1 = logits_RV.logsumexp(-1, keepdim=True)
    vocabulary = logits_RV.shape[-1]
    for count in (min(_NUCLEUS_GUESS, vocabulary), vocabulary):
        top_RC = logits_RV.topk(count).values
        before_RC = (top_RC - log_total_R1).exp().cumsum(-1)
        if count == vocabulary or bool((before_RC[:, -1] >= top_p).all()):
            break
    # A token is in the nucleus while the mass before it is below top_p; the first always is.
    num_kept_R1 = (before_RC[:, :-1] < top_p).sum(-1, keepdim=True)
    return top_RC.gather(1, num_kept_R1)
