"""The contrast of every token of a response: the paper's token figure as numbers.

The model predicts each token of a response twice, with the image and with the control. The difference is the token's
contrast. Together they give the support and the target that training would use; the student is compared with it. All
numbers come from `vcsd.core`, at the method's temperature.

Memory: logits are computed for a few positions at a time, and only the leading candidates of each are kept.

Shape legend: N response positions, C positions of a chunk, K candidates, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from PIL import Image

from vcsd.batch import show
from vcsd.core import contrast, forward_kl, log_probs, plausible_support
from vcsd.errors import ConfigError, DataError
from vcsd.loss.reference import full_logits, target
from vcsd.method import METHODS
from vcsd.models.family import base_model, family_of
from vcsd.models.freeze import in_eval_mode
from vcsd.models.packed.packing import Group
from vcsd.models.score import score
from vcsd.monitor.token_texts import TokenTexts
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.types import Example, Scores, user_message
from vcsd.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from torch import nn

    from vcsd.batch import Shown
    from vcsd.inspect.opened import OpenedModel
    from vcsd.loss.objective import Objective
    from vcsd.method import Method
    from vcsd.models.packed.packing import Prompt

TOP = 5
"""The number of candidates kept under each view."""

CHUNK_BYTES = 16 * 2**20
"""Limit on one float32 tensor of a chunk's logits. The equations need about twenty such tensors at a time."""

MAX_NEW_TOKENS = 512
"""The longest response that is sampled if none is given."""


@dataclass(frozen=True)
class CandidateScore:
    """A possible token at one position, under both views, the target and the student. `log_q` is None off the support.

    `contrast` is zero for end tokens, as in the target.
    """

    token_id: int
    text: str
    log_p_original: float
    log_p_control: float
    contrast: float
    log_q: float | None
    log_p_student: float


@dataclass(frozen=True)
class TokenScore:
    """One token of the response, and the leading candidates at its position, the most probable in the target first.

    `entropy` is that of the model with the image, in nats, at the distillation temperature.
    """

    realised: CandidateScore
    support_size: int
    kl_target_original: float
    entropy: float
    candidates: tuple[CandidateScore, ...]
    is_end: bool = False


@dataclass(frozen=True, eq=False)
class ResponseContrast:
    """A response, token by token, as one model sees it, with the images of the original view and of the control."""

    name: str
    question: str
    images: tuple[Image.Image, ...]
    control_images: tuple[Image.Image, ...]
    method: Method
    tokens: tuple[TokenScore, ...]
    is_sampled: bool = True
    """Whether the response was sampled from this model, greedily, rather than given."""

    @property
    def response(self) -> tuple[int, ...]:
        """The token ids."""
        return tuple(token.realised.token_id for token in self.tokens)


