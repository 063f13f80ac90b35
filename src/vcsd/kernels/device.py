"""Devices: copying tensors to them, launching kernels on them, and measuring their free memory."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

WIDTHS = (16, 32, 64, 128, 256)
"""Head widths of kernels that hold whole heads in tiles."""

CHUNK_SIZES = (16, 32, 64)
"""Tokens in a chunk of the delta rule's kernels."""


def sent(x: Tensor, device: torch.device) -> Tensor:
    """Copy x to a device asynchronously. From pageable memory, a copy would wait for the work queued on the GPU."""
    is_copied = device.type == "cuda" and not x.is_cuda
    return x.pin_memory().to(device, non_blocking=True) if is_copied else x.to(device)


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Make the device of x the current one, on which Triton launches kernels."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype of products with x: autocast's if it is on (except for float64), else that of x."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return x.dtype


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU, including what torch has reserved but not allocated; for a CPU, of the machine.

    A limit set by `torch.cuda.set_per_process_memory_fraction` counts as the size of the GPU.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device)
        allowed = int(total * torch.cuda.get_per_process_memory_fraction(device)) - reserved
        return max(0, min(free, allowed)) + reserved - torch.cuda.memory_allocated(device)
    for line in Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 4 * 2**30
