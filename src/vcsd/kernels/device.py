"""Devices: how a tensor gets to one, and where a kernel is launched."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor


def sent(x: Tensor, device: torch.device) -> Tensor:
    """x on a device. A copy does not wait for the work that a GPU has queued, as one of pageable memory would."""
    is_copied = device.type == "cuda" and not x.is_cuda
    return x.pin_memory().to(device, non_blocking=True) if is_copied else x.to(device)


def on_device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be the tensor's: inside it is."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
