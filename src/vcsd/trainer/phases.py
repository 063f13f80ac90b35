"""Time and peak memory of the parts of a step."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Phases:
    """Adds up the time and memory of each part of a step; a part may run many times.

    >>> phases = Phases(torch.device("cpu"))
    >>> with phases("teacher"):
    ...     pass
    >>> sorted(phases.metrics())
    ['seconds/teacher']
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = defaultdict(float)
        self.peak_bytes: dict[str, int] = defaultdict(int)
        self.spans: list[tuple[str, float, float]] = []
        """Each part that ran, with its start and end in seconds of `time.perf_counter`."""

    def reset(self) -> None:
        """Start a new step."""
        self.seconds.clear()
        self.peak_bytes.clear()
        self.spans.clear()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the code inside as part of `name`. On CUDA, synchronize before and after."""
        is_cuda = self.device.type == "cuda"
        if is_cuda:
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        start = time.perf_counter()
        try:
            yield
        finally:
            if is_cuda:
                torch.cuda.synchronize(self.device)
                self.peak_bytes[name] = max(self.peak_bytes[name], torch.cuda.max_memory_allocated(self.device))
            end = time.perf_counter()
            self.seconds[name] += end - start
            self.spans.append((name, start, end))

    def metrics(self) -> dict[str, float]:
        """Return `seconds/...` and, on CUDA, `peak_bytes/...` for each part."""
        seconds = {f"seconds/{name}": value for name, value in self.seconds.items()}
        return seconds | {f"peak_bytes/{name}": float(value) for name, value in self.peak_bytes.items()}
