"""On a GPU: sharded by FSDP2 in mixed precision, with our kernels, a model has the gradients of the plain one.

One rank over NCCL; and two ranks on the same device, which NCCL refuses, over gloo, which goes by way of the host.
"""

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from transformers import PreTrainedModel

from tiny_groups import three_groups
from tiny_models import build_model
from tiny_shards import loss, shard
from vcsd.models.family import family_of
from vcsd.models.inside import inside
from vcsd.models.packing import Group

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def groups_of(rank: int, ranks: int, family: str) -> list[Group]:
    return three_groups(family)[rank::ranks]


def prepared(family: str, dtype: torch.dtype) -> PreTrainedModel:
    model = build_model(family, tie_word_embeddings=False).to("cuda", dtype).train()
    family_of(model).prepare(model)
    model.gradient_checkpointing_enable()
    return model


def sharded_gradients(rank: int, ranks: int, backend: str, folder: Path, family: str) -> None:
    """What one process does: shard, score its groups twice, write the whole gradients down."""
    torch.cuda.set_device(0)
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    model = prepared(family, torch.float32)
    mesh = dist.device_mesh.init_device_mesh("cuda", (ranks,))
    shard(model, mesh, model.lm_head, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    for unit in model.modules():
        if isinstance(unit, FSDPModule):
            unit.set_force_sum_reduction_for_comms(True)  # gloo cannot average
    for _ in range(2):
        model.zero_grad()
        inside(model, partial(loss, groups=groups_of(rank, ranks, family))).backward()
    found = {name: p.grad.full_tensor().cpu() for name, p in model.named_parameters() if p.grad is not None}
    if rank == 0:
        torch.save(found, folder / "gradients.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
@pytest.mark.parametrize(("backend", "ranks"), [("nccl", 1), ("gloo", 2)])
def test_ranks_give_the_mean_of_their_gradients(tmp_path: Path, family: str, backend: str, ranks: int) -> None:
    multiprocessing.spawn(sharded_gradients, (ranks, backend, tmp_path, family), nprocs=ranks)
    found = torch.load(tmp_path / "gradients.pt", weights_only=True)
    plain = prepared(family, torch.bfloat16)  # what FSDP2 computes in; it adds up in float32
    expected: dict[str, torch.Tensor] = {}
    for rank in range(ranks):
        plain.zero_grad()
        inside(plain, partial(loss, groups=groups_of(rank, ranks, family))).backward()
        for name, parameter in plain.named_parameters():
            if parameter.grad is not None:
                expected[name] = expected.get(name, 0) + parameter.grad.float().cpu() / ranks
    assert found.keys() == expected.keys()
    mine, true = (torch.cat([grads[name].flatten() for name in sorted(expected)]) for grads in (found, expected))
    assert (mine - true).norm() / true.norm() < 2e-2
