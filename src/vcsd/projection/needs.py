"""Describe a recipe for a projection, without needing weights, data or a GPU.

Missing weights are replaced by the shapes of the released model, missing data by the lengths that the recipe allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from vcsd.errors import ConfigError
from vcsd.models.hub import local_folder, refuse_missing_path, refuse_quantized_folder, refuse_unsafe
from vcsd.models.messages.prompt_length import longest_prompt as longest_within_model
from vcsd.models.shapes import known_shape
from vcsd.projection.project import CHUNKED_LOSS, Job, Sizes, Step
from vcsd.student import base_dtype, trained

if TYPE_CHECKING:
    from vcsd.config.recipe import Recipe

TYPICAL_PROMPT = 1064
"""Tokens of a prompt if there is no data to measure: an image of one megapixel with a short question."""

_PIXELS_PER_TOKEN = 32 * 32


def empty_model(recipe: Recipe) -> tuple[Any, str]:
    """Build the recipe's model on the meta device; also return where its shapes come from."""
    path = recipe.model.path
    folder, shape = local_folder(path), known_shape(path)
    if folder is not None:
        refuse_unsafe(folder)
        refuse_quantized_folder(folder)
        config, source = AutoConfig.from_pretrained(folder, trust_remote_code=False), f"{folder / 'config.json'}"
    elif shape is not None:
        config, source = shape.config(), shape.source
    else:
        refuse_missing_path(path, key="model.path")
        raise ConfigError(
            [f"model.path = {path!r} is neither a folder nor a model on the hub whose shapes are known here."]
        )
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    return trained(model, recipe, recipe.trainer.get("seed", 42)), source


def job_of(recipe: Recipe, model: Any, prompt_tokens: int | None = None) -> Job:
    """Describe a recipe for a projection. `prompt_tokens` is a measured length, if there is data to measure."""
    method, rollout, trainer = recipe.method, recipe.rollout, recipe.trainer
    longest = _longest_prompt(recipe, prompt_tokens)
    longest = min(longest, longest_within_model(model.config, rollout.max_new_tokens) or longest)
    typical = min(prompt_tokens or TYPICAL_PROMPT, longest)
    is_half = bool(trainer.get("bf16"))
    sizes = Sizes.of(
        model,
        has_teacher=method.teacher != "current",
        has_half_copy=is_half,
        base_bytes=base_dtype(recipe, is_half=is_half).itemsize,
        is_offloaded=recipe.offload,
    )
    return Job.of(
        model,
        sizes,
        Step(recipe.prompts_per_step, rollout.num_per_prompt, typical, rollout.max_new_tokens),
        longest,
        num_looks=1 if method.contrast_view is None else 2,
        is_checkpointed=bool(trainer.get("gradient_checkpointing")),
        token_budget=recipe.token_budget,
        loss_factor=CHUNKED_LOSS if method.objective().needs_chunked else 1.0,
    )


def _longest_prompt(recipe: Recipe, prompt_tokens: int | None) -> int:
    """The longest prompt that the recipe allows; without a limit, the typical one."""
    pixels = recipe.model.max_pixels
    limits = [recipe.data.max_prompt_tokens, None if pixels is None else pixels // _PIXELS_PER_TOKEN + 200]
    known = [limit for limit in limits if limit is not None]
    return max(min(known) if known else TYPICAL_PROMPT, prompt_tokens or 0)
