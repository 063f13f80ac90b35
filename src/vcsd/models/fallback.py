"""Any other image-text-to-text model: prompts repeated per response, in a padded batch.

The result is exact, but a prompt and its image are computed once per response instead of once per prompt.

Shape legend: B responses of all groups, L tokens of the longest prompt with its response, N positions, D hidden width.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import pad_sequence

from vcsd.errors import ConfigError
from vcsd.models.family import Family, base_model, extra_inputs, image_inputs, is_image, pad_token_id, position_rule
from vcsd.models.logit_shape import logit_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.models.features import FeatureCache
    from vcsd.models.packed.packing import Group


class Fallback(Family):
    """Any model whose family the package does not know."""

    name = "fallback"

    def prepare(self, model: nn.Module) -> None:
        """Warn about the cost of the fallback."""
        super().prepare(model)
        self.logit_shape(model)  # measured now: the model may be sharded later
        warnings.warn(
            f"{type(base_model(model)).__name__} is not of a family that shares prefixes: each prompt and its image "
            "are computed once per response. With 8 responses, scoring costs up to 8 times as much.",
            stacklevel=2,
        )

    def logit_shape(self, model: nn.Module) -> tuple[float, float | None]:
        """The scale and soft cap that the model's forward applies, measured if the configuration names any."""
        return logit_shape(base_model(model), self.head_module(model), self.vision_token_ids(model))

    def hidden_states(self, model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Tensor:
        """The hidden states (N, D) at every response position, from the repeated batch. Features are not cached."""
        base = base_model(model)
        if base.base_model is base:
            raise ConfigError([f"{type(base).__name__} has no model without its head; it cannot be scored."])
        prompts = [group.prompt for group in groups for _ in group.responses]
        responses = [torch.tensor(response) for group in groups for response in group.responses]
        rows = [torch.cat([p.input_ids.cpu(), r]) for p, r in zip(prompts, responses, strict=True)]
        ids_BL = pad_sequence(rows, batch_first=True, padding_value=pad_token_id(base))
        mask_BL = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        inputs = {
            **{"input_ids": ids_BL, "attention_mask": mask_BL},
            # The model computes positions itself; `prompt_positions` is checked against them.
            **({} if position_rule(base) is None else {"mm_token_type_ids": is_image(base, ids_BL)}),
            **image_inputs(prompts),
            **extra_inputs(prompts, ids_BL.shape[1], left=False),
        }
        inputs = {name: tensor.to(base.device) for name, tensor in inputs.items()}
        hidden_BLD = base.base_model(**inputs, use_cache=False).last_hidden_state
        places = [
            row * ids_BL.shape[1] + len(prompt.input_ids) - 1 + torch.arange(len(response))
            for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True))
        ]
        hidden_ND: Tensor = hidden_BLD.flatten(0, 1).index_select(0, torch.cat(places).to(base.device))
        return hidden_ND


FAMILY = Fallback()
