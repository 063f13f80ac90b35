"""Tiny offline models of each family: about half a million parameters, random weights, built in a second.

build_model(family)      "qwen3_vl", "qwen3_5", their "_moe" variants, or "llava" (which uses the fallback)
shallow(family)          settings of `build_model` for a model of two layers
for_vllm(family)         settings of `build_model` for a model that vLLM can compute on a CPU
rounded(model)           the model with weights that are bfloat16 numbers, as released ones are
exact_arithmetic()       the modelling code's casts to float32 become casts to float64, so that 1e-12 means something
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
import transformers
from transformers import PreTrainedModel

from tiny_processor import LLAVA_SIDE, MERGE, PATCH, VOCAB_SIZE, build_tokenizer
from vcsd.models.qwen import grids

HIDDEN = 96
NOISE = 0.08
"""Added to every parameter: with the stock initialisation the output hardly depends on the image, and a test would
not notice a wrong one."""

_CLASSES = {
    "qwen3_vl": "Qwen3VL",
    "qwen3_5": "Qwen3_5",
    "qwen3_vl_moe": "Qwen3VLMoe",
    "qwen3_5_moe": "Qwen3_5Moe",
    "llava": "Llava",
}


def build_model(
    family: str = "qwen3_vl", seed: int = 0, dtype: torch.dtype = torch.float32, **config: Any
) -> PreTrainedModel:
    """A random model with the token ids of `tiny_processor.build_tokenizer`; `config` overrides the top level."""
    name = _CLASSES[family]
    make_config = getattr(transformers, f"{name}Config")
    model_class = getattr(transformers, f"{name}ForConditionalGeneration")
    settings = _llava() if family == "llava" else _qwen(family)
    torch.manual_seed(seed)
    model: PreTrainedModel = model_class(make_config(**{**settings, **config})).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(NOISE * torch.randn_like(parameter))
    if family.endswith("_moe"):
        model.set_experts_implementation("eager")  # the grouped matrix product has no float64
    tokenizer = build_tokenizer()
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model.eval()


def shallow(family: str) -> dict[str, Any]:
    """Settings for `build_model` with one layer of each kind: where kernels are interpreted, layers take seconds."""
    settings = _qwen(family)
    kinds = ["linear_attention", "full_attention"]
    text = {"num_hidden_layers": 2, **({"layer_types": kinds} if family.startswith("qwen3_5") else {})}
    vision = {"depth": 2, "deepstack_visual_indexes": settings["vision_config"]["deepstack_visual_indexes"][:1]}
    return {
        "text_config": {**settings["text_config"], **text},
        "vision_config": {**settings["vision_config"], **vision},
    }


def for_vllm(family: str) -> dict[str, Any]:
    """Settings for `build_model` with heads of a size that vLLM's delta rule has."""
    delta = {"linear_key_head_dim": 64, "linear_value_head_dim": 64}
    text = _qwen(family)["text_config"]
    return {"text_config": {**text, **(delta if family.startswith("qwen3_5") else {})}}


def rounded(model: PreTrainedModel) -> PreTrainedModel:
    """Round the weights of a model to bfloat16 numbers in place. Their type stays float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return model


@contextmanager
def exact_arithmetic(*models: PreTrainedModel) -> Iterator[None]:
    """Make norms, rotary embeddings, softmax and the delta rule compute in float64, and the models' buffers."""
    for model in models:
        model.double()
    double = {"float32": torch.float64, "float": torch.float64}
    plain_tables = grids._tables.__wrapped__  # those that are kept are in float32
    with (
        patch.multiple(torch, **double),
        patch.object(torch.Tensor, "float", torch.Tensor.double),
        patch.object(grids, "_tables", plain_tables),
    ):
        yield


def _qwen(family: str) -> dict[str, Any]:
    ids = dict(zip(("image", "video", "vision_start", "vision_end"), _ids(), strict=True))
    tokens = {f"{name}_token_id": token for name, token in ids.items()}
    vision = {
        **{"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "num_position_embeddings": 64},
        **{"patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2, "out_hidden_size": HIDDEN},
        "deepstack_visual_indexes": [0, 1] if family.startswith("qwen3_vl") else [],
    }
    head_dim = 32
    text = {
        **{"vocab_size": VOCAB_SIZE, "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN, "num_hidden_layers": 4},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": head_dim, "max_position_embeddings": 4096},
        "pad_token_id": build_tokenizer().pad_token_id,
        **(_delta_net() if family.startswith("qwen3_5") else _rope(head_dim // 2)),
        **(_experts() if family.endswith("_moe") else {}),
    }
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": True, **tokens}


@cache
def image_token_id(family: str) -> int:
    """The placeholder that stands for one visual token."""
    return int(build_tokenizer().convert_tokens_to_ids("<image>" if family == "llava" else "<|image_pad|>"))


def _ids() -> list[int]:
    names = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    return list(build_tokenizer().convert_tokens_to_ids(names))


def _rope(half: int, **more: Any) -> dict[str, Any]:
    section = [half - 2 * (half // 3), half // 3, half // 3]
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_interleaved": True, "mrope_section": section}
    return {"rope_parameters": {**rope, **more}}


def _delta_net() -> dict[str, Any]:
    sizes = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4}
    dims = {"linear_key_head_dim": 16, "linear_value_head_dim": 16}
    layers = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
    return {**sizes, **dims, "layer_types": layers, **_rope(8, partial_rotary_factor=0.5)}


def _experts() -> dict[str, Any]:
    sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    return {**sizes, "shared_expert_intermediate_size": 48, "mlp_only_layers": []}


def _llava() -> dict[str, Any]:
    tokenizer = build_tokenizer()
    vision = {
        **{"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3},
        **{"num_attention_heads": 2, "image_size": LLAVA_SIDE, "patch_size": PATCH},
    }
    text = {
        **{"model_type": "llama", "vocab_size": VOCAB_SIZE, "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN},
        **{"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2},
        "pad_token_id": tokenizer.pad_token_id,
    }
    image = tokenizer.convert_tokens_to_ids("<image>")
    # "default" drops the class token, which the tiny processor does not count
    select = {"vision_feature_select_strategy": "default", "vision_feature_layer": -1}
    return {"vision_config": vision, "text_config": text, "image_token_index": image, "image_token_id": image, **select}
