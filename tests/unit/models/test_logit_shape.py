"""A scale or a soft cap counts if the model's forward applies it, regardless of the configuration."""

from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version
from torch import nn

from tiny_models import build_model
from vcsd.errors import ConfigError
from vcsd.loss.head import finish_logits
from vcsd.models.family import family_of

SIZES = {
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
TOWER = {
    **{"model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "image_size": 32, "patch_size": 16},
}


PALIGEMMA_CAP = 30.0 if Version(transformers.__version__) >= Version("5.23") else None
"""Earlier releases leave the cap of the configuration out."""


def text_model(name: str, **settings: Any) -> nn.Module:
    config = getattr(transformers, f"{name}Config")(**SIZES, **settings)
    return noisy(getattr(transformers, f"{name}ForCausalLM"), config)


def vision_model(name: str, text: str, **settings: Any) -> nn.Module:
    parts = {"text_config": {"model_type": text, **SIZES, **settings}, "vision_config": TOWER}
    config = getattr(transformers, f"{name}Config")(**parts, image_token_index=5, image_token_id=5)
    return noisy(getattr(transformers, f"{name}ForConditionalGeneration"), config)


def noisy(model_class: Any, config: Any) -> nn.Module:
    torch.manual_seed(0)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


MODELS = {
    "cohere2 scales": (lambda: text_model("Cohere2", logit_scale=0.25), (0.25, None)),
    "granite divides": (lambda: text_model("Granite", logits_scaling=8.0), (0.125, None)),
    "gemma2 caps": (lambda: text_model("Gemma2", final_logit_softcapping=5.0), (1.0, 5.0)),
    "llama does nothing": (lambda: text_model("Llama"), (1.0, None)),
    "aya vision leaves the scale out": (lambda: vision_model("AyaVision", "cohere2", logit_scale=0.25), (1.0, None)),
    "paligemma": (lambda: vision_model("PaliGemma", "gemma2"), (1.0, PALIGEMMA_CAP)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scale_and_soft_cap_are_those_that_the_model_applies(name: str, dtype: torch.dtype) -> None:
    build, expected = MODELS[name]
    model = build().to(dtype)
    head = family_of(model).head(model)
    assert (head.logit_scale, head.soft_cap) == expected


@pytest.mark.parametrize("name", MODELS)
def test_the_heads_logits_are_the_models(name: str) -> None:
    model = MODELS[name][0]()
    family, ids = family_of(model), torch.arange(10, 19)[None]
    types = {"token_type_ids": torch.zeros_like(ids)} if "paligemma" in name else {}
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=torch.ones_like(ids), **types).logits[0]
        hidden_ND = model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids), **types).last_hidden_state[0]
        head = family.head(model)
        found = finish_logits(hidden_ND @ head.weight_VD.T, head)
    assert expected.std() > 0.1
    assert (found - expected).abs().max() < 1e-4


def test_preparing_leaves_hooks_and_modes_as_they_were() -> None:
    model = text_model("Gemma2", final_logit_softcapping=5.0).train()
    model.lm_head.eval()
    with pytest.warns(UserWarning, match="shares prefixes"):
        family_of(model).prepare(model)
    assert model.training
    assert not model.lm_head.training
    assert not model.lm_head._forward_hooks


def test_anything_else_after_the_head_is_refused() -> None:
    model = build_model("llava")
    model.config.text_config.logits_scaling = 4.0
    assert family_of(model).head(model).logit_scale == 1.0
    other = build_model("llava")
    other.config.text_config.logits_scaling = 4.0
    other.register_forward_hook(lambda *given: type(given[-1])(logits=3 * given[-1].logits))
    with pytest.raises(ConfigError, match="something other than the scale and the soft cap"):
        family_of(other).head(other)


def test_a_model_that_cannot_be_looked_at_is_refused() -> None:
    model = build_model("llava")
    model.config.text_config.final_logit_softcapping = 30.0
    model.model.register_forward_pre_hook(lambda *given: 1 / 0)
    with pytest.raises(ConfigError, match="could not be measured: division by zero"):
        family_of(model).head(model)
