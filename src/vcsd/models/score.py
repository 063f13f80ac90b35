"""Scoring: hidden states at every response position of a row, under one view and one set of weights.

    family = family_of(model)
    family.prepare(model)                                        # once, before wrapping and copying
    plan = plan_rows(longest_view([originals, controls]), budget)
    for row in range(len(plan.rows)):
        scores = score(model, plan.select(originals, row))

Under DDP, FSDP2 and accelerate's autocast, `score` must run inside the wrapped model's forward, and the head inside its
own: nothing here bypasses them if the caller writes

    def loss(model):
        hidden_ND = hidden_states(model, groups)
        return family.with_head(model, lambda head: distill(Scores(hidden_ND, lengths, head), ...))

    inside(wrapped_model, loss)

Gradients, gradient checkpointing (both kinds) and LoRA work as in any forward of the model.

Shape legend: N response positions, D hidden width, T tokens in the row, P prompt tokens.
"""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any

from vcsd.kernels.device import sent
from vcsd.models.family import family_of
from vcsd.models.packing import Group, refuse_vision_tokens
from vcsd.types import Scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, device, nn

    from vcsd.models.vision import FeatureCache


def score(model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Scores:
    """What a model thinks at every position of every response of a row, in the order of the groups.

    Position i of a response is where its token i is predicted: the last prompt token, then the response without its
    last token. The scores' head is the model's; see the module's docstring for a sharded one.
    """
    lengths = tuple(length for group in groups for length in group.lengths)
    return Scores(hidden_states(model, groups, features), lengths, family_of(model).head(model))


def hidden_states(model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Tensor:
    """The hidden states (N, D) at every response position of a row; `features` keeps those of the images."""
    family = family_of(model)
    refuse_vision_tokens(groups, family.vision_token_ids(model))
    return family.hidden_states(model, groups, features)


def with_pixels_on(device: device, *views: Sequence[Group]) -> list[list[Group]]:
    """The same views of a row with pixels on a device: a prompt that several of them show is sent once.

    Without it, and for prompts that are no dataclasses, each pass sends what its tower computes.
    """
    known: dict[int, Any] = {}

    def prompt_on(group: Group) -> Any:
        given: Any = group.prompt
        if id(given) not in known:
            can_send = given.pixel_values is not None and is_dataclass(given)
            known[id(given)] = replace(given, pixel_values=sent(given.pixel_values, device)) if can_send else given
        return known[id(given)]

    return [[replace(group, prompt=prompt_on(group)) for group in view] for view in views]
