"""Qwen3-VL, dense and mixture of experts: attention everywhere, three position axes, features added to early layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from vcsd.models import prefix_tree, vision
from vcsd.models.family import Family, base_model, image_inputs
from vcsd.models.row import shared_hidden_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.models.packing import Group, Prompt
    from vcsd.models.vision import FeatureCache


class Qwen3VL(Family):
    """Shares prefixes by attention alone. Image tokens occur once per group, so deepstack features need no care."""

    name = "qwen3_vl"
    shares_prefix = True

    def prepare(self, model: nn.Module) -> None:
        """Besides the head: shared-prefix mixing, batched vision attention and the vision features' cache."""
        super().prepare(model)
        base = base_model(model)
        prefix_tree.install(base)
        vision.install(base)

    def prompt_positions(self, model: nn.Module, prompt: Prompt) -> Tensor:
        """Time, height and width (3, P), by the model's own rule."""
        rule: Any = base_model(model).model
        ids = prompt.input_ids.cpu()[None]
        is_image = (ids == base_model(model).config.image_token_id).int()
        grid = None if prompt.grid_thw is None else prompt.grid_thw.cpu()
        positions: Tensor = rule.get_rope_index(ids, mm_token_type_ids=is_image, image_grid_thw=grid)[0]
        return positions[:, 0]

    def prompt_inputs(
        self, model: nn.Module, prompts: Sequence[Prompt], mask_BP: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Positions on three axes (3, B, P), zero on the padding."""
        axes = [self.prompt_positions(model, prompt) for prompt in prompts]
        longest = mask_BP.shape[1]
        padded = [functional.pad(positions, (longest - positions.shape[1], 0)) for positions in axes]
        next_B = torch.stack([positions.max() + 1 for positions in axes])
        return {"position_ids": torch.stack(padded, 1), **image_inputs(prompts)}, next_B

    def hidden_states(self, model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Tensor:
        """The hidden states (N, D) at every response position, with each prompt computed once."""
        return shared_hidden_states(model, self, groups, features)


FAMILY = Qwen3VL()
