"""Adapters on a model.

A user's `LoraConfig` trains what PEFT would train: usually both factors of  W + scale * B A.  A recipe trains B alone
and leaves A at its random start. The effective weight is then linear in what is trained, so an average of B is the
average of the effective weights, exactly; `effective.py` measures how far off averages of both factors are.
"""

from __future__ import annotations

import copy
import re
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from vcsd.errors import ConfigError, install_command
from vcsd.lora.supported import ADAPTER, check_adapted, check_config, refuse_quantized
from vcsd.models.family import base_model
from vcsd.models.freeze import has_adapters, part_of
from vcsd.models.patch import replace_method

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from peft import LoraConfig, PeftConfig, PeftModel
    from transformers import PreTrainedModel

    AnyModel = PreTrainedModel | PeftModel

_CAST = "_cast_input_dtype"
_INSTALL = f"LoRA needs the package peft. Install it: {install_command('peft')}."


def with_adapters(model: AnyModel, peft_config: PeftConfig | None = None, *, seed: int = 0) -> AnyModel:
    """Return the model to train: the model itself, or a PeftModel around it with the adapter of `peft_config`.

    A PeftModel with one LoRA adapter continues to train that adapter. The start of a new one depends on `seed` alone.
    """
    is_adapted = any(type(part).__module__.split(".")[0] == "peft" for part in model.modules())
    if is_adapted and peft_config is not None:
        raise ConfigError(
            ["the model already has PEFT adapters, and peft_config asks for more. Merge them with merge_and_unload()."]
        )
    if peft_config is not None:
        model = _wrapped(model, peft_config, seed)
    if is_adapted or peft_config is not None:
        check_adapted(model)
        for layer in model.modules():
            if hasattr(layer, _CAST) and hasattr(layer, "lora_A"):
                replace_method(layer, _CAST, cast_without_autocast)
    return model


def cast_without_autocast(self: Any, x: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """Replace PEFT's cast of a layer's input to the adapter's type, which autocast undoes at once.

    The values are the same, but each adapter would keep its own copy of the input for the backward pass.
    """
    if x is not None and torch.is_autocast_enabled(x.device.type):
        return x
    cast: torch.Tensor | None = type(self)._cast_input_dtype(self, x, dtype)
    return cast


def _wrapped(model: AnyModel, peft_config: PeftConfig, seed: int) -> AnyModel:
    try:
        from peft import get_peft_model
    except ImportError as error:
        raise ConfigError([_INSTALL]) from error
    check_config(peft_config)
    refuse_quantized(model)
    base = base_model(model)
    is_meta = base.device.type == "meta"
    try:
        with _seeded(seed):
            return get_peft_model(base, copy.deepcopy(peft_config), low_cpu_mem_usage=is_meta)
    except (ValueError, TypeError, re.error) as error:  # no such module, or one that cannot have an adapter
        raise ConfigError([f"peft_config does not fit the model: {error}"]) from error


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator of the CPU, where PEFT draws, and restore it afterwards."""
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


def recipe_config(model: nn.Module, rank: int, scale: float = 2.0, *, parts: Sequence[str]) -> LoraConfig:
    """Return the LoraConfig of a recipe: adapters on all linear layers of some parts of the model except the head."""
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise ConfigError([_INSTALL]) from error
    names = _adapted(model, parts)
    alpha: Any = scale * rank  # declared as an integer, and divided by the rank
    return LoraConfig(r=rank, lora_alpha=int(alpha) if alpha == int(alpha) else alpha, target_modules=names)


def has_peft() -> bool:
    """Whether peft is installed, which training adapters needs."""
    return find_spec("peft") is not None


def require_peft() -> None:
    """Raise a ConfigError that says how to install peft, if it is missing."""
    if not has_peft():
        raise ConfigError([_INSTALL])


def with_adapter_shapes(model: AnyModel, rank: int, parts: Sequence[str]) -> AnyModel:
    """Add parameters with PEFT's names and shapes to a model on the meta device, only to count them."""
    model.requires_grad_(False)
    for name in _adapted(model, parts):
        layer = model.get_submodule(name)
        width, height = int(layer.in_features), int(layer.out_features)  # type: ignore[arg-type]
        for factor, shape in (("lora_A", (width, rank)), ("lora_B", (rank, height))):
            layer.add_module(factor, nn.ModuleDict({ADAPTER: nn.Linear(*shape, bias=False, device="meta")}))
    return model


def _adapted(model: nn.Module, parts: Sequence[str]) -> list[str]:
    """Name the layers that get an adapter."""
    names = list(_linears(base_model(model), parts))
    if not names:
        raise ConfigError([f"{type(base_model(model)).__name__} has no linear layers in {' and '.join(parts)}."])
    return names


def _linears(base: nn.Module, parts: Sequence[str]) -> Iterator[str]:
    head = base.get_output_embeddings()  # type: ignore[operator]
    for name, module in base.named_modules():
        if isinstance(module, nn.Linear) and module is not head and part_of(f"{name}.") in parts:
            yield name


def freeze_first_factors(model: nn.Module) -> None:
    """Freeze the factor A of every adapter: what is trained is then linear in the effective weights."""
    if not has_adapters(model):
        raise ConfigError(["the model has no adapters whose factor A could be frozen."])
    for name, parameter in model.named_parameters():
        if ".lora_A." in name or ".lora_embedding_A." in name:
            parameter.requires_grad_(False)
