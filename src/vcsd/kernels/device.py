"""Devices: how a tensor gets to one, where a kernel is launched, and what kernels take."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

WIDTHS = (16, 32, 64, 128, 256)
"""Of heads, where a kernel holds whole heads in tiles."""


def sent(x: Tensor, device: torch.device) -> Tensor:
    """x on a device. A copy does not wait for the work that a GPU has queued, as one of pageable memory would."""
    is_copied = device.type == "cuda" and not x.is_cuda
    return x.pin_memory().to(device, non_blocking=True) if is_copied else x.to(device)


def on_device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be the tensor's: inside it is."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
