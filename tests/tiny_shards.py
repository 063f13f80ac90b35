"""Tiny models under FSDP2, and a loss that travels inside them, as a trainer would write it."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from tiny_groups import nonlinear_loss
from vcsd.models.inside import with_head
from vcsd.models.packed.packing import Group
from vcsd.models.score import hidden_states


def loss(model: nn.Module, groups: Sequence[Group]) -> Tensor:
    """A function of hidden states and head."""
    hidden_ND = hidden_states(model, groups)
    return with_head(model, lambda head: nonlinear_loss(hidden_ND @ head.weight_VD.T))


def shard(model: Any, mesh: DeviceMesh, *units: nn.Module, **settings: Any) -> None:
    """Every layer is a unit, and so are those that are named, and the rest."""
    for unit in (*model.model.language_model.layers, *model.model.visual.blocks, *units, model):
        fully_shard(unit, mesh=mesh, **settings)
