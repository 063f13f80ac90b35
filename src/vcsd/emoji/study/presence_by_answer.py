"""Right answers to questions about presence, by their true answer: a mean over both hides a lean towards "yes"."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from vcsd.emoji.questions import draw_question
from vcsd.emoji.study.seen_by_training import UNROUNDED_AT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vcsd.emoji.study.study_list import EmojiRun

    Results = Mapping[EmojiRun, dict[str, Any]]

KEYS = ("yes", "no")


def presence_by_answer(results: Results) -> Iterator[str]:
    """The section of the page: a line per base, and for each method the two percentages on `test`."""
    shown: dict[str, dict[str, str]] = {}
    for run, result in results.items():
        if run.stage == "test":
            columns = shown.setdefault(run.base, {})
            columns[run.variant] = _both(result["scores"])
            for scores in result.get(UNROUNDED_AT, {}).values():
                columns[f"{run.variant}, unrounded"] = _both(scores)
    methods = list(next(iter(shown.values())))
    yield "## Presence, by the true answer"
    yield ""
    yield 'Percent of right answers to the questions whose true answer is "yes" / to those whose true answer is "no".'
    yield "This section was added after both studies were looked at."
    yield ""
    yield "| on | " + " | ".join(methods) + " |"
    yield "|---|" + "--:|" * len(methods)
    for base, columns in shown.items():
        yield f"| {base} | " + " | ".join(columns[method] for method in methods) + " |"
    yield ""


def _both(scores: Mapping[str, Any]) -> str:
    shares = right_by_answer(scores["presence"]["marks"])
    return " / ".join(f"{shares[key]:.1f}" for key in KEYS)


def right_by_answer(marks: str) -> dict[str, float]:
    """Percent of right answers to questions about presence on `test`, by their true answer."""
    keys = [_true_answer(number) for number in range(len(marks))]
    return {
        key: 100 * sum(mark == "1" for mark, true in zip(marks, keys, strict=True) if true == key) / keys.count(key)
        for key in KEYS
    }


@cache
def _true_answer(number: int) -> str:
    return draw_question("test", "presence", number).key
