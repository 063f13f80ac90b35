"""Right answers to questions about presence, by their true answer: a mean over both hides a lean towards "yes"."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from vcsd.emoji.questions import draw_question
from vcsd.emoji.study.sections.seen_by_training import UNROUNDED_AT
from vcsd.emoji.study.settle import is_broken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vcsd.emoji.emoji_exam import SuiteScore
    from vcsd.emoji.study.settle import Scores
    from vcsd.emoji.study.study_list import EmojiRun

    Results = Mapping[EmojiRun, dict[str, Any]]

ANSWERS = ("yes", "no")


def presence_by_answer(results: Results) -> Iterator[str]:
    """The section of the page: a line per base, and for each method the two percentages on `test`."""
    on_test = {run: result for run, result in results.items() if run.stage == "test"}
    shown: dict[str, dict[str, str]] = {}
    for run, result in on_test.items():
        columns = shown.setdefault(run.base, {})
        columns[run.variant] = _both(result["scores"])
        for scores in result.get(UNROUNDED_AT, {}).values():
            columns[f"{run.variant}, unrounded"] = _both(scores)
    methods = list(next(iter(shown.values())))
    yield "## Presence, by the true answer"
    yield ""
    yield 'Percent of right answers to the questions whose true answer is "yes" / to those whose true answer is "no".'
    yield "This section was added after both studies were looked at, and no verdict depends on it."
    yield ""
    yield "| on | " + " | ".join(methods) + " |"
    yield "|---|" + "--:|" * len(methods)
    for base, columns in shown.items():
        yield f"| {base} | " + " | ".join(columns[method] for method in methods) + " |"
    yield ""
    yield 'If the questions whose true answer is "no" were a gate of their own:'
    yield ""
    scores = {(run.base, run.variant): result["scores"] for run, result in on_test.items()}
    for variant in dict.fromkeys(variant for _, variant in scores if variant != "base"):
        broken = [base for base in shown if _breaks_no(scores[base, "base"], scores[base, variant])]
        yield f"- {variant}: broken on {', '.join(broken) or 'none'}."
    yield ""


def with_presence_of(answer: str, scores: Scores) -> dict[str, SuiteScore]:
    """Return scores whose suite `presence` has only the questions with one true answer."""
    return {**scores, "presence": _half(scores["presence"], answer)}


def _breaks_no(base: Scores, scores: Scores) -> bool:
    return is_broken(_half(base["presence"], "no"), _half(scores["presence"], "no"))


def _both(scores: Scores) -> str:
    return " / ".join(f"{_half(scores['presence'], answer)['right']:.1f}" for answer in ANSWERS)


def _half(score: SuiteScore, answer: str) -> SuiteScore:
    """Return the part of a score of presence on `test` with one true answer."""
    marks = "".join(mark for number, mark in enumerate(score["marks"]) if _true_answer(number) == answer)
    return {**score, "marks": marks, "num": len(marks), "right": 100 * marks.count("1") / len(marks)}


@cache
def _true_answer(number: int) -> str:
    return draw_question("test", "presence", number).key
