"""Distress: a rank that runs out of memory tells the others, which may be waiting for it inside a collective.

    result = in_step_or_none(run)      # None on all ranks if `run` does not fit into the memory of one of them

Under FSDP2 every layer is a collective. A rank that runs out of memory in the middle of a row leaves the others waiting
for its part of the next layer. So it raises a flag in the store through which the ranks found each other, which needs
no collective. The others see it:

gloo    while they wait: collectives of rows look at the flag now and then, and raise a DistressError
NCCL    in a thread, which aborts the communicator, so that the next collective fails

Then all ranks leave the broken group and form a new one over the same store. It is good enough to write a checkpoint,
but not to train on: sharded weights still belong to the old group. The NCCL thread is untested on several GPUs.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.fsdp import FSDPModule

from vcsd.errors import RunError
from vcsd.parallel.ranks import collective_device, is_nccl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

Value = TypeVar("Value")

_FLAG = "vcsd/distress"
_REGROUP_SECONDS = 50
"""How long ranks wait for each other in the new group."""

_POLL_SECONDS = 0.5
_FIRST_NAP, _LONGEST_NAP = 1e-5, 1e-2


class DistressError(RunError):
    """Another rank has raised its flag."""


def in_step_or_none(run: Callable[[], Value]) -> Value | None:
    """Run collectives of several ranks. If one runs out of memory, all return None, in a new group."""
    result, is_broken = None, False
    try:
        with _watched():
            result = run()
            _wait_for_all()
    except torch.OutOfMemoryError:
        _store().set(_FLAG, str(dist.get_rank()))
        is_broken = True
    except RuntimeError:
        if rank_in_distress() is None:
            raise
        is_broken = True
    if is_broken:  # not in the handler, where the traceback holds the row's tensors
        _regroup()
        return None
    return result


def _wait_for_all() -> None:
    """Return once all ranks have reached this call."""
    count = torch.ones((), device=collective_device())
    _wait_for(dist.all_reduce(count, async_op=True))
    count.item()  # waits for the device


def rank_in_distress() -> int | None:
    """Return the rank that raised its flag, if any did."""
    store = _store()
    with suppress(RuntimeError):  # the store is gone if the rank that keeps it was killed
        return int(store.get(_FLAG)) if store.check([_FLAG]) else None
    return None


def _regroup() -> None:
    """Leave a group in which ranks wait for one that will not arrive, and form a new one."""
    store, rank, count = _store(), dist.get_rank(), dist.get_world_size()
    if is_nccl():
        dist.distributed_c10d._abort_process_group()
    else:
        dist.destroy_process_group()
    again = PrefixStore("vcsd/again", store)
    timeout = timedelta(seconds=_REGROUP_SECONDS)
    dist.init_process_group("gloo", store=again, rank=rank, world_size=count, timeout=timeout)


def let_go_in_distress(model: nn.Module) -> None:
    """Make the collectives of a sharded model end if a rank is in distress. NCCL's are left unchanged."""
    if is_nccl():
        return
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(_AllGather())  # type: ignore[arg-type]
            module.set_custom_reduce_scatter(_ReduceScatter())  # type: ignore[arg-type]


@contextmanager
def _watched() -> Iterator[None]:
    """Abort this rank's NCCL collectives inside this context if another rank is in distress."""
    if not is_nccl():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(over,), name="vcsd-distress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(over: threading.Event) -> None:
    while not over.wait(_POLL_SECONDS):
        if rank_in_distress() is not None:
            dist.distributed_c10d._get_default_group().abort()
            return


class _Memory:
    """Memory from torch's own allocator."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Allocate what a collective writes to."""
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Memory):
    """FSDP2's all-gather, which ends if a rank is in distress."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        _wait_for(_all_gather(output_tensor, input_tensor, group=group, async_op=True))


class _ReduceScatter(_Memory):
    """FSDP2's reduce-scatter, which ends if a rank is in distress."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp,
        async_op: bool = False,
    ) -> None:
        reduced = input_tensor.clone()  # gloo reduces everything anyway, and its own reduce-scatter cannot be polled
        _wait_for(dist.all_reduce(reduced, op=op, group=group, async_op=True))
        output_tensor.copy_(reduced.view(dist.get_world_size(group), -1)[dist.get_rank(group)].view_as(output_tensor))


def _wait_for(work: dist.Work) -> None:
    """Wait for a collective; raise a DistressError if a rank is in distress. For NCCL, the device waits instead."""
    if is_nccl():
        work.wait()
        return
    nap, looked = _FIRST_NAP, time.monotonic()
    while not work.is_completed():
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP)
        if time.monotonic() - looked > _POLL_SECONDS:
            looked = time.monotonic()
            if (rank := rank_in_distress()) is not None:
                raise DistressError(f"rank {rank} is out of memory.")
    work.wait()  # raises its error, if any


_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""The first name exists since torch 2.13, the second before."""


def _store() -> Store:
    return dist.distributed_c10d._get_default_store()
