"""Patches of transformers: every listed name exists, patching twice changes nothing, conflicts are refused."""

from copy import deepcopy
from functools import partial, wraps
from importlib import import_module
from types import MethodType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils.operations import convert_outputs_to_fp32
from torch import nn

from tiny_fallbacks import build_fallback
from tiny_models import build_model
from vcsd.errors import ConfigError
from vcsd.models.family import FAMILIES, family_of
from vcsd.models.patch import Patch, missing, open_to_code, replace_function, replace_method

PATCHED = [model_type for model_type, module in FAMILIES.items() if import_module(module).FAMILY.patches]


def modelling_module(model_type: str) -> ModuleType:
    return import_module(f"transformers.models.{model_type}.modeling_{model_type}")


@pytest.mark.parametrize("model_type", PATCHED)
def test_transformers_still_has_every_name_that_a_family_patches(model_type: str) -> None:
    family = import_module(FAMILIES[model_type]).FAMILY
    assert missing(family.patches, modelling_module(model_type), family.prefixes[model_type]) == []


@pytest.mark.parametrize("model_type", PATCHED)
def test_every_patched_class_occurs_in_the_model(model_type: str) -> None:
    """Upstream could also keep a class and stop using it."""
    model = build_fallback(model_type) if model_type == "idefics3" else build_model(model_type)
    family, names = family_of(model), {type(module).__name__ for module in model.modules()}
    owners = {patch.name.split(".")[0] for patch in family.patches if "." in patch.name}
    unused = {owner for owner in owners if family.prefixes[model_type] + owner not in names}
    assert unused == ({"TextMLP"} if model_type == "qwen3_vl_moe" else set())  # of dense layers, which it may have


def test_a_name_that_upstream_removed_is_named() -> None:
    home = ModuleType("modeling")
    home.KnownModel = SimpleNamespace(forward=None)  # type: ignore[attr-defined]
    patches = [Patch(name, print) for name in ("Model.forward", "Model.gone", "lost")]
    assert missing(patches, home, "Known") == ["KnownModel.gone", "lost"]


@pytest.mark.parametrize("part", ["root", "head", "tower", "layer"])
def test_a_forward_that_another_library_has_replaced_is_refused(part: str) -> None:
    model: Any = build_model()
    layer = model.model.language_model.layers[0]
    module = {"root": model, "head": model.lm_head, "tower": model.model.visual, "layer": layer}[part]
    module.forward = MethodType(lambda self, *args, **keywords: None, module)
    with pytest.raises(ConfigError, match="another library has replaced"):
        family_of(model).prepare(model)


def test_a_function_that_another_library_has_replaced_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    home = modelling_module("qwen3_vl")
    monkeypatch.setattr(home, "apply_rotary_pos_emb", lambda q, k, cos, sin: (q, k))
    with pytest.raises(ConfigError, match=r"modeling_qwen3_vl\.apply_rotary_pos_emb"):
        replace_function(home, "apply_rotary_pos_emb", wraps)


def test_a_function_is_wrapped_once() -> None:
    home = ModuleType("some.home")
    exec("def double(x): return 2 * x", vars(home))
    home.double.__module__ = "some.other"

    def one_more(original: Any) -> Any:
        return wraps(original)(lambda x: original(x) + 1)

    for _ in range(2):
        replace_function(home, "double", one_more)
    assert home.double(5) == 11


def test_what_accelerate_wrapped_around_a_patch_stays() -> None:
    """Mixed precision: Accelerator.prepare replaces the forward by one that runs ours under autocast."""
    layer = nn.Linear(2, 3)
    open_to_code(layer)
    autocast = torch.autocast("cpu", torch.bfloat16)
    layer.forward = MethodType(autocast(layer.forward.__func__), layer)
    layer.forward = convert_outputs_to_fp32(layer.forward)
    wrapped = layer.forward
    open_to_code(layer)
    assert layer.forward is wrapped
    assert layer(run=lambda module: module.weight.shape) == (3, 2)


def test_a_deep_copy_runs_its_own_weights() -> None:
    def tripled(self: Any, x: torch.Tensor) -> Any:
        return 3 * type(self).forward(self, x)

    layer = nn.Linear(2, 2, bias=False)
    replace_method(layer, "forward", tripled)
    copy = deepcopy(layer)
    with torch.no_grad():
        copy.weight.zero_()
    x = torch.ones(1, 2)
    torch.testing.assert_close(layer(x), 3 * x @ layer.weight.T)
    assert not copy(x).any()
    replace_method(copy, "forward", partial(tripled))
    assert not copy(x).any(), "a copy is patched already"
