"""What the contrast is, measured on a model: against mutual information, and on words that name what is seen.

pmi        Eq. 15: log p(v | image) - log p(v), where p(v) is the mean of p over other images, beside Eq. 6 under each
           control: how well does a control stand for "no particular image"?
profile    how much the image raises each word of a right answer (Figure 6), for words that name what is seen and others

Shape legend: N positions, V vocabulary, S (position, token) pairs on the support.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from vcsd.core import contrast, log_probs, plausible_support, shape_target
from vcsd.models.encode import encode
from vcsd.models.family import base_model, family_of
from vcsd.models.packing import Group
from vcsd.models.score import hidden_states
from vcsd.views import VIEWS
from vcsd.world.words import COLORS, SHAPES, WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.method import Method
    from vcsd.models.encode import Encoded
    from vcsd.models.processor import Processor
    from vcsd.types import Example

CONTROLS = ("black", "noise", "blur", "no_image")
NUM_OTHERS = 16
"""Other images over which p is averaged."""

GROUPS_PER_ROW = 64

SEEN_WORDS = frozenset({*SHAPES, *COLORS, *WORDS["english"]["number"], "yes", "no", "above", "below", "left", "right"})
"""Words whose truth depends on the picture."""


@dataclass(frozen=True, eq=False)
class Spoken:
    """An example and the tokens that were said to it."""

    example: Example
    token_ids: Sequence[int]


def log_p_of(model: nn.Module, groups: Sequence[Group]) -> Tensor:
    """Log-probabilities (N, V) at every response position, group after group, at temperature 1."""
    family = family_of(model)
    family.prepare(model)
    head = family.head(model)
    was_training = model.training
    model.eval()
    parts = []
    with torch.no_grad():
        for start in range(0, len(groups), GROUPS_PER_ROW):
            hidden_ND = hidden_states(model, groups[start : start + GROUPS_PER_ROW])
            parts.append(log_probs(hidden_ND @ head.weight_VD.T).cpu())
    model.train(was_training)
    return torch.cat(parts)


def _groups(spoken: Sequence[Spoken], view: str, processor: Processor) -> list[Group]:
    def shown(example: Example) -> Encoded:
        return encode(processor, VIEWS[view](VIEWS["original"](example)))

    return [Group(shown(each.example), [list(each.token_ids)]) for each in spoken]


def split_by_truth(spoken: Sequence[Spoken], processor: Processor) -> tuple[list[Spoken], list[Spoken]]:
    """The answers that are right, and the others: a word for what is not there should lose contrast, not gain it."""
    right: list[Spoken] = []
    wrong: list[Spoken] = []
    for each in spoken:
        text = processor.tokenizer.decode(list(each.token_ids), skip_special_tokens=True)
        (right if text.strip().endswith(f"answer is {each.example.answer}.") else wrong).append(each)
    return right, wrong


def profile(model: nn.Module, spoken: Sequence[Spoken], processor: Processor) -> dict[str, float]:
    """The mean contrast of the tokens that were said, for words that name what is seen and for all others."""
    if not spoken:
        return {}
    ids = torch.tensor([token for each in spoken for token in each.token_ids])
    original, control = (log_p_of(model, _groups(spoken, view, processor)) for view in ("original", "black"))
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


def pmi(model: nn.Module, spoken: Sequence[Spoken], processor: Processor, method: Method) -> dict[str, Any]:
    """How near each control's contrast is to the mutual information, on plausible tokens where there is a choice."""
    ends = family_of(model).end_token_ids(base_model(model), processor.tokenizer)
    original_NV = log_p_of(model, _groups(spoken, "original", processor))
    support_NV = plausible_support(original_NV, method.beta)
    support_NV &= (support_NV.sum(-1, keepdim=True) > 1) & ~_is_end(original_NV, ends)
    marginal_NV = _marginal(model, spoken, processor)
    information_S = contrast(original_NV, marginal_NV)[support_NV]
    target_NV = shape_target(original_NV, marginal_NV, alpha=method.alpha, beta=method.beta, end_token_ids=ends)
    found: dict[str, Any] = {"num_tokens": int(support_NV.sum()), "num_positions": int(support_NV.any(-1).sum())}
    if not found["num_tokens"]:
        return found
    has_choice_N = support_NV.any(-1)
    for view in CONTROLS:
        control_NV = log_p_of(model, _groups(spoken, view, processor))
        shaped_NV = shape_target(original_NV, control_NV, alpha=method.alpha, beta=method.beta, end_token_ids=ends)
        delta_S = contrast(original_NV, control_NV)[support_NV]
        same_N = shaped_NV.argmax(-1) == target_NV.argmax(-1)
        found[view] = {
            "correlation": correlation(delta_S, information_S),
            "rank_correlation": correlation(_ranks(delta_S), _ranks(information_S)),
            "same_sign": (delta_S.sign() == information_S.sign()).double().mean().item(),
            "same_choice": same_N[has_choice_N].double().mean().item(),
            "mean_gap": (delta_S - information_S).abs().mean().item(),
        }
    return found


def _is_end(like_NV: Tensor, ends: frozenset[int]) -> Tensor:
    is_end_V = torch.zeros(like_NV.shape[-1], dtype=torch.bool)
    is_end_V[sorted(ends)] = True
    return is_end_V


def _marginal(model: nn.Module, spoken: Sequence[Spoken], processor: Processor) -> Tensor:
    """log of the mean of p over other images of the same size (N, V): those of the examples after it."""
    total: Tensor | None = None
    for shift in range(1, NUM_OTHERS + 1):
        swapped = [replace(each, example=_with_other_image(spoken, place, shift)) for place, each in enumerate(spoken)]
        log_p_NV = log_p_of(model, _groups(swapped, "original", processor))
        total = log_p_NV if total is None else torch.logaddexp(total, log_p_NV)
    assert total is not None
    return total - math.log(NUM_OTHERS)


def _with_other_image(spoken: Sequence[Spoken], place: int, shift: int) -> Example:
    example = spoken[place].example
    size = _size(example)
    others = [index for index, each in enumerate(spoken) if _size(each.example) == size]
    assert len(others) > 1, "an image needs others of its size"
    at = others.index(place)
    other = spoken[others[(at + 1 + (shift - 1) % (len(others) - 1)) % len(others)]]
    return replace(example, images=other.example.images)


def _size(example: Example) -> Any:
    return [getattr(image, "size", None) for image in VIEWS["original"](example).images]


def correlation(x: Tensor, y: Tensor) -> float:
    """Pearson's correlation of two lists of numbers; nan where one is constant.

    >>> round(correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 6.5])), 3)
    0.998
    """
    x, y = x.double() - x.double().mean(), y.double() - y.double().mean()
    return float((x * y).sum() / (x.norm() * y.norm()))


def _ranks(x: Tensor) -> Tensor:
    return x.argsort().argsort()
