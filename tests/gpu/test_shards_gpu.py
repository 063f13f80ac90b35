"""On a GPU: a model sharded by FSDP2 in mixed precision, with fused kernels, is as exact as the plain one.

One rank uses NCCL. Two ranks share one device, which NCCL refuses; they exchange weights and gradients through the host
over gloo, whose collectives crash on GPU tensors.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from transformers import PreTrainedModel

from tiny_groups import three_groups
from tiny_models import build_model
from tiny_shards import loss, shard
from vcsd.models.family import family_of
from vcsd.models.inside import inside
from vcsd.models.packed.packing import Group

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


class ByHost:
    """An exchange as FSDP2 expects it: memory, and the exchange itself."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class GatherByHost(ByHost):
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        parts = [torch.empty_like(input_tensor, device="cpu") for _ in range(group.size())]
        dist.all_gather(parts, input_tensor.cpu(), group=group)
        output_tensor.copy_(torch.cat(parts).view_as(output_tensor))


class ReduceByHost(ByHost):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        total = input_tensor.cpu()
        dist.all_reduce(total, op, group=group)
        output_tensor.copy_(total.chunk(group.size())[group.rank()].view_as(output_tensor))


def groups_of(rank: int, ranks: int, family: str) -> list[Group]:
    return three_groups(family)[rank::ranks]


def prepared(family: str, dtype: torch.dtype) -> PreTrainedModel:
    model = build_model(family, tie_word_embeddings=False).to("cuda", dtype).train()
    family_of(model).prepare(model)
    model.gradient_checkpointing_enable()
    return model


def sharded_gradients(rank: int, ranks: int, folder: Path, family: str) -> None:
    """What one process does: shard, score its groups twice, write its part of the gradients down."""
    dist.init_process_group(
        "nccl" if ranks == 1 else "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks
    )
    model = prepared(family, torch.float32)
    mesh = dist.device_mesh.init_device_mesh("cuda", (ranks,))
    shard(model, mesh, model.lm_head, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    for unit in model.modules():
        if isinstance(unit, FSDPModule) and ranks > 1:
            unit.set_force_sum_reduction_for_comms(True)  # gloo cannot average
            unit.set_custom_all_gather(GatherByHost())
            unit.set_custom_reduce_scatter(ReduceByHost())
    for _ in range(2):
        model.zero_grad()
        inside(model, partial(loss, groups=groups_of(rank, ranks, family))).backward()
    found = {name: p.grad.to_local().cpu() for name, p in model.named_parameters() if p.grad is not None}
    torch.save(found, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def mean_of_gradients(family: str, ranks: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Those of the plain model, for what each rank is given."""
    model, found = prepared(family, dtype), {}
    for rank in range(ranks):
        model.zero_grad()
        inside(model, partial(loss, groups=groups_of(rank, ranks, family))).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                found[name] = found.get(name, 0) + parameter.grad.float().cpu() / ranks
    return found


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_give_the_mean_of_their_gradients(tmp_path: Path, family: str, ranks: int) -> None:
    multiprocessing.spawn(sharded_gradients, (ranks, tmp_path, family), nprocs=ranks)
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(ranks)]
    found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    truth, plain = (mean_of_gradients(family, ranks, dtype) for dtype in (torch.float32, torch.bfloat16))
    assert found.keys() == truth.keys()
    sharded_gap, plain_gap = (
        torch.cat([(grads[name] - true).flatten() for name, true in truth.items()]).norm() for grads in (found, plain)
    )
    assert sharded_gap < 1.3 * plain_gap
