"""The hardware and versions that results record, and a switch for transformers' output."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

from vcsd import __version__

ENVIRONMENT = "environment.json"
"""In a run's folder: the machine and the versions it last ran with."""


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware() -> str:
    """The GPU and the number of cores, or the processor and its cores."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {num_cores()} cores"
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{num_cores()} cores, {name}"


def versions() -> dict[str, str]:
    """The versions of Python and the packages that results depend on."""
    own = {"vcsd": __version__, "python": platform.python_version()}
    return own | {name: version(name) for name in ("torch", "transformers", "accelerate")}


def environment() -> dict[str, str | int]:
    """What a run's numbers depend on besides its recipe: the machine, torch's threads, and versions."""
    return {"hardware": hardware(), "threads": torch.get_num_threads(), **versions()}


def hush_transformers() -> None:
    """Turn off transformers' progress bars and its warnings about tiny models."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
