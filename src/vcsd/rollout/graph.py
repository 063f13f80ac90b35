"""A decoding step as a CUDA graph: hundreds of small kernels launched at once instead of one by one.

Launching them takes the CPU longer than running them takes the GPU. A graph is recorded when the same shapes occur a
second time, and replayed from then on. The first step with new shapes (rows were dropped, a buffer grew) runs normally,
to initialise whatever must exist before recording. Recording computes nothing, so every step runs once. A step that
waits for the device, such as one that loops over experts in Python, cannot be recorded. This is detected in a normal
step, and all later steps run normally too.

A recording fails if this thread or another makes a device call that cannot be recorded: when the garbage collector
frees an old graph, or another thread pins memory. So garbage collection is off while recording, and the calls of other
threads are ignored.
"""

from __future__ import annotations

import gc
import warnings
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import torch

from vcsd.kernels.device import on_device_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    Forward = Callable[[Tensor, Tensor], Tensor]


_WAITS = "synchronizing CUDA operation"
"""Part of torch's warning about an operation that makes the host wait."""

_PATIENCE = 2
"""Consecutive steps that must wait before recording is given up: the first step of a kind may differ."""


class GraphedStep:
    """Calls `forward(token, position) -> logits`, by replay if only the contents of tensors have changed.

    The forward must be the same in every call. It is not stored: that would form a reference cycle with its owner, and
    graphs would stay on the device until the next garbage collection.
    """

    def __init__(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._is_warm, self._num_waits = False, 0

    @property
    def is_recorded(self) -> bool:
        """Whether the next step is a replay."""
        return self._graph is not None

    def forget(self) -> None:
        """Discard the graph: shapes or tensors of the step have changed."""
        self._graph, self._is_warm = None, False

    def __call__(self, forward: Forward, token_R: Tensor, position_R1: Tensor) -> Tensor:
        """Run one step. The next step overwrites the logits."""
        if not token_R.is_cuda or self._num_waits == _PATIENCE:
            return forward(token_R, position_R1)
        if not self._is_warm:
            logits, self._is_warm = _watched(forward, token_R, position_R1)
            self._num_waits = 0 if self._is_warm else self._num_waits + 1
            if self._num_waits == _PATIENCE:
                _warn_once()
            return logits
        with on_device_of(token_R):
            return self._replayed(forward, token_R, position_R1)

    def _replayed(self, forward: Forward, token_R: Tensor, position_R1: Tensor) -> Tensor:
        if self._graph is None:
            self._token, self._position = token_R.clone(), position_R1.clone()
            self._graph = torch.cuda.CUDAGraph()
            stream = _recording_stream(token_R.device)
            with _no_collections(), torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._logits = forward(self._token, self._position)
        self._token.copy_(token_R)
        self._position.copy_(position_R1)
        self._graph.replay()
        return self._logits


@cache
def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream per device. torch's default is a single one, on the device that was current when it was created."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@cache
def _warn_once() -> None:
    warnings.warn("decoding steps wait for the device and cannot be recorded as a graph.", stacklevel=2)


def _watched(forward: Forward, token_R: Tensor, position_R1: Tensor) -> tuple[Tensor, bool]:
    """The logits of a step, and whether it ran without waiting for the device."""
    before = torch.cuda.get_sync_debug_mode()
    _report_waits("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            logits = forward(token_R, position_R1)
    finally:
        _report_waits(before)
    waits = [warning for warning in said if _WAITS in str(warning.message)]
    for warning in said:
        if warning not in waits:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return logits, not waits


def _report_waits(mode: int | str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it does not detect all waits; it detects enough
        torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def _no_collections() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
