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
        return with_head(model, lambda head: distillation_loss(Scores(hidden_ND, head), ...))

    inside(wrapped_model, loss)

Gradients, gradient checkpointing (both kinds) and LoRA work as in any forward of the model.

Shape legend: N response positions, D hidden width, T tokens in the row, P prompt tokens.
"""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING

from vcsd.kernels.device import sent
from vcsd.models.family import family_of
from vcsd.models.packed.packing import Group, refuse_vision_tokens
from vcsd.types import Scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, device, nn

    from vcsd.models.features import FeatureCache
    from vcsd.models.packed.packing import Prompt


def score(model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Scores:
    """Score every position of every response of a row, in the order of the groups.

    Position i of a response is where its token i is predicted: the last prompt token, then the response without its
    last token. The head is the model's; for a sharded head see the module's docstring.
    """
    return Scores(hidden_states(model, groups, features), family_of(model).head(model))


def hidden_states(model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Tensor:
    """The hidden states (N, D) at every response position of a row; `features` caches those of the images."""
    family = family_of(model)
    refuse_vision_tokens(groups, family.vision_token_ids(model))
    return family.hidden_states(model, groups, features)


def with_pixels_on(device: device, *views: Sequence[Group]) -> list[list[Group]]:
    """Copy the pixels of several views of a row to a device; a prompt that several views share is copied once.

    Prompts that are not dataclasses are left as they are: each pass then copies the pixels that its tower needs.
    """
    known: dict[int, Prompt] = {}

    def prompt_on(group: Group) -> Prompt:
        prompt = group.prompt
        pixels = prompt.pixel_values
        if pixels is None or not is_dataclass(prompt) or isinstance(prompt, type):
            return prompt
        if id(prompt) not in known:
            known[id(prompt)] = replace(prompt, pixel_values=sent(pixels, device))
        return known[id(prompt)]

    return [[replace(group, prompt=prompt_on(group)) for group in view] for view in views]
