"""FSDP2: every rank keeps a shard of each weight, of student and teacher alike.

Units, each gathered as a whole when it runs: every layer that the model's class names as indivisible, a head that does
not share its weight with the embedding, and the rest. Shards are in the weights' own type (float32); with a compute
type, weights are gathered in it, and gradients are reduced in float32. `fully_shard` is called directly, because
accelerate prepares one model only, and on GPUs only.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from vcsd.errors import ConfigError
from vcsd.models.family import base_model, family_of
from vcsd.models.features import tower_of, trains
from vcsd.models.inside import reshard
from vcsd.parallel.distress import let_go_in_distress
from vcsd.parallel.ranks import num_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


def shard(model: nn.Module, device: torch.device, compute_dtype: torch.dtype | None) -> None:
    """Shard a model over all ranks, in place. Idempotent."""
    if is_sharded(model):
        return
    mesh = init_device_mesh(device.type, (num_ranks(),))
    policy = MixedPrecisionPolicy() if compute_dtype is None else MixedPrecisionPolicy(compute_dtype, torch.float32)
    for unit in [*_layers(model), *_lone_head(model), model]:
        fully_shard(unit, mesh=mesh, mp_policy=policy)
    let_go_in_distress(model)
    model._is_accelerate_prepared = True  # type: ignore[assignment]  # accelerate then leaves it as it is


def _layers(model: nn.Module) -> list[nn.Module]:
    """The layers that are gathered one at a time, inner ones first."""
    names = set(getattr(base_model(model), "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in names]
    if not layers:
        raise ConfigError(
            [f"{type(base_model(model)).__name__} does not name its layers, so FSDP2 cannot shard it. Use DDP."]
        )
    return layers[::-1]


def _lone_head(model: nn.Module) -> list[nn.Module]:
    """The head, unless the embedding uses the same weight."""
    head = family_of(model).head_module(model)
    embedding = base_model(model).get_input_embeddings()
    return [] if head.weight is embedding.weight else [head]


def is_sharded(model: nn.Module) -> bool:
    """Whether a model is sharded by FSDP2."""
    return isinstance(model, FSDPModule)


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor: all of it if it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Return all of a tensor, gathered from all ranks if it is sharded. Collective."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@contextmanager
def towers_gathered(student: nn.Module, teacher: nn.Module) -> Iterator[None]:
    """Gather vision towers that are not trained once for a whole step; afterwards, shard both models again.

    Cached features let a rank skip such a tower where another runs it, so neither may wait for the other. A tower that
    is trained runs in every row of every rank.
    """
    towers = [tower_of(teacher), None if trains(tower_of(student)) else tower_of(student)]
    units = [unit for tower in towers if tower for unit in tower.modules() if isinstance(unit, FSDPModule)]
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            unit.set_reshard_after_forward(True, recurse=False)
        reshard(student, teacher)
