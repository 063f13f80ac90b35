"""What a run will need, from shapes alone: memory, disk, and about how long.

Memory that is there in every step is counted exactly: weights, teacher, gradients and Adam's moments in float32, and
the half-precision copy that draws rollouts. What a row of tokens adds is measured before the first step, and set so
that it fits. Time is a rough guess: the floating-point operations of scoring at a share of the device's measured
rate, and the weights read once per decoded token.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import nn

_FLOAT, _HALF = 4, 2
_SHARE_OF_RATE = 0.35
"""Of a plain matrix product's rate, reached by scoring: packed rows, attention, vision tower and loss included."""

_SHARE_OF_BANDWIDTH = 0.25
"""Of a plain copy's bandwidth, reached by decoding, which waits for many small kernels."""

_PASSES = 3 + 2
"""Forwards' worth of work per token: the student's forward and backward, the teacher's two looks."""


@dataclass(frozen=True)
class Sizes:
    """What is known before a run. `num_prompt_tokens` is that of the first example, the only one looked at.

    >>> sizes = Sizes(num_parameters=2_000, num_trained=1_000, has_teacher=True, has_half_copy=True)
    >>> sizes.memory_bytes, sizes.checkpoint_bytes
    (32000, 24000)
    """

    num_parameters: int
    num_trained: int
    has_teacher: bool = True
    has_half_copy: bool = False

    @classmethod
    def of(cls, model: nn.Module, *, has_teacher: bool, has_half_copy: bool) -> Sizes:
        """Count a model's parameters; a model without storage will do."""
        every = list(model.parameters())
        trained = sum(parameter.numel() for parameter in every if parameter.requires_grad)
        return cls(sum(p.numel() for p in every), trained, has_teacher, has_half_copy)

    @property
    def memory_bytes(self) -> int:
        """Weights, teacher, gradients, moments and the copy for rollouts."""
        weights = self.num_parameters * (_FLOAT * (1 + self.has_teacher) + _HALF * self.has_half_copy)
        return weights + self.num_trained * _FLOAT * 3

    @property
    def checkpoint_bytes(self) -> int:
        """Student, teacher and both moments."""
        return self.num_parameters * _FLOAT * (1 + self.has_teacher) + self.num_trained * _FLOAT * 2


@dataclass(frozen=True)
class Step:
    """The tokens of a step: prompts, rollouts of each, and their lengths at most.

    >>> step = Step(num_prompts=32, num_rollouts=8, prompt_tokens=1000, response_tokens=300)
    >>> step.num_tokens
    108800
    """

    num_prompts: int
    num_rollouts: int
    prompt_tokens: int
    response_tokens: int

    @property
    def num_tokens(self) -> int:
        """Tokens that are scored, each prompt once."""
        return self.num_prompts * (self.prompt_tokens + self.num_rollouts * self.response_tokens)

    def seconds(self, num_parameters: int, speed: Speed) -> float:
        """About how long a step takes if every response is as long as it may be."""
        scoring = 2 * num_parameters * self.num_tokens * _PASSES / (speed.flops * _SHARE_OF_RATE)
        decoding = self.response_tokens * num_parameters * _HALF / (speed.bandwidth * _SHARE_OF_BANDWIDTH)
        return scoring + decoding


@dataclass(frozen=True)
class Speed:
    """Operations and bytes per second of a device, as a plain matrix product and a plain copy reach them."""

    flops: float
    bandwidth: float


def measure_speed(device: torch.device, dtype: torch.dtype) -> Speed:
    """Time a matrix product and a copy on a device; about a second on a CPU."""
    side = 8192 if device.type == "cuda" else 512
    square = torch.randn(side, side, device=device, dtype=dtype)
    product = _seconds(lambda: square @ square, device)
    block = torch.empty(16 * side * side, device=device, dtype=torch.uint8)
    copy = _seconds(block.clone, device)
    return Speed(2 * side**3 / product, 2 * block.numel() / copy)


def _seconds(run: object, device: torch.device, repeats: int = 5) -> float:
    assert callable(run)
    times = []
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times)
