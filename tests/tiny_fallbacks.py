"""Tiny models that use the fallback, each with its own way to see images.

build_fallback("qwen2_5_vl")      three position axes by the model's own rule; also "qwen2_vl", "glm4v"
build_fallback("smolvlm")         an image is cut into tiles; also "llava_next" and "idefics3", which is a family
build_fallback("paligemma")       tokens without a type of their own are a prefix that sees itself as a whole
tiled_prompts("smolvlm")          prompts whose images have different numbers of tiles
"""

from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from tiny_groups import TinyPrompt, words
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


_SIDE = 32
_PIN_POINTS = [[32, 64], [64, 32], [64, 64], [32, 96], [96, 32]]
_TILED_TOWER = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"image_size": _SIDE, "patch_size": 16},
}


def _tiled(name: str, **more: Any) -> tuple[str, dict[str, Any]]:
    text = {"model_type": "llama", **_TEXT, "pad_token_id": build_tokenizer().pad_token_id}
    image = image_token_id("llava")
    return name, {"text_config": text, "image_token_id": image, "image_token_index": image, **more}


def _smolvlm() -> tuple[str, dict[str, Any]]:
    return _tiled("SmolVLM", vision_config=_TILED_TOWER, scale_factor=2)


def _idefics3() -> tuple[str, dict[str, Any]]:
    return _tiled("Idefics3", vision_config=_TILED_TOWER, scale_factor=2)


def _llava_next() -> tuple[str, dict[str, Any]]:
    tower = {"model_type": "clip_vision_model", **_TILED_TOWER}
    select = {"vision_feature_select_strategy": "default", "image_grid_pinpoints": _PIN_POINTS}
    return _tiled("LlavaNext", vision_config=tower, **select)


def _paligemma() -> tuple[str, dict[str, Any]]:
    tower = {"model_type": "siglip_vision_model", **_TILED_TOWER}
    name, settings = _tiled("PaliGemma", vision_config=tower, projection_dim=HIDDEN)
    return name, {**settings, "text_config": {**settings["text_config"], "model_type": "gemma2", "head_dim": 16}}


def tiled_prompts(family: str) -> list[TinyPrompt]:
    """SmolVLM: 1, 3 and no tiles of one token each. LLaVA-NeXT: 5 and 4 tiles, rows end in a token."""
    if family in ("smolvlm", "idefics3"):
        return [_tiled_prompt(f"tiles-{num}", num, num, _mask(num)) for num in (1, 3, 0)]
    square, tall = torch.tensor([[60, 60]]), torch.tensor([[90, 30]])
    return [
        _tiled_prompt("square", 5, 4 + 4 * (4 + 1), {"image_sizes": square}),
        _tiled_prompt("tall", 4, 4 + 6 * (2 + 1), {"image_sizes": tall}),
    ]


def _mask(num_tiles: int) -> dict[str, Tensor]:
    return {"pixel_attention_mask": torch.ones(1, num_tiles, _SIDE, _SIDE, dtype=torch.long)} if num_tiles else {}


def _tiled_prompt(name: str, num_tiles: int, num_tokens: int, extra: dict[str, Tensor]) -> TinyPrompt:
    generator = torch.Generator().manual_seed(num_tiles)
    shape = (1, num_tiles, 3, _SIDE, _SIDE)
    pixels = torch.randn(shape, generator=generator, dtype=torch.float64) if num_tiles else None
    image = torch.full((num_tokens,), image_token_id("llava"))
    ids = torch.cat([words(4, generator), image, words(3 + num_tiles, generator)])
    return TinyPrompt(ids, pixels, None, extra, name)


_FAMILIES = {
    **{"qwen2_vl": _qwen2_vl, "qwen2_5_vl": _qwen2_5_vl, "glm4v": _glm4v},
    **{"smolvlm": _smolvlm, "idefics3": _idefics3, "llava_next": _llava_next, "paligemma": _paligemma},
}
