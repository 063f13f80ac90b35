"""Tiny models with random weights and the real Qwen3-VL and Qwen3.5 architectures, in a few sizes.

One visual token is a cell of 32 x 32 pixels. The tiny Qwen3.5 alternates delta nets and attention. Released models have
three delta nets per attention layer, for which four layers are too few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import transformers

from vcsd.bases.tokenizer import END, IMAGE, MERGE, PAD, PATCH, VOCABULARY, FamilyName, token_id
from vcsd.errors import ConfigError, did_you_mean
from vcsd.world.parameters import PARAMETERS
from vcsd.world.render import CELL

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class ModelSize:
    """The widths and depths of a model."""

    hidden: int
    layers: int
    vision_hidden: int
    vision_layers: int
    head: int = 32


SIZES: dict[str, ModelSize] = {
    "tiny": ModelSize(hidden=64, layers=2, vision_hidden=64, vision_layers=2),
    "small": ModelSize(hidden=192, layers=4, vision_hidden=128, vision_layers=3),
    "medium": ModelSize(hidden=320, layers=6, vision_hidden=192, vision_layers=4),
}
"""tiny is for tests, small is shipped, and medium is the second size of the experiments."""

FAMILIES: dict[FamilyName, str] = {"qwen3_vl": "Qwen3VL", "qwen3_5": "Qwen3_5"}


def checked_family(name: str) -> FamilyName:
    """Return the family with this name, or raise."""
    family = next((family for family in FAMILIES if family == name), None)
    if family is None:
        raise ConfigError([f"{name!r} is not a family of the world. {did_you_mean(name, FAMILIES)}"])
    return family


def build_model(family: FamilyName, size: str = "small", seed: int = 0) -> PreTrainedModel:
    """Build a model with random weights in float32. The same seed gives the same weights."""
    name = FAMILIES[checked_family(family)]
    if size not in SIZES:
        raise ConfigError([f"{size!r} is not a size of the world's models. {did_you_mean(size, SIZES)}"])
    config = getattr(transformers, f"{name}Config")(**_settings(family, SIZES[size]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    model.generation_config.eos_token_id = [token_id(END), token_id(PAD)]
    model.generation_config.pad_token_id = token_id(PAD)
    return model


def _settings(family: FamilyName, size: ModelSize) -> dict[str, object]:
    heads = size.hidden // size.head
    text: dict[str, object] = {
        **{"vocab_size": VOCABULARY, "hidden_size": size.hidden, "num_hidden_layers": size.layers},
        **{"intermediate_size": 8 * size.hidden // 3 // 32 * 32, "num_attention_heads": heads, "head_dim": size.head},
        **{"num_key_value_heads": heads, "max_position_embeddings": 2048, "pad_token_id": token_id(PAD)},
        "eos_token_id": token_id(END),
        **(_delta_net(size) if family == "qwen3_5" else _rope(size.head // 2)),
    }
    side = max(PARAMETERS.sides) * CELL // PATCH
    vision: dict[str, object] = {
        **{"depth": size.vision_layers, "hidden_size": size.vision_hidden},
        "num_heads": size.vision_hidden // size.head,
        **{"intermediate_size": 2 * size.vision_hidden, "num_position_embeddings": side**2},
        **{"patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2, "out_hidden_size": size.hidden},
        "deepstack_visual_indexes": [1] if family == "qwen3_vl" else [],
    }
    special = {"image": IMAGE, "video": "<|video_pad|>", "vision_start": "<|vision_start|>"}
    special["vision_end"] = "<|vision_end|>"
    tokens = {f"{name}_token_id": token_id(token) for name, token in special.items()}
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": True, **tokens}


def _rope(half: int, **more: float) -> dict[str, object]:
    section = [half - 2 * (half // 3), half // 3, half // 3]
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_interleaved": True, "mrope_section": section}
    return {"rope_parameters": {**rope, **more}}


def _delta_net(size: ModelSize) -> dict[str, object]:
    heads = size.hidden // size.head
    sizes = {"linear_num_key_heads": heads, "linear_num_value_heads": heads, "linear_conv_kernel_dim": 4}
    dims = {"linear_key_head_dim": size.head, "linear_value_head_dim": size.head}
    layers = [("linear_attention", "full_attention")[i % 2] for i in range(size.layers)]
    return {**sizes, **dims, "layer_types": layers, **_rope(size.head // 4, partial_rotary_factor=0.5)}