@torch.no_grad()
def token_contrast(
    opened: OpenedModel,
    image: Image.Image | str | PathLike[str],
    question: str,
    *,
    response: str | Sequence[int] | None = None,
    method: Method = METHODS["vcsd"],
    student: nn.Module | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> ResponseContrast:
    """Score every token of a response with and without the image.

    `response` is text, to which the end token is added, or token ids; by default the model answers, greedily. Without
    a `student`, the model is its own student, as in the first step of training.
    """
    example = Example(id="contrast", images=[image], prompt=[user_message(question, num_images=1)])
    views = prompt_views(
        opened, example, response=response, method=method, student=student, max_new_tokens=max_new_tokens
    )
    tokens = scored_tokens(views.scores, views.token_ids, views.objective, opened.processor.tokenizer)
    return replace(views.contrast(opened.name, tokens), question=question)


@dataclass(frozen=True, eq=False)
class PromptViews:
    """A response to an example, scored by teacher with image, teacher with control, and student."""

    example: Example
    control: Example
    method: Method
    objective: Objective
    token_ids: tuple[int, ...]
    scores: Sequence[Scores]
    is_sampled: bool

    def contrast(self, name: str, tokens: tuple[TokenScore, ...]) -> ResponseContrast:
        """Combine the tokens' scores with the question and the images."""
        return ResponseContrast(
            name,
            self.example.text,
            _images(VIEWS["original"](self.example)),
            _images(self.control) or _images(VIEWS["black"](self.example)),
            self.method,
            tokens,
            is_sampled=self.is_sampled,
        )


@torch.no_grad()
def prompt_views(
    opened: OpenedModel,
    example: Example,
    *,
    response: str | Sequence[int] | None = None,
    method: Method = METHODS["vcsd"],
    student: nn.Module | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> PromptViews:
    """Let the model answer an example, unless a response is given, and score the response under every view."""
    shown, control = _shown(example, method, opened)
    objective = method.objective(_end_token_ids(opened))
    token_ids = tuple(_token_ids(opened, shown, response, max_new_tokens))
    assert shown.contrast is not None
    views = [score_prompt(opened.model, shown.target, token_ids), score_prompt(opened.model, shown.contrast, token_ids)]
    if student is not None or shown.student is not shown.target:
        views.append(score_prompt(student or opened.model, shown.student, token_ids))
    else:
        views.append(views[0])
    return PromptViews(example, control, method, objective, token_ids, views, is_sampled=response is None)


def view_log_probs(scores: Scores, temperature: float, size: int) -> torch.Tensor:
    """Return the log-probabilities of a view at every position, (N, V), in host memory; computed in chunks."""
    parts = [
        log_probs(full_logits(replace(scores, hidden_ND=scores.hidden_ND[start : start + size])), temperature).cpu()
        for start in range(0, len(scores.hidden_ND), size)
    ]
    return torch.cat(parts)


def _images(example: Example) -> tuple[Image.Image, ...]:
    return tuple(image for image in example.images if isinstance(image, Image.Image))


def _shown(example: Example, method: Method, opened: OpenedModel) -> tuple[Shown, Example]:
    if method.contrast_view is None:
        raise ConfigError([f"method {method.name!r} has no contrast view. Choose a method that has one, such as vcsd."])
    shown = show(example, method, opened.processor, chat_template_kwargs=opened.chat_template_kwargs)
    return shown, VIEWS[method.contrast_view](VIEWS[method.target_view](VIEWS["original"](example)))


def _end_token_ids(opened: OpenedModel) -> frozenset[int]:
    return family_of(opened.model).end_token_ids(base_model(opened.model), opened.processor.tokenizer)


def _token_ids(
    opened: OpenedModel, shown: Shown, response: str | Sequence[int] | None, max_new_tokens: int
) -> tuple[int, ...]:
    if response is None:
        engine = TransformersEngine(opened.model, tokenizer=opened.processor.tokenizer)
        sampling = Sampling(max_new_tokens=max_new_tokens, temperature=0.0)
        return engine.sample([shown.student], sampling, num_rollouts=1, seed=0).rollouts[0].token_ids
    if not isinstance(response, str):
        return tuple(response)
    tokenizer, ends = opened.processor.tokenizer, _end_token_ids(opened)
    text_ids: list[int] = tokenizer.encode(response, add_special_tokens=False)
    if not text_ids:
        raise DataError("contrast", "the response has no tokens. Pass some text, or none to let the model answer.")
    if text_ids[-1] in ends:
        return tuple(text_ids)
    return (*text_ids, tokenizer.eos_token_id if tokenizer.eos_token_id in ends else min(ends))


def same_response(first: OpenedModel, seen: ResponseContrast, other: OpenedModel) -> str | tuple[int, ...]:
    """Return a response for another model: its token ids if they mean the same there, else its text."""
    texts = [str(opened.processor.tokenizer.decode(list(seen.response))) for opened in (first, other)]
    if texts[0] == texts[1]:
        return seen.response
    return str(first.processor.tokenizer.decode(list(seen.response), skip_special_tokens=True))


def score_prompt(model: nn.Module, prompt: Prompt, token_ids: Sequence[int]) -> Scores:
    """Score one response to one prompt, in eval mode."""
    family_of(model).prepare(model)
    with in_eval_mode(model):
        return score(model, [Group(prompt, [tuple(token_ids)])])


@torch.no_grad()
def scored_tokens(
    views: Sequence[Scores], token_ids: Sequence[int], objective: Objective, tokenizer: object
) -> tuple[TokenScore, ...]:
    """Compare teacher with image, teacher with control, and student at every position, a chunk of them at a time."""
    vocabulary = len(views[0].head.weight_VD)
    size = max(1, CHUNK_BYTES // (4 * vocabulary))
    texts = TokenTexts(tokenizer)
    tokens: list[TokenScore] = []
    for start in range(0, len(token_ids), size):
        rows = slice(start, start + size)
        same = views[2] is views[0]
        chunk = [replace(view, hidden_ND=view.hidden_ND[rows]) for view in views[: 2 if same else 3]]
        tokens += token_scores_from(
            [log_probs(full_logits(view), objective.temperature) for view in chunk], token_ids[rows], objective, texts
        )
    return tuple(tokens)


def token_scores_from(
    log_p: Sequence[torch.Tensor], token_ids: Sequence[int], objective: Objective, texts: TokenTexts
) -> list[TokenScore]:
    """Compare log-probabilities (C, V) of teacher with image, teacher with control and, if it differs, the student."""
    log_p_original, log_p_control, log_p_student = log_p[0], log_p[1], log_p[-1] if len(log_p) == 3 else log_p[0]
    log_q = target(log_p_original, log_p_control, objective)
    delta = contrast(log_p_original, log_p_control, objective.end_token_ids)
    top = min(TOP, log_q.shape[-1])
    realised_C = torch.tensor(token_ids, device=log_q.device)
    leading = [x.topk(top).indices for x in (log_p_original, log_p_control)]
    index_CK = torch.cat([realised_C[:, None], log_q.argmax(-1, keepdim=True), *leading], -1)
    columns = [x.gather(-1, index_CK).tolist() for x in (log_p_original, log_p_control, delta, log_q, log_p_student)]
    support_C = plausible_support(log_p_original, objective.beta).sum(-1).tolist()
    kl_C = forward_kl(log_q, log_p_original).tolist()
    entropy_C = torch.special.entr(log_p_original.exp()).sum(-1).tolist()
    tokens = []
    for c, ids in enumerate(index_CK.tolist()):
        candidates: dict[int, CandidateScore] = {}
        for k, token_id in enumerate(ids):
            original, control, change, shaped, student = (column[c][k] for column in columns)
            log_q_k = None if shaped == -math.inf else shaped
            candidates[token_id] = CandidateScore(
                token_id, texts.of(token_id), original, control, change, log_q_k, student
            )
        ranked = sorted(candidates.values(), key=_rank)
        is_end = ids[0] in objective.end_token_ids
        tokens.append(TokenScore(candidates[ids[0]], support_C[c], kl_C[c], entropy_C[c], tuple(ranked), is_end))
    return tokens


def _rank(candidate: CandidateScore) -> tuple[float, float]:
    return -(-math.inf if candidate.log_q is None else candidate.log_q), -candidate.log_p_original
