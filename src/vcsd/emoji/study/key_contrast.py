"""What the contrast does to the word that decides, question by question, without any training.

The true sentence is scored with the picture and with the control, up to its deciding word. The target is the one that
training would use there. This shows whether the contrast itself moves a number, or whether training does.

    original, control, target   percent of the questions whose most likely deciding word is the true one
    flips                       percent whose most likely token the contrast changes
    in_support                  percent whose true word is plausible, so that the target can prefer it
    kl_target_original          mean nats at this word
    control_says                what the control prefers, by word: the contrast pushes away from it; words that begin
                                with the same token cannot be told apart here and are counted together, as "a/b"
    pushed                      mean contrast of each possible word in nats, where it is not the true one
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vcsd.batch import show
from vcsd.core import contrast, forward_kl, log_probs, plausible_support
from vcsd.emoji.emoji_exam import scene_example
from vcsd.emoji.questions import KEY_WORDS, asked_for
from vcsd.emoji.study.key_monitor import key_position
from vcsd.loss.reference import full_logits, target
from vcsd.models.family import base_model, family_of
from vcsd.models.packed.packing import Group
from vcsd.models.score import score
from vcsd.types import Scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.emoji.emoji_scenes import ScenePainter
    from vcsd.emoji.questions import SceneSplit
    from vcsd.loss.objective import Objective
    from vcsd.method import Method
    from vcsd.models.packed.packing import Prompt
    from vcsd.models.processor import Processor

WATCHED = ("count", "presence", "name", "row_unusual", "unusual_prompted", "unusual_unprompted", "usual_prompted")
_BATCH = 64


@dataclass(frozen=True)
class _Case:
    """A question, encoded under both views, and its true sentence up to the deciding word."""

    original: Prompt
    control: Prompt
    tokens: tuple[int, ...]
    key: str


class KeyCases:
    """`num` questions of each watched suite, encoded once for any number of models."""

    def __init__(
        self, processor: Processor, painter: ScenePainter, method: Method, split: SceneSplit, num: int
    ) -> None:
        self._processor, self._method = processor, method
        self._cases = {
            suite: [_case(processor, painter, method, split, suite, number) for number in range(num)]
            for suite in WATCHED
        }

    @torch.no_grad()
    def measure(self, model: nn.Module) -> dict[str, dict[str, object]]:
        """Measure every watched suite. The model is left in eval mode."""
        family_of(model).prepare(model)
        model.eval()
        ends = family_of(model).end_token_ids(base_model(model), self._processor.tokenizer)
        temperature, objective = self._method.temperature, self._method.objective(ends)
        measured = {}
        for suite, cases in self._cases.items():
            log_p_original = _at_key(model, [case.original for case in cases], cases, temperature)
            log_p_control = _at_key(model, [case.control for case in cases], cases, temperature)
            measured[suite] = _summary(suite, cases, log_p_original, log_p_control, objective)
        return measured


def _case(
    processor: Processor, painter: ScenePainter, method: Method, split: SceneSplit, suite: str, number: int
) -> _Case:
    example, asked = scene_example(painter, split, suite, number)
    shown = show(example, method, processor)
    assert shown.contrast is not None, "a method with a contrast view is needed"
    ids = processor.tokenizer(asked.sentence, add_special_tokens=False)["input_ids"]
    place = key_position(asked.asks, ids, processor.tokenizer)
    assert place is not None, asked.sentence
    return _Case(shown.target, shown.contrast, tuple(ids[: place + 1]), asked.key)


def _at_key(model: nn.Module, prompts: Sequence[Prompt], cases: Sequence[_Case], temperature: float) -> Tensor:
    """The log-probabilities (cases, V) where the deciding word is predicted."""
    rows = []
    for start in range(0, len(cases), _BATCH):
        own = range(start, min(start + _BATCH, len(cases)))
        scores = score(model, [Group(prompts[i], [cases[i].tokens]) for i in own])
        last = torch.tensor([len(cases[i].tokens) for i in own]).cumsum(0) - 1
        hidden = scores.hidden_ND[last.to(scores.hidden_ND.device)]
        rows.append(log_probs(full_logits(Scores(hidden, scores.head)), temperature).float().cpu())
    return torch.cat(rows)


def _summary(
    suite: str,
    cases: Sequence[_Case],
    log_p_original: Tensor,
    log_p_control: Tensor,
    objective: Objective,
) -> dict[str, object]:
    log_q = target(log_p_original, log_p_control, objective)
    delta = contrast(log_p_original, log_p_control, objective.end_token_ids)
    known = _words_by_token(suite, cases)
    ids, labels = torch.tensor(list(known)), list(known.values())
    true = torch.tensor([list(known).index(case.tokens[-1]) for case in cases])
    everyone = torch.arange(len(cases))
    said = {
        name: view[:, ids].argmax(-1)
        for name, view in (("original", log_p_original), ("control", log_p_control), ("target", log_q))
    }
    is_other = torch.ones(len(cases), len(labels), dtype=torch.bool)
    is_other[everyone, true] = False
    pushed = {
        word: round(float(delta[:, ids[k]][is_other[:, k]].mean()), 3)
        for k, word in enumerate(labels)
        if is_other[:, k].any()
    }
    support = plausible_support(log_p_original, objective.beta)
    return {
        **{name: _percent_of(who == true) for name, who in said.items()},
        "flips": _percent_of(log_q.argmax(-1) != log_p_original.argmax(-1)),
        "in_support": _percent_of(support[everyone, ids[true]]),
        "kl_target_original": round(float(forward_kl(log_q, log_p_original).mean()), 4),
        "control_says": dict(Counter(labels[k] for k in said["control"].tolist()).most_common(8)),
        "pushed": dict(sorted(pushed.items(), key=lambda item: item[1])[:8]),
        "num": len(cases),
    }


def _words_by_token(suite: str, cases: Sequence[_Case]) -> dict[int, str]:
    """The words that occur, by the token with which they begin: those that begin with the same one are one entry."""
    first = {case.key: case.tokens[-1] for case in cases}
    words: dict[int, str] = {}
    for word in KEY_WORDS[asked_for(suite)]:
        if word in first:
            before = words.get(first[word])
            words[first[word]] = word if before is None else f"{before}/{word}"
    return words


def _percent_of(flags: Tensor) -> float:
    return round(100.0 * float(flags.float().mean()), 2)
