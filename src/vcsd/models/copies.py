"""Copies of a model. Copies of a model with adapters share its frozen base, which is most of its memory."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

Model = TypeVar("Model", bound="nn.Module")

_FACTOR = "lora_"
"""What the names of PEFT's LoRA tensors begin with, after a dot."""


def is_adapter(name: str) -> bool:
    """Whether a tensor's name is that of an adapter.

    >>> is_adapter("model.layers.0.q_proj.lora_A.default.weight"), is_adapter("model.layers.0.q_proj.base_layer.weight")
    (True, False)
    """
    return any(part.startswith(_FACTOR) for part in name.split("."))


def has_adapters(model: nn.Module) -> bool:
    """Whether a model has LoRA adapters."""
    return any(is_adapter(name) for name, _ in model.named_parameters())


def copy_of(model: Model, shares: Callable[[Tensor], bool] = lambda frozen: True) -> Model:
    """Return a deep copy. One of a model with adapters shares the frozen parameters for which `shares` is true.

    >>> from torch import nn
    >>> model = nn.ModuleDict({"base_layer": nn.Linear(2, 2), "lora_A": nn.Linear(2, 1)})
    >>> _ = model["base_layer"].requires_grad_(False)
    >>> twin = copy_of(model)
    >>> [twin[name].weight is model[name].weight for name in ("base_layer", "lora_A")]
    [True, False]
    """
    frozen = [p for p in model.parameters() if not p.requires_grad and shares(p)] if has_adapters(model) else []
    return copy.deepcopy(model, {id(parameter): parameter for parameter in frozen})
