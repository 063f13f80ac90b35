"""Gradients that DDP averages after all rows of a step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tiny_ranks import on_ranks
from vcsd.models.patch import open_to_code
from vcsd.parallel.gradients import gradient_sync

EVERY, FIRST, NONE = range(3)
"""Which layer is used by every rank, by the first one alone, and by none."""


def step() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    open_to_code(layers)
    sync = gradient_sync(DistributedDataParallel(layers))
    rank = dist.get_rank()
    with sync.row(is_last=True):
        for layer in (EVERY, FIRST)[: 2 - rank]:
            (layers[layer](torch.ones(2)).sum() * (rank + 1)).backward()
    sync.finish()
    assert layers[EVERY].bias.grad.tolist() == [1.5, 1.5]
    assert layers[FIRST].bias.grad.tolist() == [0.5, 0.5]
    assert [weight.grad for weight in layers[NONE].parameters()] == [None, None]


def test_a_weight_that_no_rank_used_has_no_gradient_as_in_one_process() -> None:
    """With a gradient of zero, Adam would move it by its momentum."""
    on_ranks(2, step)
