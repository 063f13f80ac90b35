"""Freezing parts of a model, copies that share frozen parameters, and temporary eval mode.

The paper trains everything, including the vision tower. With LoRA adapters, the base is frozen. It takes most of the
memory, so copies of the model share it.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import nn

Model = TypeVar("Model", bound="nn.Module")

PARTS = ("vision", "projector", "language")
_TOWERS = ("visual.", "vision_tower.", "vision_model.")
_PROJECTORS = ("merger", "multi_modal_projector", "connector", "projector")
_FACTOR = "lora_"
"""In the dotted names of PEFT's LoRA tensors, one part begins with this."""


def part_of(name: str) -> str:
    """The part of the model that a parameter belongs to.

    >>> part_of("model.visual.merger.linear_fc1.weight"), part_of("model.language_model.embed_tokens.weight")
    ('projector', 'language')
    """
    if any(word in name for word in _PROJECTORS):
        return "projector"
    return "vision" if any(word in name for word in _TOWERS) else "language"


def freeze(model: nn.Module, *parts: str) -> None:
    """Freeze parts of a model. Call it before the teacher is copied and the trainer is built.

    `language` includes the embeddings and the head, which are often one tensor.
    """
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise ConfigError([f"{part!r} is not a part of a model. Allowed: {', '.join(PARTS)}." for part in unknown])
    for name, parameter in model.named_parameters():
        if part_of(name) in parts:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(["every part of the model is frozen: there is nothing to train."])


def is_adapter(name: str) -> bool:
    """Whether a tensor with this name belongs to an adapter.

    >>> is_adapter("model.layers.0.q_proj.lora_A.default.weight"), is_adapter("model.layers.0.q_proj.base_layer.weight")
    (True, False)
    """
    return any(part.startswith(_FACTOR) for part in name.split("."))


def has_adapters(model: nn.Module) -> bool:
    """Whether a model has LoRA adapters."""
    return any(is_adapter(name) for name, _ in model.named_parameters())


def adapted_parts(model: nn.Module) -> set[str]:
    """Return the parts of a model that have LoRA adapters."""
    return {part_of(name) for name, _ in model.named_parameters() if is_adapter(name)}


def copy_of(model: Model) -> Model:
    """Return a deep copy. If the model has adapters, the copy shares its frozen parameters.

    >>> from torch import nn
    >>> model = nn.ModuleDict({"base_layer": nn.Linear(2, 2), "lora_A": nn.Linear(2, 1)})
    >>> _ = model["base_layer"].requires_grad_(False)
    >>> twin = copy_of(model)
    >>> [twin[name].weight is model[name].weight for name in ("base_layer", "lora_A")]
    [True, False]
    """
    return copy.deepcopy(model, {id(parameter): parameter for parameter in _shareable(model)})


def cast_copy_of(model: Model, dtype: torch.dtype) -> Model:
    """Return a copy with parameters in another dtype. Each is cast directly, without a copy in its old dtype.

    If the model has adapters, the copy shares the frozen parameters that already have this dtype. Buffers keep their
    dtype, since rotary frequencies need the precision.
    """
    from torch import nn

    known = {id(parameter): parameter for parameter in _shareable(model) if parameter.dtype == dtype}
    for parameter in model.parameters():
        if id(parameter) not in known:
            known[id(parameter)] = nn.Parameter(parameter.detach().to(dtype, copy=True), requires_grad=False)
    return copy.deepcopy(model, known)


def alias_of(model: Model) -> Model:
    """Return a copy with parameters of its own in the model's memory, for models that are about to be sharded.

    >>> from torch import nn
    >>> model = nn.Linear(2, 2)
    >>> twin = alias_of(model)
    >>> twin.weight is model.weight, twin.weight.data_ptr() == model.weight.data_ptr()
    (False, True)
    """
    from torch import nn

    known = {id(parameter): nn.Parameter(parameter.detach(), requires_grad=False) for parameter in model.parameters()}
    return copy.deepcopy(model, known | {id(parameter): parameter for parameter in _shareable(model)})


def _shareable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that copies can share: the frozen ones of a model with adapters."""
    return [p for p in model.parameters() if not p.requires_grad] if has_adapters(model) else []


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode inside the block; afterwards each of its modules gets its own mode back.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    >>> with in_eval_mode(model):
    ...     model[0].training
    False
    >>> model[0].training, model[1].training
    (True, False)
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
