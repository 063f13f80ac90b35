"""Does decoding agree with scoring? Asked once of every model whose family has no adapter.

Rollouts come out of prefill and decoding steps, scores out of one forward over prompt and response. They must be one
distribution, and for a family nobody has looked at that is a guess: positions, left padding, causality of the response
and what follows the head are the model's own affair. So the first prompt with an image is decoded for a few tokens and
scored, and the logits are compared.

Shape legend: N response positions, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.errors import ConfigError, VcsdError
from vcsd.kernels.head import compute_dtype, compute_weight, finish_logits
from vcsd.models.family import ADAPTERS, Family, base_model
from vcsd.models.inside import inside
from vcsd.models.packing import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from vcsd.models.packing import Prompt
    from vcsd.types import Head

_AGREED = "decoding_agreed_with_scoring"
_NUM_TOKENS = 3
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-2}
_TOLERANCE_IN_HALF = 0.2
"""Largest distance of the logits relative to their spread: wide enough for rounding in deep models, too narrow for
an image with the positions of text."""

_ADVICE = f"Use a model of a family with an adapter: {', '.join(ADAPTERS)}."


def check_decoding(
    model: nn.Module,
    family: Family,
    prompts: Sequence[Prompt],
    decode: Callable[[Prompt, list[int]], Tensor],
) -> None:
    """Raise a ConfigError if `decode(prompt, response)`, logits (N, V), are not those of scoring.

    Once per model for prompts with an image, once for prompts without: afterwards it costs nothing.
    """
    prompt = min(prompts, key=lambda prompt: (prompt.pixel_values is None, len(prompt.input_ids)))
    has_image = prompt.pixel_values is not None
    agreed: set[bool] = vars(base_model(model)).setdefault(_AGREED, set())
    if has_image in agreed:
        return
    response = _words(prompt, family.vision_token_ids(model))
    name = type(base_model(model)).__name__
    try:
        found_NV = decode(prompt, response).double()
        expected_NV, tolerance = inside(model, lambda inner: _scored(inner, family, Group(prompt, [response])))
    except (VcsdError, torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except Exception as error:  # whatever a family's forward raises on inputs that it does not expect
        raise ConfigError(
            [
                f"{name} has no adapter, and example {prompt.example_id!r} could not be decoded and scored without "
                f"one: {type(error).__name__}: {error}. {_ADVICE}"
            ]
        ) from error
    centred = [logits_NV - logits_NV.mean(-1, keepdim=True) for logits_NV in (found_NV, expected_NV)]
    distance = ((centred[0] - centred[1]).norm(dim=-1) / centred[1].norm(dim=-1)).max().item()
    if not distance <= tolerance:
        raise ConfigError(
            [
                f"{name} has no adapter, and its rollouts would be drawn from another distribution than the one that "
                f"is scored: logits of example {prompt.example_id!r} differ by {distance:.2g} of their spread "
                f"({tolerance:.2g} is allowed). {_ADVICE}"
            ]
        )
    agreed.add(has_image)


def _scored(model: nn.Module, family: Family, group: Group) -> tuple[Tensor, float]:
    """The logits (N, V) that the loss would see, and how far off rounding may take them."""
    hidden_ND = family.hidden_states(model, [group])
    dtype = compute_dtype(hidden_ND)

    def logits(head: Head) -> Tensor:
        return finish_logits(hidden_ND.to(dtype) @ compute_weight(head, dtype).T, head)

    return family.with_head(model, logits).double(), _TOLERANCE.get(dtype, _TOLERANCE_IN_HALF)


def _words(prompt: Prompt, vision_ids: frozenset[int]) -> list[int]:
    """A response to try: the last different words of the prompt."""
    words = [token for token in dict.fromkeys(prompt.input_ids.tolist()) if token not in vision_ids]
    return (_NUM_TOKENS * (words or [0]))[-_NUM_TOKENS:]
