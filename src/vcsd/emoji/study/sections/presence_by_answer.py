"""Right answers to questions about presence, by their true answer: a mean over both hides a lean towards "yes"."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from vcsd.emoji.questions import draw_question
from vcsd.emoji.study.sections.seen_by_training import UNROUNDED_AT
from vcsd.emoji.study.settle import is_broken
from vcsd.emoji.study.study_list import tried_on_dev
from vcsd.reproduce.paired_runs import paired

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vcsd.emoji.emoji_exam import SuiteScore
    from vcsd.emoji.questions import SceneSplit
    from vcsd.emoji.study.sections.language_tables import Results
    from vcsd.emoji.study.settle import RunSetting, Scores
    from vcsd.reproduce.paired_runs import Paired


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
    broken_on_dev, num_tried = settings_that_break_no(results)
    yield f"- VCSD on `dev`: broken by {len(broken_on_dev)} of {num_tried} settings."
    yield ""
    right = {name: _half(own["presence"], "no")["right"] for name, own in scores.items()}
    over_base, over_opsd = (_vcsd_minus(other, right) for other in ("base", "OPSD"))
    yield f"Over bases, on these questions: VCSD minus base {over_base}, VCSD minus OPSD {over_opsd}."
    yield ""


def _vcsd_minus(other: str, right: Mapping[tuple[str, str], float]) -> Paired:
    """The difference over bases of what `right` has for each base and method."""
    before, after = (
        {(base, 0): value for (base, name), value in right.items() if name == want} for want in (other, "VCSD")
    )
    change = paired(before, after)
    assert change is not None, "all runs are finished"
    return change


def settings_that_break_no(results: Results) -> tuple[set[RunSetting], int]:
    """The settings of VCSD that break presence on `dev` on the questions whose true answer is "no", and of how many."""
    base, tried = tried_on_dev(results)
    assert base is not None, "all runs are finished"
    before = _half(base["presence"], "no", "dev")
    broken = {
        setting for setting, own in tried["VCSD"].items() if is_broken(before, _half(own["presence"], "no", "dev"))
    }
    return broken, len(tried["VCSD"])


def with_presence_of(answer: str, scores: Scores) -> dict[str, SuiteScore]:
    """Return scores whose suite `presence` has only the questions with one true answer."""
    return {**scores, "presence": _half(scores["presence"], answer)}


def _breaks_no(base: Scores, scores: Scores) -> bool:
    return is_broken(_half(base["presence"], "no"), _half(scores["presence"], "no"))


def _both(scores: Scores) -> str:
    return " / ".join(f"{_half(scores['presence'], answer)['right']:.1f}" for answer in ANSWERS)


def _half(score: SuiteScore, answer: str, split: SceneSplit = "test") -> SuiteScore:
    """Return the part of a score of presence with one true answer."""
    marks = "".join(mark for number, mark in enumerate(score["marks"]) if _true_answer(split, number) == answer)
    return {**score, "marks": marks, "num": len(marks), "right": 100 * marks.count("1") / len(marks)}


@cache
def _true_answer(split: SceneSplit, number: int) -> str:
    return draw_question(split, "presence", number).key
