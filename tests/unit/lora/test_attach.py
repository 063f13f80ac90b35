"""Where adapters are put, how they start, and which of their factors a recipe trains."""

import peft
import pytest
import torch
from torch import nn

from tiny_lora import EVERYWHERE, LANGUAGE, lora_model
from tiny_models import build_model
from vcsd.errors import ConfigError
from vcsd.lora.attach import cast_without_autocast, freeze_first_factors, recipe_config, with_adapters
from vcsd.models.freeze import is_adapter, part_of
from vcsd.models.patch import replace_method


def adapted_parts(model):
    return {part_of(name) for name, _ in model.get_base_model().named_parameters() if is_adapter(name)}


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "llava", "qwen3_5_moe"])
def test_adapters_are_on_the_asked_parts_and_never_on_the_head(family):
    assert adapted_parts(lora_model(family, LANGUAGE)) == {"language"}
    everywhere = lora_model(family, EVERYWHERE)
    assert adapted_parts(everywhere) == {"language", "vision", "projector"}
    assert not any("lm_head" in name for name, _ in everywhere.named_parameters() if is_adapter(name))


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "llava"])
def test_every_linear_layer_of_the_language_model_is_adapted_once(family):
    base = build_model(family)
    num_linears = sum(
        isinstance(module, torch.nn.Linear) and part_of(f"{name}.") == "language" and "lm_head" not in name
        for name, module in base.named_modules()
    )
    model = lora_model(family)
    assert sum(".lora_B." in name for name, _ in model.named_parameters()) == num_linears


def test_a_recipe_trains_b_alone_in_float32_on_a_base_of_any_type():
    model = lora_model(dtype=torch.bfloat16)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained
    assert all(".lora_B." in name and p.dtype == torch.float32 for name, p in trained.items())
    frozen = [p for name, p in model.named_parameters() if not is_adapter(name)]
    assert all(p.dtype == torch.bfloat16 for p in frozen)


def test_the_start_depends_on_the_seed_alone_and_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    one = lora_model(seed=1)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    plain = build_model()
    torch.set_rng_state(state)
    two = with_adapters(plain, recipe_config(plain, 4, parts=LANGUAGE), seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    for (name, mine), other in zip(one.named_parameters(), two.parameters(), strict=True):
        assert torch.equal(mine, other), name
    other = lora_model(seed=2)
    pairs = zip(one.named_parameters(), other.parameters(), strict=True)
    assert all(not torch.equal(mine, theirs) for (name, mine), theirs in pairs if ".lora_A." in name)


def test_under_autocast_adapters_keep_no_copies_of_their_inputs():
    """Same outputs as PEFT's own layers, in which every adapter casts its input up and autocast casts it down."""
    base = nn.Sequential(nn.Linear(8, 8, bias=False)).to(torch.bfloat16)
    layer = peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["0"], init_lora_weights=False), base)[0]
    for factor in (layer.lora_A, layer.lora_B):
        factor.float()
    x, kept = torch.randn(5, 8, dtype=torch.bfloat16), []

    def forward():
        sizes = []
        with (
            torch.autocast("cpu", torch.bfloat16),
            torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.data_ptr()) or t, lambda t: t),
        ):
            out = layer(x)
        kept.append(x.data_ptr() in sizes)
        return out

    expected = forward()
    replace_method(layer, "_cast_input_dtype", cast_without_autocast)
    assert torch.equal(forward(), expected)
    assert kept == [False, True]
    assert layer(x).dtype == torch.bfloat16, "without autocast, PEFT's own cast"


def test_a_model_without_adapters_has_no_factor_to_freeze():
    with pytest.raises(ConfigError, match="has no adapters"):
        freeze_first_factors(build_model())


def test_the_scale_is_pefts_alpha_over_rank():
    plain = build_model()
    model = with_adapters(plain, recipe_config(plain, 8, 1.5, parts=LANGUAGE))
    layers = [module for module in model.modules() if hasattr(module, "lora_B")]
    assert {layer.scaling["default"] for layer in layers} == {1.5}
