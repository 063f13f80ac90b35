"""Measure a model's contrast: against mutual information, and on visual words.

pmi        Eq. 15, log p(v | image) - log p(v), where p(v) is the mean of p over other images, compared with Eq. 6 under
           each control: how well does a control approximate "no particular image"?
profile    how much the image raises each word of an answer (Figure 6), for visual words and for others

Shape legend: N positions, V vocabulary, S (position, token) pairs on the support.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import torch

from vcsd.core import contrast, log_probs, plausible_support, shape_target
from vcsd.models.encode import encode
from vcsd.models.family import base_model, family_of
from vcsd.models.freeze import in_eval_mode
from vcsd.models.packed.packing import Group
from vcsd.models.score import hidden_states
from vcsd.reproduce.cell_result import CONTROLS
from vcsd.views import VIEWS
from vcsd.world.words import COLORS, SHAPES, WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.method import Method
    from vcsd.models.processor import Processor
    from vcsd.reproduce.cell_result import PmiResult
    from vcsd.types import Example

NUM_OTHERS = 16
"""The number of other images over which p is averaged."""

GROUPS_PER_ROW = 64

SEEN_WORDS = frozenset({*SHAPES, *COLORS, *WORDS["english"]["number"], "yes", "no", "above", "below", "left", "right"})
"""Visual words: whether they are right depends on the picture."""


@dataclass(frozen=True, eq=False)
class SampledResponse:
    """An example and the token ids of a response to it."""

    example: Example
    token_ids: Sequence[int]


def log_p_of(model: nn.Module, groups: Sequence[Group]) -> Tensor:
    """Log-probabilities (N, V) at all response positions of all groups, at temperature 1."""
    family = family_of(model)
    family.prepare(model)
    head = family.head(model)
    parts = []
    with in_eval_mode(model), torch.no_grad():
        for start in range(0, len(groups), GROUPS_PER_ROW):
            hidden_ND = hidden_states(model, groups[start : start + GROUPS_PER_ROW])
            parts.append(log_probs(hidden_ND @ head.weight_VD.T).cpu())
    return torch.cat(parts)


def _groups(responses: Sequence[SampledResponse], view: str, processor: Processor) -> list[Group]:
    prompts = [encode(processor, VIEWS[view](VIEWS["original"](response.example))) for response in responses]
    return [Group(prompt, [list(response.token_ids)]) for prompt, response in zip(prompts, responses, strict=True)]


def split_by_truth(
    responses: Sequence[SampledResponse], processor: Processor
) -> tuple[list[SampledResponse], list[SampledResponse]]:
    """Split into right and wrong answers: a word for something that is not there should lose contrast, not gain it."""
    right: list[SampledResponse] = []
    wrong: list[SampledResponse] = []
    for response in responses:
        text = processor.tokenizer.decode(list(response.token_ids), skip_special_tokens=True)
        (right if text.strip().endswith(f"answer is {response.example.answer}.") else wrong).append(response)
    return right, wrong


def profile(model: nn.Module, responses: Sequence[SampledResponse], processor: Processor) -> dict[str, float]:
    """The mean contrast of the answers' tokens, for visual words and for all others."""
    if not responses:
        return {}
    ids = torch.tensor([token for response in responses for token in response.token_ids])
    original, control = (log_p_of(model, _groups(responses, view, processor)) for view in ("original", "black"))
    raised_N = contrast(original, control).gather(1, ids[:, None])[:, 0]
    words = [processor.tokenizer.decode([token]).strip().strip(".") for token in ids.tolist()]
    is_seen_N = torch.tensor([word in SEEN_WORDS for word in words])
    if not is_seen_N.any() or is_seen_N.all():
        return {"num_seen": float(is_seen_N.sum())}
    return {
        "seen": raised_N[is_seen_N].mean().item(),
        "other": raised_N[~is_seen_N].mean().item(),
        "num_seen": float(is_seen_N.sum()),
        "num_other": float((~is_seen_N).sum()),
    }


def pmi(model: nn.Module, responses: Sequence[SampledResponse], processor: Processor, method: Method) -> PmiResult:
    """Compare each control's contrast with the mutual information, where several tokens are plausible."""
    ends = family_of(model).end_token_ids(base_model(model), processor.tokenizer)
    original_NV = log_p_of(model, _groups(responses, "original", processor))
    support_NV = plausible_support(original_NV, method.beta)
    is_end_V = torch.zeros(original_NV.shape[-1], dtype=torch.bool)
    is_end_V[sorted(ends)] = True
    support_NV &= (support_NV.sum(-1, keepdim=True) > 1) & ~is_end_V
    marginal_NV = _marginal(model, responses, processor)
    information_S = contrast(original_NV, marginal_NV)[support_NV]
    target_NV = shape_target(original_NV, marginal_NV, alpha=method.alpha, beta=method.beta, end_token_ids=ends)
    has_choice_N = support_NV.any(-1)
    measured: PmiResult = {"num_tokens": int(support_NV.sum()), "num_positions": int(has_choice_N.sum())}
    if not measured["num_tokens"]:
        return measured
    for view in CONTROLS:
        control_NV = log_p_of(model, _groups(responses, view, processor))
        shaped_NV = shape_target(original_NV, control_NV, alpha=method.alpha, beta=method.beta, end_token_ids=ends)
        delta_S = contrast(original_NV, control_NV)[support_NV]
        same_N = shaped_NV.argmax(-1) == target_NV.argmax(-1)
        measured[view] = {
            "correlation": correlation(delta_S, information_S),
            "rank_correlation": correlation(delta_S.argsort().argsort(), information_S.argsort().argsort()),
            "same_sign": (delta_S.sign() == information_S.sign()).double().mean().item(),
            "same_choice": same_N[has_choice_N].double().mean().item(),
            "mean_gap": (delta_S - information_S).abs().mean().item(),
        }
    return measured


def _marginal(model: nn.Module, responses: Sequence[SampledResponse], processor: Processor) -> Tensor:
    """Log of the mean of p over images of the same size from the examples that follow (N, V)."""

    def log_p_NV(shift: int) -> Tensor:
        examples = [_with_other_image(responses, index, shift) for index in range(len(responses))]
        swapped = [replace(old, example=example) for old, example in zip(responses, examples, strict=True)]
        return log_p_of(model, _groups(swapped, "original", processor))

    return reduce(torch.logaddexp, map(log_p_NV, range(1, NUM_OTHERS + 1))) - math.log(NUM_OTHERS)


def _with_other_image(responses: Sequence[SampledResponse], index: int, shift: int) -> Example:
    example = responses[index].example
    size = _size(example)
    same_size = [other for other, response in enumerate(responses) if _size(response.example) == size]
    assert len(same_size) > 1, "an image needs others of its size"
    at = same_size.index(index)
    other = responses[same_size[(at + 1 + (shift - 1) % (len(same_size) - 1)) % len(same_size)]]
    return replace(example, images=other.example.images)


def _size(example: Example) -> list[tuple[int, int] | None]:
    return [getattr(image, "size", None) for image in VIEWS["original"](example).images]


def correlation(x: Tensor, y: Tensor) -> float:
    """Pearson's correlation of two lists of numbers; nan if one is constant.

    >>> round(correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 6.5])), 3)
    0.998
    """
    x, y = x.double() - x.double().mean(), y.double() - y.double().mean()
    return float((x * y).sum() / (x.norm() * y.norm()))
