"""Hardware and versions, for people who compare results; and quiet while many runs share a terminal."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

from vcsd import __version__

PACKAGES = ("torch", "transformers", "accelerate")


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware() -> str:
    """The GPU and the cores beside it, or the processor and its cores."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {num_cores()} cores"
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.is_file()
        else []
    )
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{num_cores()} cores, {name}"


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    found = {"vcsd": __version__, "python": platform.python_version()}
    return found | {name: version(name) for name in PACKAGES}


def hush_transformers() -> None:
    """No bar for every file that transformers opens, and no advice on tiny models."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
