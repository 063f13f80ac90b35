"""Tensors kept in host memory and copied to the device a bucket at a time: Adam's moments, the float32 teacher.

    for visitors in visits(buckets_of_host_tensors, device):     # the next bucket is already on its way
        ...                                                      # change them in place; they are then copied back

Every operation runs on the device, on the same values as if the tensors had stayed there, so the result is the same bit
for bit. Per trained parameter this moves 8 bytes of moments in and out of the device in every step. On CUDA, host
memory is page-locked and copies run on separate streams. Tests compare it with torch's AdamW on a CPU, where both
memories are the same, and on a GPU (`tests/gpu/test_offload_gpu.py`).
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

log = logging.getLogger(__name__)

BUCKET_BYTES = 2**28
"""Size of a bucket in the tensors' own type; two or three of them are on the device at a time."""

_LOCKED_FROM = 2**20
"""Smaller tensors are not page-locked: they may share a page, which can be locked only once."""

_MOMENTS = ("exp_avg", "exp_avg_sq")


class OffloadedAdamW(torch.optim.AdamW):
    """torch's AdamW, with its moments in host memory between steps."""

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters, a bucket at a time, with torch's own step."""
        assert closure is None, "a closure would run once per bucket"
        groups = self.param_groups
        try:
            for group in groups:
                self._step_group(group)
        finally:
            self.param_groups = groups

    def _step_group(self, group: dict[str, Any]) -> None:
        trained = [parameter for parameter in group["params"] if parameter.grad is not None]
        if any(isinstance(parameter, DTensor) for parameter in trained):
            raise ConfigError(["offload works with whole weights. With FSDP2, use more ranks instead."])
        known = [parameter for parameter in trained if self.state[parameter]]
        for bucket in buckets([parameter for parameter in trained if not self.state[parameter]]):
            self._step_bucket(group, bucket)  # torch makes the moments, on the device
            for parameter in bucket:
                self._set_moments(parameter, [in_host_memory(moment) for moment in self._moments(parameter)])
        self._step_known(group, known)

    def _step_known(self, group: dict[str, Any], parameters: Sequence[Tensor]) -> None:
        """Update parameters whose moments are in host memory."""
        parts = list(buckets(parameters))
        homes = [[moment for parameter in part for moment in self._moments(parameter)] for part in parts]
        device = parameters[0].device if parameters else torch.device("cpu")
        for visitors, part, home in zip(visits(homes, device), parts, homes, strict=True):
            self._set_all(part, visitors)
            self._step_bucket(group, part)
            self._set_all(part, home)

    def _step_bucket(self, group: dict[str, Any], bucket: list[Tensor]) -> None:
        self.param_groups = [{**group, "params": bucket}]
        super().step()

    def _moments(self, parameter: Tensor) -> list[Tensor]:
        return [self.state[parameter][name] for name in _MOMENTS]

    def _set_moments(self, parameter: Tensor, moments: Sequence[Tensor]) -> None:
        self.state[parameter].update(zip(_MOMENTS, moments, strict=True))

    def _set_all(self, bucket: Sequence[Tensor], moments: Sequence[Tensor]) -> None:
        for index, parameter in enumerate(bucket):
            self._set_moments(parameter, moments[index * len(_MOMENTS) : (index + 1) * len(_MOMENTS)])

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state, with copies of its moments in host memory. torch's own method would move them to the device."""
        saved: dict[int, dict[str, Any]] = state_dict["state"]
        others = {
            index: {name: value for name, value in fields.items() if name not in _MOMENTS}
            for index, fields in saved.items()
        }
        super().load_state_dict({**state_dict, "state": others})
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            if saved.get(number):
                moments = [saved[number][name].to(parameter.dtype) for name in _MOMENTS]
                self._set_moments(parameter, [in_host_memory(moment, copy=True) for moment in moments])


