"""Which parts of a model are trained. The paper trains everything, including the vision tower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

PARTS = ("vision", "projector", "language")
_TOWERS = ("visual.", "vision_tower.", "vision_model.")
_PROJECTORS = ("merger", "multi_modal_projector", "connector", "projector")


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
