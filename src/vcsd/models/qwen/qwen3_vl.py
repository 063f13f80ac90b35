"""Qwen3-VL, dense and mixture of experts: attention everywhere, three position axes, features added to early layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from vcsd.models.family import Family, base_model
from vcsd.models.patch import Patch
from vcsd.models.qwen import fused, grids, prefix_tree, vision
from vcsd.models.qwen.row import shared_hidden_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.models.features import FeatureCache
    from vcsd.models.packed.packing import Group

SHARED_PATCHES: tuple[Patch, ...] = (
    Patch("apply_rotary_pos_emb", fused.rotary),
    Patch("apply_rotary_pos_emb_vision", fused.vision_rotary),
    Patch("Model.get_placeholder_mask", grids.placeholders),
    Patch("VisionModel.forward", vision.tower_forward),
    Patch("VisionPatchEmbed.forward", fused.patches_forward),
    Patch("VisionBlock.forward", fused.layer_forward),
)
"""The patches of both Qwen3-VL and Qwen3.5."""


class Qwen3VL(Family):
    """Shares prefixes through attention alone. Image tokens occur once per group, as deepstack features expect."""

    name = "qwen3_vl"
    shares_prefix = True
    prefixes: ClassVar = {"qwen3_vl": "Qwen3VL", "qwen3_vl_moe": "Qwen3VLMoe"}
    patches: tuple[Patch, ...] = (
        *SHARED_PATCHES,
        Patch("TextDecoderLayer.forward", fused.layer_forward),
        Patch("TextRMSNorm.forward", fused.norm_forward),
        Patch("TextMLP.forward", fused.mlp_forward),
        Patch("TextModel._deepstack_process", grids.add_features),
    )

    def prepare(self, model: nn.Module) -> None:
        """Prepare the head, install shared-prefix and batched vision attention, and apply the patches."""
        super().prepare(model)
        base = base_model(model)
        prefix_tree.install(base)
        vision.install(base)
        self.patch(model)

    def patch(self, model: nn.Module) -> None:
        """Apply the family's patches, and mark the norms that feed only linear layers."""
        super().patch(model)
        fused.mark_norms_before_linears(base_model(model))

    def hidden_states(self, model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Tensor:
        """The hidden states (N, D) at every response position, with each prompt computed once."""
        return shared_hidden_states(model, self, groups, features)


FAMILY = Qwen3VL()
