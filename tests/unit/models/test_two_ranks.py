"""FSDP2 over two processes: each scores other groups, with other images, and gradients are those of one plain model."""

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tiny_groups import three_groups
from tiny_models import build_model
from tiny_ranks import on_ranks
from tiny_shards import loss, shard
from vcsd.models.family import family_of
from vcsd.models.inside import inside
from vcsd.models.packed.packing import Group

pytestmark = pytest.mark.slow

RANKS = 2


def groups_of(rank: int, family: str) -> list[Group]:
    """One rank has a group and the other two: rows, images and segments differ."""
    own = three_groups(family)
    return own[:1] if rank == 0 else own[1:]


def prepared(family: str, tied: bool) -> nn.Module:
    model = build_model(family, tie_word_embeddings=tied, dtype=torch.float64).train()
    family_of(model).prepare(model)
    model.gradient_checkpointing_enable()
    return model


def sharded_gradients(folder: Path, family: str, tied: bool) -> None:
    """What one rank does: shard, score its groups twice, write the whole gradients down."""
    rank = dist.get_rank()
    model = prepared(family, tied)
    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    shard(model, mesh, *(() if tied else (model.lm_head,)))
    for _ in range(2):
        model.zero_grad()
        inside(model, partial(loss, groups=groups_of(rank, family))).backward()
    found = {name: p.grad.full_tensor() for name, p in model.named_parameters() if p.grad is not None}
    if rank == 0:
        torch.save(found, folder / "gradients.pt")


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
@pytest.mark.parametrize("tied", [True, False])
def test_two_ranks_give_the_mean_of_their_gradients(tmp_path: Path, family: str, tied: bool) -> None:
    on_ranks(RANKS, sharded_gradients, tmp_path, family, tied)
    found = torch.load(tmp_path / "gradients.pt", weights_only=True)
    plain = prepared(family, tied)
    for rank in range(RANKS):
        (inside(plain, partial(loss, groups=groups_of(rank, family))) / RANKS).backward()
    expected = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 1e-9 * gradient.norm() + 1e-12, name
