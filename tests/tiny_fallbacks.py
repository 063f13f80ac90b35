"""Tiny models of families without an adapter, each with a way of its own to see images.

build_fallback("qwen2_5_vl")      three position axes by the model's own rule; also "qwen2_vl", "glm4v"
"""

from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from tiny_models import HIDDEN, NOISE, image_token_id
from tiny_processor import MERGE, PATCH, VOCAB_SIZE, build_tokenizer

_TEXT = {
    **{"vocab_size": VOCAB_SIZE, "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096},
    **{"bos_token_id": None, "eos_token_id": None},
}
_TOWER = {"depth": 2, "num_heads": 2, "patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2}


def build_fallback(family: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A random model with the token ids of `tiny_processor.build_tokenizer`."""
    tokenizer = build_tokenizer()
    name, settings = _FAMILIES[family]()
    torch.manual_seed(0)
    model_class = getattr(transformers, f"{name}ForConditionalGeneration")
    model: PreTrainedModel = model_class(getattr(transformers, f"{name}Config")(**settings)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(NOISE * torch.randn_like(parameter))
    model.generation_config.eos_token_id = [tokenizer.eos_token_id]
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model.eval()


def _three_axes(name: str, vision: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    tokens = build_tokenizer().convert_tokens_to_ids(["<|video_pad|>", "<|vision_start|>", "<|vision_end|>"])
    ids = dict(zip(("video", "vision_start", "vision_end"), tokens, strict=True), image=image_token_id("qwen3_vl"))
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 4, 4]}
    return name, {
        "text_config": {**_TEXT, "pad_token_id": build_tokenizer().pad_token_id, "rope_parameters": rope},
        "vision_config": {**_TOWER, **vision},
        **{f"{name}_token_id": token for name, token in ids.items()},
    }


def _qwen2_vl() -> tuple[str, dict[str, Any]]:
    return _three_axes("Qwen2VL", {"embed_dim": 32, "hidden_size": HIDDEN, "mlp_ratio": 2})


def _qwen2_5_vl() -> tuple[str, dict[str, Any]]:
    windows = {"window_size": 2 * MERGE * PATCH, "fullatt_block_indexes": [1]}
    return _three_axes("Qwen2_5_VL", {"hidden_size": 32, "intermediate_size": 64, "out_hidden_size": HIDDEN, **windows})


def _glm4v() -> tuple[str, dict[str, Any]]:
    vision = {"hidden_size": 32, "intermediate_size": 64, "out_hidden_size": HIDDEN, "image_size": 8 * PATCH}
    return _three_axes("Glm4v", vision)


_FAMILIES = {"qwen2_vl": _qwen2_vl, "qwen2_5_vl": _qwen2_5_vl, "glm4v": _glm4v}
