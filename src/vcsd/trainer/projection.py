"""Estimate what a run will need, from shapes alone: memory, disk and time.

Constant memory is counted exactly: weights, teacher, gradients and Adam's moments in float32, and the half-precision
copy that samples rollouts. With LoRA these are adapters, next to one base that all of them share. With `offload`,
moments and teacher are in host memory, and a half-precision copy of the teacher is on the device. The memory of a row
of tokens is measured before the first step. Time is a rough estimate: the floating-point operations of scoring at a
share of the device's measured rate, plus reading the weights once per decoded token.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vcsd.models.freeze import is_adapter

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

_FLOAT, _HALF = 4, 2
_SHARE_OF_RATE = 0.35
"""Share of a plain matrix product's rate that scoring reaches, including attention, vision tower and loss."""

_SHARE_OF_BANDWIDTH = 0.25
"""Share of a plain copy's bandwidth that decoding reaches, which launches many small kernels."""

_PASSES = 3 + 2
"""Work per token in forward passes: the student's forward and backward, and two forwards of the teacher."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model that decide its memory.

    >>> sizes = Sizes(num_parameters=2_000, num_trained=1_000, has_teacher=True, has_half_copy=True)
    >>> sizes.memory_bytes, sizes.checkpoint_bytes
    (32000, 24000)
    >>> Sizes(2_000, 100, has_half_copy=True, num_adapter=200, base_bytes=2).memory_bytes
    6400
    >>> sizes = Sizes(num_parameters=2_000, num_trained=1_000, has_half_copy=True, is_offloaded=True)
    >>> sizes.memory_bytes, sizes.host_bytes
    (20000, 16000)
    """

    num_parameters: int
    num_trained: int
    has_teacher: bool = True
    has_half_copy: bool = False
    num_adapter: int = 0
    """How many of the parameters are LoRA adapters; the others are then a base that all models share."""
    base_bytes: int = _FLOAT
    """Bytes of each parameter of such a base."""
    is_offloaded: bool = False
    """Whether moments and float32 teacher are in host memory."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        *,
        has_teacher: bool,
        has_half_copy: bool,
        base_bytes: int = _FLOAT,
        is_offloaded: bool = False,
    ) -> Sizes:
        """Count a model's parameters; a model on the meta device will do."""
        named = dict(model.named_parameters())
        trained = sum(parameter.numel() for parameter in named.values() if parameter.requires_grad)
        adapter = sum(parameter.numel() for name, parameter in named.items() if is_adapter(name))
        total = sum(parameter.numel() for parameter in named.values())
        return cls(total, trained, has_teacher, has_half_copy, adapter, base_bytes, is_offloaded)

    @property
    def num_own(self) -> int:
        """The parameters that each model has for itself and a checkpoint holds."""
        return self.num_adapter or self.num_parameters

    @property
    def memory_bytes(self) -> int:
        """Bytes on the device: weights, teacher, gradients, moments and the copy for rollouts."""
        base = self.num_parameters - self.num_own
        has_half_base = self.has_half_copy and self.base_bytes != _HALF
        teacher = self._num_averaged * (_HALF if self.is_offloaded else _FLOAT) * self.has_teacher
        own = self.num_own * (_FLOAT + _HALF * self.has_half_copy) + teacher
        trained = self.num_trained * _FLOAT * (1 if self.is_offloaded else 3)
        return base * (self.base_bytes + _HALF * has_half_base) + own + trained

    @property
    def host_bytes(self) -> int:
        """Bytes in host memory: teacher and moments, if they are offloaded."""
        teacher = self._num_averaged * _FLOAT * self.has_teacher
        return (teacher + self.num_trained * _FLOAT * 2) * self.is_offloaded

    @property
    def _num_averaged(self) -> int:
        """The teacher's own parameters. Frozen factors of adapters are shared."""
        return self.num_trained if self.num_adapter else self.num_parameters

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of student, teacher and both moments."""
        return self.num_own * _FLOAT * (1 + self.has_teacher) + self.num_trained * _FLOAT * 2


@dataclass(frozen=True)
class Step:
    """The tokens of a step: the number of prompts, rollouts per prompt, and their maximum lengths.

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
        """Tokens to score, counting each prompt once."""
        return self.num_prompts * (self.prompt_tokens + self.num_rollouts * self.response_tokens)

    def seconds(self, num_parameters: int, speed: Speed) -> float:
        """Estimate how long a step takes if every response has the maximum length."""
        scoring = 2 * num_parameters * self.num_tokens * _PASSES / (speed.flops * _SHARE_OF_RATE)
        decoding = self.response_tokens * num_parameters * _HALF / (speed.bandwidth * _SHARE_OF_BANDWIDTH)
        return scoring + decoding


@dataclass(frozen=True)
class Speed:
    """Operations and bytes per second that a plain matrix product and a plain copy reach on a device."""

    flops: float
    bandwidth: float


def measure_speed(device: torch.device, dtype: torch.dtype) -> Speed:
    """Time a matrix product and a copy on a device. It takes about a second on a CPU."""
    side = 8192 if device.type == "cuda" else 512
    square = torch.randn(side, side, device=device, dtype=dtype)
    product = _seconds(lambda: square @ square, device)
    block = torch.empty(16 * side * side, device=device, dtype=torch.uint8)
    copy = _seconds(block.clone, device)
    return Speed(2 * side**3 / product, 2 * block.numel() / copy)


def _seconds(run: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
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
