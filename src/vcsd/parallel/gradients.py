"""Gradients that ranks average once per step, after all their rows.

One process   nothing to do
DDP           rows run in the replica that DDP wraps; then one pass through DDP that touches every trained weight
              averages the gradients. So ranks may have different numbers of rows, rows may leave weights unused, and a
              rank that runs out of memory can still report it, because no other rank waits for it inside a row.
FSDP2         every forward gathers weights, so all ranks run their rows in step; the last backward reduces gradients
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from vcsd.models.inside import inside
from vcsd.parallel.ranks import gathered, reported_losses

if TYPE_CHECKING:
    from torch import Tensor, nn


class GradientSync:
    """One process: gradients are complete after each backward."""

    in_step = False
    """Whether all ranks must run the same number of rows, with the same parts of the model in each."""

    def row(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Return the context for the forward and backward of one row."""
        return nullcontext()

    def finish(self) -> None:
        """Average gradients after the last row, once all ranks have succeeded."""


class ReplicaSync(GradientSync):
    """DDP: every rank has all weights."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.model = model

    def row(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Keep the gradients of the row on this rank."""
        return self.model.no_sync()

    def finish(self) -> None:
        """Let DDP average the gradients that the rows have accumulated.

        Weights that no row of any rank used, such as the tower's in a step without images, stay without a gradient, as
        in one process: with a gradient of zero, Adam would move them by their momentum.
        """
        unused = self._unused()
        with reported_losses():
            inside(self.model, _zero_of_all_weights).backward()  # type: ignore[no-untyped-call]
        for weight in unused:
            weight.grad = None

    def _unused(self) -> list[nn.Parameter]:
        """Return the trained weights that have no gradient on any rank."""
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        lists = gathered([number for number, weight in enumerate(trained) if weight.grad is None])
        return [trained[number] for number in set.intersection(*map(set, lists))]


class ShardSync(GradientSync):
    """FSDP2: every rank has a shard of each weight."""

    in_step = True

    def __init__(self, model: FSDPModule) -> None:
        self.model = model

    def row(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Reduce gradients in the last row only."""
        self.model.set_requires_gradient_sync(is_last)
        return nullcontext()


def replica_of(model: nn.Module) -> nn.Module:
    """Return the model that rows run in: what DDP wraps, else the model itself."""
    inner: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
    return inner


def gradient_sync(model: nn.Module) -> GradientSync:
    """Return the GradientSync that suits a wrapped model."""
    if isinstance(model, DistributedDataParallel):
        return ReplicaSync(model)
    return ShardSync(model) if isinstance(model, FSDPModule) else GradientSync()


def _zero_of_all_weights(model: nn.Module) -> Tensor:
    zero: Tensor = _Zero.apply(*(weight for weight in model.parameters() if weight.requires_grad))  # type: ignore[no-untyped-call]
    return zero


class _Zero(torch.autograd.Function):
    """The number zero as a function of weights. Its gradients are zeros that take no memory."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> Tensor:
        ctx.likes = [(weight.shape, weight.dtype) for weight in weights]
        return weights[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        zero = gradients[0]
        return tuple(zero.new_zeros((), dtype=dtype).expand(shape) for shape, dtype in ctx.likes)
