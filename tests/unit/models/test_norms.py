"""Fused norms: the same function, the same types."""

import copy

import pytest
import torch

from tiny_groups import gradients, nonlinear_loss, three_groups, worst_gap
from tiny_models import build_model, exact_arithmetic
from vcsd.models.family import family_of
from vcsd.models.norms import fuse_norms, unfuse_norms
from vcsd.models.score import hidden_states

FAMILIES = ["qwen3_vl", "qwen3_5", "qwen3_vl_moe", "qwen3_5_moe"]


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_and_gradients_stay_the_same(family: str) -> None:
    groups, results = three_groups(family)[:2], []
    for is_fused in (False, True):
        model = build_model(family, dtype=torch.float64).train()
        family_of(model).prepare(model)
        if is_fused:
            num_full = model.config.text_config.layer_types.count("full_attention") if "5" in family else 4
            assert fuse_norms(model) == 2 * 4 + 2 * num_full + 1
        with exact_arithmetic(model):
            hidden = hidden_states(model, groups)
            nonlinear_loss(hidden).backward()
        results.append((hidden.detach(), gradients(model)))
    (expected, expected_grads), (found, found_grads) = results
    assert (found - expected).abs().max() < 1e-12
    assert worst_gap(found_grads, expected_grads)[0] < 1e-9


@pytest.mark.parametrize("family", FAMILIES[:2])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("inputs", [torch.float32, torch.bfloat16])
def test_types_are_those_of_the_stock_norm(family: str, weights: torch.dtype, inputs: torch.dtype) -> None:
    model = build_model(family).to(weights)
    fused = copy.deepcopy(model)
    fuse_norms(fused)
    x = torch.randn(3, 96).to(inputs)
    norm, same = (m.model.language_model.layers[0].input_layernorm for m in (model, fused))
    assert same(x).dtype == norm(x).dtype
    assert (same(x) - norm(x)).abs().max() < 0.05
    unfuse_norms(fused)
    assert torch.equal(same(x), norm(x))
