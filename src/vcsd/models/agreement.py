"""Checks, once for every model that uses the fallback, that decoding agrees with scoring.

Rollouts come from prefill and decoding steps, scores from one forward over prompt and response. Both must be the same
distribution. In an unknown family this is a guess: it depends on how the model handles positions, left padding, the
causality of the response and the output of its head. So the first prompt with an image is decoded for a few tokens and
scored, and the logits are compared.

Shape legend: N response positions, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.errors import ConfigError, VcsdError
from vcsd.kernels.device import compute_dtype
from vcsd.loss.reference import full_logits
from vcsd.models.family import FAMILIES, Family, base_model
from vcsd.models.inside import inside, with_head
from vcsd.models.packed.packing import Group
from vcsd.types import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from vcsd.models.packed.packing import Prompt

_AGREED = "decoding_agreed_with_scoring"
_NUM_TOKENS = 3
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-2}
_TOLERANCE_IN_HALF = 0.2
"""Largest distance of the logits relative to their spread: wide enough for rounding in deep models, too narrow for
image tokens with the positions of text."""

_TOLERANCE_IN_TF32 = 0.05
"""The same for float32 on a GPU whose products are rounded to TF32. Rounded like that, SmolLM2 (30 layers) differs by
0.002."""

_ADVICE = f"Use a model of a supported family: {', '.join(FAMILIES)}."


def check_decoding(
    model: nn.Module, family: Family, prompts: Sequence[Prompt], decode: Callable[[Prompt, list[int]], Tensor]
) -> None:
    """Raise a ConfigError if the logits (N, V) of `decode(prompt, response)` differ from those of scoring.

    Each model is checked once with an image and once without.
    """
    prompt = min(prompts, key=lambda prompt: (prompt.pixel_values is None, len(prompt.input_ids)))
    has_image = prompt.pixel_values is not None
    agreed: set[bool] = vars(base_model(model)).setdefault(_AGREED, set())
    if has_image in agreed:
        return
    response = _words(prompt, family.vision_token_ids(model))
    name = type(base_model(model)).__name__
    try:
        decoded_NV = decode(prompt, response).double()
        expected_NV, tolerance = inside(model, lambda inner: _scored(inner, family, Group(prompt, [response])))
    except (VcsdError, torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except Exception as error:  # a forward can raise anything on inputs that it does not expect
        raise ConfigError(
            [
                f"{name} is not of a supported family, and example {prompt.example_id!r} could not be decoded and "
                f"scored by the fallback: {type(error).__name__}: {error}. {_ADVICE}"
            ]
        ) from error
    centred = [logits_NV - logits_NV.mean(-1, keepdim=True) for logits_NV in (decoded_NV, expected_NV)]
    distance = ((centred[0] - centred[1]).norm(dim=-1) / centred[1].norm(dim=-1)).max().item()
    if not distance <= tolerance:
        raise ConfigError(
            [
                f"{name} is not of a supported family, and its rollouts would come from another distribution than the "
                f"one that is scored: logits of example {prompt.example_id!r} differ by {distance:.2g} of their "
                f"spread ({tolerance:.2g} is allowed). {_ADVICE}"
            ]
        )
    agreed.add(has_image)


def _scored(model: nn.Module, family: Family, group: Group) -> tuple[Tensor, float]:
    """The logits (N, V) that the loss would see, and the tolerance for rounding."""
    hidden_ND = family.hidden_states(model, [group])
    logits_NV = with_head(model, lambda head: full_logits(Scores(hidden_ND, head)))
    return logits_NV.double(), _tolerance(compute_dtype(hidden_ND), is_cuda=hidden_ND.is_cuda)


def _tolerance(dtype: torch.dtype, *, is_cuda: bool) -> float:
    if dtype == torch.float32 and is_cuda and torch.get_float32_matmul_precision() != "highest":
        return _TOLERANCE_IN_TF32
    return _TOLERANCE.get(dtype, _TOLERANCE_IN_HALF)


def _words(prompt: Prompt, vision_ids: frozenset[int]) -> list[int]:
    """A response for the check: the last distinct tokens of the prompt."""
    words = [token for token in dict.fromkeys(prompt.input_ids.tolist()) if token not in vision_ids]
    return (_NUM_TOKENS * (words or [0]))[-_NUM_TOKENS:]
