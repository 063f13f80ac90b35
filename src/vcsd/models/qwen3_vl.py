"""Qwen3-VL, dense and mixture of experts: attention everywhere, three position axes, features added to early layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.models import fused, grids, prefix_tree, vision
from vcsd.models.family import Family, base_model
from vcsd.models.row import shared_hidden_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.models.packing import Group
    from vcsd.models.vision import FeatureCache


class Qwen3VL(Family):
    """Shares prefixes by attention alone. Image tokens occur once per group, so deepstack features need no care."""

    name = "qwen3_vl"
    shares_prefix = True

    def prepare(self, model: nn.Module) -> None:
        """Besides the head: shared-prefix mixing, fused operations, batched vision attention and its cache."""
        super().prepare(model)
        base = base_model(model)
        prefix_tree.install(base)
        fused.install(base)
        vision.install(base)
        grids.install(base)

    def hidden_states(self, model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Tensor:
        """The hidden states (N, D) at every response position, with each prompt computed once."""
        return shared_hidden_states(model, self, groups, features)


FAMILY = Qwen3VL()
