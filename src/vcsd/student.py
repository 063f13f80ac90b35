"""The student of a recipe: which parts of a model are trained, and the dtype of its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.lora.attach import freeze_first_factors, has_peft, recipe_config, with_adapter_shapes, with_adapters
from vcsd.models.freeze import freeze

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

    from vcsd.config.recipe import Recipe


def base_dtype(recipe: Recipe, *, is_half: bool) -> torch.dtype:
    """Return the dtype of the weights: float32, or bfloat16 for the frozen base of adapters in a bf16 run."""
    return torch.bfloat16 if recipe.lora.rank is not None and is_half else torch.float32


def trained(model: PreTrainedModel, recipe: Recipe, seed: int) -> PreTrainedModel | PeftModel:
    """Return the model with the parts that a recipe trains: adapters on a frozen base, or parts of the model itself.

    A model on the meta device is only counted: it gets the shapes of its adapters even where peft is missing.
    """
    lora = recipe.lora
    if lora.rank is None:
        freeze(
            model, *(part for part in ("vision", "projector", "language") if getattr(recipe.model, f"freeze_{part}"))
        )
        return model
    if model.device.type == "meta" and not has_peft():
        adapted = with_adapter_shapes(model, lora.rank, lora.parts)
    else:
        config = recipe_config(model, lora.rank, lora.scale, parts=lora.parts)
        adapted = with_adapters(model, config, seed=seed)
    if not lora.train_a:
        freeze_first_factors(adapted)
    return adapted
