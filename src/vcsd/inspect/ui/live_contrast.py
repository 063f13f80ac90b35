"""An answer whose log-probabilities are stored, so that another alpha or beta needs no new forward pass.

live = ask(open_model("world"), "picture.png", "What color is the circle?")
live.shaped(alpha=0.5, beta=0.1)      # the ResponseContrast that `vcsd contrast` would show with these values
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING

import torch

from vcsd.errors import ConfigError
from vcsd.inspect.contrast_page import contrast_page, probability
from vcsd.inspect.token_scores import prompt_views, token_scores_from, view_log_probs
from vcsd.method import METHODS
from vcsd.monitor.token_texts import TokenTexts
from vcsd.report.markup import Html, text
from vcsd.report.page import Page, PageSection, page_html
from vcsd.report.parts import plain_table
from vcsd.report.tokens import shown_token
from vcsd.types import Example, user_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from PIL.Image import Image
    from torch import Tensor

    from vcsd.inspect.opened import OpenedModel
    from vcsd.inspect.token_scores import ResponseContrast, TokenScore
    from vcsd.loss.objective import Objective
    from vcsd.method import Method

MOST_BYTES = 2**30
"""Memory for the stored log-probabilities of an answer: 540 tokens over a vocabulary of 248,320."""

MAX_NEW_TOKENS = 256
CHUNK = 16
"""Positions shaped at a time."""


@dataclass(frozen=True, eq=False)
class LiveContrast:
    """An answer with its log-probabilities given the image and given the control, (N, V) each, in host memory."""

    seen: ResponseContrast
    log_p_original: Tensor
    log_p_control: Tensor
    end_token_ids: frozenset[int]
    texts: TokenTexts

    def shaped(self, *, alpha: float, beta: float) -> ResponseContrast:
        """Return the response with the target for these values; everything else stays the same."""
        method = replace(self.seen.method, alpha=alpha, beta=beta)
        objective = method.objective(self.end_token_ids)
        tokens = _tokens([self.log_p_original, self.log_p_control], self.seen.response, objective, self.texts)
        return replace(self.seen, method=method, tokens=tokens)


def _tokens(
    log_p: Sequence[Tensor], token_ids: Sequence[int], objective: Objective, texts: TokenTexts
) -> tuple[TokenScore, ...]:
    """Compare the two views, a few positions at a time."""
    tokens: list[TokenScore] = []
    for start in range(0, len(token_ids), CHUNK):
        rows = slice(start, start + CHUNK)
        tokens += token_scores_from([one[rows] for one in log_p], token_ids[rows], objective, texts)
    return tuple(tokens)


@torch.no_grad()
def ask(
    opened: OpenedModel, image: Image | str | PathLike[str], question: str, *, method: Method = METHODS["vcsd"]
) -> LiveContrast:
    """Let the model answer, greedily, and store how likely every token was under both views."""
    example = Example(id="question", images=[image], prompt=[user_message(question, num_images=1)])
    views = prompt_views(opened, example, method=method, max_new_tokens=MAX_NEW_TOKENS)
    num_bytes = 2 * 4 * len(views.token_ids) * len(views.scores[0].head.weight_VD)
    if num_bytes > MOST_BYTES:
        raise ConfigError(
            [f"an answer of {len(views.token_ids)} tokens needs {num_bytes / 2**30:.1f} GiB. Ask for a shorter one."]
        )
    stored = [view_log_probs(scores, views.objective.temperature, CHUNK) for scores in views.scores[:2]]
    texts = TokenTexts(opened.processor.tokenizer)
    tokens = _tokens(stored, views.token_ids, views.objective, texts)
    seen = replace(views.contrast(opened.name, tokens), question=question)
    return LiveContrast(seen, stored[0], stored[1], frozenset(views.objective.end_token_ids), texts)


def answer_text(live: LiveContrast, opened: OpenedModel) -> str:
    """Return the answer as text, without special tokens."""
    return str(opened.processor.tokenizer.decode(list(live.seen.response), skip_special_tokens=True))


def live_html(live: LiveContrast, *, alpha: float, beta: float) -> Html:
    """Return a frame with the whole page of the answer: no script can run in it, and its style stays inside."""
    seen = live.shaped(alpha=alpha, beta=beta)
    page = contrast_page([seen])
    target = PageSection(f"The target at alpha {alpha:g} and beta {beta:g}", target_table(seen), _target_lead(seen))
    sections = [page.sections[0], target, *page.sections[1:]]
    whole = page_html(Page(page.title, sections, page.lead, notes=page.notes, is_framed=True))
    return Html(f'<iframe title="token contrast" sandbox srcdoc="{text_attribute(whole)}" style="{FRAME}"></iframe>')


FRAME = "width:100%;height:calc(100vh - 130px);min-height:440px;border:0"
"""As high as the window: the details of a token are at the frame's lower end and must be visible."""


def _target_lead(seen: ResponseContrast) -> str:
    changed = mean(token.kl_target_original for token in seen.tokens)
    return (
        "The most probable token at each position. A star marks where the target prefers another token than the model "
        f"given the image. KL(target || image) is {changed:.4f} nats per token."
    )


def target_table(seen: ResponseContrast) -> Html:
    """Show for every position what is most probable given the image, given the control and in the target."""
    rows = []
    for number, token in enumerate(seen.tokens, start=1):
        original = max(token.candidates, key=lambda one: one.log_p_original)
        control = max(token.candidates, key=lambda one: one.log_p_control)
        shaped = token.candidates[0]
        mark = " *" if shaped.token_id != original.token_id else ""
        rows.append(
            [
                f"{number} {shown_token(token.realised.text.strip())}",
                f"{original.text.strip()} {probability(original.log_p_original)}",
                f"{control.text.strip()} {probability(control.log_p_control)}",
                f"{shaped.text.strip()} {probability(shaped.log_q or 0.0)}{mark}",
                f"{token.support_size}",
            ]
        )
    return plain_table(["said", "image", "control", "target", "support"], rows)


def text_attribute(html: Html) -> Html:
    """Escape a whole page for use in a quoted attribute, unchanged otherwise."""
    return Html(html.replace("&", "&amp;").replace('"', "&quot;"))


def error_html(error: Exception) -> Html:
    """Show what went wrong."""
    return Html(f'<p role="alert">{text(error)}</p>')