def buckets(tensors: Sequence[Tensor], num_bytes: int = BUCKET_BYTES) -> Iterator[list[Tensor]]:
    """Split tensors, in order, into buckets of about `num_bytes`. A larger tensor is a bucket of its own.

    >>> [len(bucket) for bucket in buckets([torch.zeros(size) for size in (1, 2, 5, 1)], num_bytes=12)]
    [2, 1, 1]
    """
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and sum(member.nbytes for member in bucket) + tensor.nbytes > num_bytes:
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def visits(homes: Sequence[Sequence[Tensor]], device: torch.device) -> Iterator[list[Tensor]]:
    """Yield copies of each bucket on the device, and copy them back after use. Exhaust it, so that all are copied."""
    copies = _DeviceCopies(device) if device.type == "cuda" else _Copies()
    ahead = copies.fetch(homes[0]) if homes else []
    for number, home in enumerate(homes):
        visitors, arrived = ahead, copies.mark()
        ahead = copies.fetch(homes[number + 1]) if number + 1 < len(homes) else []
        copies.wait(visitors, arrived)
        yield visitors
        copies.send_home(visitors, home)
    copies.finish()


class _Copies:
    """Copies within host memory, for training on a CPU: the same steps as on a device, one after the other."""

    def fetch(self, home: Sequence[Tensor]) -> list[Tensor]:
        """Copy to the device."""
        return [tensor.clone() for tensor in home]

    def mark(self) -> object:
        """Record an event after the copies to the device so far."""
        return None

    def wait(self, visitors: Sequence[Tensor], arrived: Any) -> None:
        """Make the computation wait for the copies."""

    def send_home(self, visitors: Sequence[Tensor], home: Sequence[Tensor]) -> None:
        """Copy back to host memory."""
        for visitor, tensor in zip(visitors, home, strict=True):
            tensor.copy_(visitor)

    def finish(self) -> None:
        """Wait until everything is back in host memory."""


class _DeviceCopies(_Copies):
    """Asynchronous copies on two streams, one in each direction."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.inward, self.outward = (torch.cuda.Stream(device) for _ in range(2))  # type: ignore[no-untyped-call]

    def fetch(self, home: Sequence[Tensor]) -> list[Tensor]:
        with torch.cuda.stream(self.inward):
            return [tensor.to(self.device, non_blocking=True) for tensor in home]

    def mark(self) -> torch.cuda.Event:
        event: torch.cuda.Event = self.inward.record_event()
        return event

    def wait(self, visitors: Sequence[Tensor], arrived: torch.cuda.Event) -> None:
        computation = torch.cuda.current_stream(self.device)
        computation.wait_event(arrived)
        for visitor in visitors:  # their memory must not be reused while the computation still reads it
            visitor.record_stream(computation)

    def send_home(self, visitors: Sequence[Tensor], home: Sequence[Tensor]) -> None:
        self.outward.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.outward):
            for visitor, tensor in zip(visitors, home, strict=True):
                tensor.copy_(visitor, non_blocking=True)
                visitor.record_stream(self.outward)

    def finish(self) -> None:
        self.outward.synchronize()


def in_host_memory(tensor: Tensor, *, copy: bool = False) -> Tensor:
    """Return a tensor in host memory, without a copy if it is there already.

    If there is a CUDA device, the memory is page-locked as long as the returned tensor exists: keep it.
    """
    host = tensor.detach().to("cpu", copy=copy).contiguous()
    if torch.cuda.is_available() and host.nbytes >= _LOCKED_FROM and not host.is_pinned():
        _lock(host)
    return host


def _lock(tensor: Tensor) -> None:
    """Page-lock the memory of a tensor where it is: torch's pinned memory is rounded up to a power of two bytes."""
    runtime, address = torch.cuda.cudart(), tensor.data_ptr()  # type: ignore[no-untyped-call]
    code = int(runtime.cudaHostRegister(address, tensor.nbytes, 0))
    if code:
        log.warning("Host memory cannot be page-locked (CUDA error %d), so offloading is slower.", code)
    else:
        weakref.finalize(tensor, runtime.cudaHostUnregister, address)
