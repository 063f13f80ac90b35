"""Ranks: the processes of one run, and what they tell each other.

Functions that exchange values are collective: all ranks call them, in the same order. Values are plain JSON and travel
as bytes in tensors. A step that fails on one rank fails on all, so that none waits for another forever. In a single
process all of this costs nothing.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, cast

import torch
import torch.distributed as dist

from vcsd.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from torch import Tensor

Value = TypeVar("Value")


class OtherRankError(RunError):
    """An error on another rank, which this rank raises as well."""


class LostRankError(RunError):
    """Another rank no longer answers: it was killed, or it left with an error of its own."""


def num_ranks() -> int:
    """Return the number of processes of the run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def this_rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if num_ranks() > 1 else 0


def is_first() -> bool:
    """Whether this process is rank 0, which writes what all ranks share."""
    return this_rank() == 0


def leave() -> None:
    """Close the connections to the other ranks, once all have finished: a rank that still waits for one would abort."""
    if dist.is_available() and dist.is_initialized():
        with reported_losses():
            dist.barrier()
        _wait_until_all_are_idle()
        dist.destroy_process_group()


def _wait_until_all_are_idle() -> None:
    """Wait until no rank is in a collective any more.

    A rank may return from a barrier while another is still inside it; closing the connection then would abort that one.
    """
    store = dist.distributed_c10d._get_default_store()
    with suppress(RuntimeError):  # the store is gone once the rank that keeps it has left, and it waits for all
        store.set(f"vcsd/idle/{dist.get_rank()}", "")
        store.wait([f"vcsd/idle/{rank}" for rank in range(dist.get_world_size())])


def gathered(value: Value) -> list[Value]:
    """Return the values of all ranks, in their order. Values are plain JSON; tuples arrive as lists.

    >>> gathered("alone")
    ['alone']
    """
    if num_ranks() == 1:
        return [value]
    text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return [cast("Value", json.loads(bytes(part.numpy()))) for part in gathered_tensors(text)]


def gathered_tensors(tensor: Tensor) -> list[Tensor]:
    """Return the tensors of all ranks, on the CPU. They agree in type and in all dimensions but the first."""
    if num_ranks() == 1:
        return [tensor.cpu()]
    device = collective_device()
    with reported_losses():
        own = torch.tensor([len(tensor)], device=device)
        counts = [torch.zeros_like(own) for _ in range(num_ranks())]
        dist.all_gather(counts, own)
        longest = max(int(count) for count in counts)
        padded = torch.zeros(longest, *tensor.shape[1:], dtype=tensor.dtype, device=device)
        padded[: len(tensor)] = tensor
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
    return [part[: int(count)].cpu() for part, count in zip(parts, counts, strict=True)]


def on_every(run: Callable[[], Value]) -> Value:
    """Run a function on every rank. If it fails on one, raise on all."""
    return _agreed(run)[this_rank()]


def on_every_local(run: Callable[[], Value]) -> Value:
    """Run a function on every rank. If it fails on one, raise on all. Its result is not sent to other ranks."""
    results: list[Value] = []
    on_every(lambda: results.append(run()))
    return results[0]


def where_it_fits(run: Callable[[], Value]) -> Value | None:
    """Run a function without collectives on every rank. None on all if it does not fit into the memory of one.

    >>> where_it_fits(lambda: 3)
    3
    """
    result, fits = None, True
    try:
        result = run()
    except torch.OutOfMemoryError:
        fits = False
    return result if all(gathered(fits)) else None


def on_first(run: Callable[[], Value]) -> Value:
    """Run a function on rank 0 and return its result, plain JSON, on all ranks. If it fails there, raise on all."""
    return _agreed(run if is_first() else lambda: cast("Value", None))[0]


@contextmanager
def entered_by_first(make: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Enter a context on rank 0 only. If that fails, raise on all ranks."""
    with ExitStack() as stack:

        def enter() -> None:
            stack.enter_context(make())

        on_first(enter)
        yield


@contextmanager
def reported_losses() -> Iterator[None]:
    """Turn an error of torch.distributed into a LostRankError."""
    try:
        yield
    except RuntimeError as error:
        if num_ranks() == 1 or not _is_of_collective(error):
            raise
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LostRankError(lost_message(first_line.rstrip("."), this_rank(), num_ranks())) from error


def _is_of_collective(error: RuntimeError) -> bool:
    """Whether a collective failed. Some backends raise a plain RuntimeError."""
    words = ("gloo", "nccl", "connection closed", "connection reset", "connection refused", "process group")
    is_own = isinstance(error, RunError | torch.OutOfMemoryError)
    return not is_own and (isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words))


def lost_message(reason: str, rank: int, count: int) -> str:
    """Return the message of a rank that can no longer reach another one."""
    return (
        f"rank {rank} of {count} cannot reach the other ranks: {reason}. One of them was killed or failed; look for "
        "its message above. The same command resumes from the latest checkpoint."
    )


def _agreed(run: Callable[[], Value]) -> list[Value]:
    """Return the results of all ranks, or raise: this rank's error, or that of the first rank that has one."""
    if num_ranks() == 1:
        return [run()]
    own: Exception | None = None
    result, failure = None, None
    try:
        result = run()
    except Exception as error:  # raised again below, once the other ranks know
        own, failure = error, str(error) or type(error).__name__
    outcomes = gathered((result, failure))
    if own is not None:
        raise own
    for rank, (_, message) in enumerate(outcomes):
        if message is not None:
            raise OtherRankError(f"rank {rank}: {message}")
    return [cast("Value", outcome) for outcome, _ in outcomes]


def is_nccl() -> bool:
    """Whether ranks talk over NCCL, whose collectives run on the GPU and do not wait for Python."""
    return dist.get_backend().startswith("nccl")


def collective_device() -> torch.device:
    """Where the tensors of a collective must be."""
    return torch.device("cuda" if is_nccl() else "cpu")
