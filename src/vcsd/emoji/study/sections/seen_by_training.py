"""What training saw: the answers that it sampled, beside the exam of the weights that it left behind.

With `trainer.bf16` the matrix products of training round their weights to bfloat16, and rollouts on a GPU are drawn
from a rounded copy. If an exam measures the unrounded weights instead, the two may be far apart: a base lies on
bfloat16's grid, so small updates are not seen before they add up to half a step of the grid.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

from vcsd.emoji.questions import PROMPT_SHARES, SUITES
from vcsd.emoji.study.key_monitor import KEYS
from vcsd.emoji.study.sections.language_tables import paragraph
from vcsd.monitor.lines import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from vcsd.emoji.study.sections.language_tables import Results
    from vcsd.emoji.study.study_list import EmojiRun


UNTOUCHED = 2
"""Steps at the start whose rollouts are the base's: the rate is still warming up."""

LAST = 10
"""Steps at the end whose rollouts are compared with the exam."""

NUM_PER_PROMPT = 8
"""Rollouts of a prompt in the study's recipe."""

MEASURED = "bfloat16"
"""The precision of the weights that an exam measures: that of a base, of rollouts, and of `vcsd export` by default.

The first study measured the float32 weights that the optimizer keeps. Its results lack the entry `measured`.
"""

UNROUNDED_AT = "unrounded_at"
"""The entry of a result with the scores of the unrounded weights, by steps. Nothing is judged by them."""


def seen_by_training(results: Results, out: Path) -> Iterator[str]:
    """The section of the page: rollouts of the last steps and the exam, by method and suite, as means over bases."""
    methods = list(dict.fromkeys(run.variant for run in results if run.stage == "test" and run.trains))
    rollouts = {run: _Rollouts(out / "runs" / run.name / KEYS) for run in results if run.stage == "test" and run.trains}
    yield "## What training saw"
    yield ""
    yield from paragraph(
        f"Percent of right answers, means over bases. *Steps* are the answers sampled in the first {UNTOUCHED} and the "
        f"last {LAST} steps of training (temperature 1, prompts of the split `train`); *exam* is greedy, on `test`. "
        "Only suites that prompts ask about are shown. The runs of a base begin with the same prompts: in the first "
        f"steps of all bases, {_num_prompts(rollouts)} of them for a suite, with eight answers each. A few points may "
        "be chance."
    )
    yield "| suite | base: first steps | exam | " + " | ".join(f"{name}: last steps | exam" for name in methods) + " |"
    yield "|---|--:|--:|" + "--:|--:|" * len(methods)
    for suite in PROMPT_SHARES:
        first = [seen for own in rollouts.values() if (seen := own.right(suite, until=UNTOUCHED)) is not None]
        cells = [_percent(first), _exam(results, "base", suite)]
        for name in methods:
            last = [own.right(suite, last=LAST) for run, own in rollouts.items() if run.variant == name]
            cells += [_percent([seen for seen in last if seen is not None]), _exam(results, name, suite)]
        yield f"| {suite} | " + " | ".join(cells) + " |"
    yield ""
    yield from _unrounded(results, methods)


def _num_prompts(rollouts: Mapping[EmojiRun, _Rollouts]) -> str:
    """How many prompts of a suite the first steps of one run per base ask, from the fewest to the most."""
    one = {run.base: own for run, own in rollouts.items()}.values()
    numbers = [sum(own.num(suite, until=UNTOUCHED) for own in one) // NUM_PER_PROMPT for suite in PROMPT_SHARES]
    return f"{min(numbers)} to {max(numbers)}"


def _unrounded(results: Results, methods: list[str]) -> Iterator[str]:
    """The exam of rounded and of unrounded weights, if both were taken."""
    if not all(UNROUNDED_AT in result for run, result in results.items() if run.stage == "test" and run.trains):
        return
    yield "Means over bases, of the exam of rounded weights, which counts, and of the exam of unrounded weights:"
    yield ""
    yield "| suite | " + " | ".join(f"{name}: rounded | unrounded" for name in methods) + " |"
    yield "|---|" + "--:|--:|" * len(methods)
    for suite in SUITES:
        cells = [cell for name in methods for cell in (_exam(results, name, suite), _other(results, name, suite))]
        yield f"| {suite} | " + " | ".join(cells) + " |"
    yield ""


def _on_test(results: Results, variant: str) -> list[dict[str, Any]]:
    return [result for run, result in results.items() if (run.stage, run.variant) == ("test", variant)]


def _exam(results: Results, variant: str, suite: str) -> str:
    return _percent([result["scores"][suite]["right"] for result in _on_test(results, variant)])


def _other(results: Results, variant: str, suite: str) -> str:
    """The same for the unrounded weights; a run on `test` has one length."""
    scores = [next(iter(result[UNROUNDED_AT].values())) for result in _on_test(results, variant)]
    return _percent([each[suite]["right"] for each in scores])


def _percent(values: list[float]) -> str:
    return f"{mean(values):.1f}" if values else "-"


class _Rollouts:
    """The sampled answers of a run, by `keys.jsonl`."""

    def __init__(self, path: Path) -> None:
        self._lines: list[Mapping[str, Any]] = list(read_lines(path))
        self._end = max((int(line["step"]) for line in self._lines), default=0)

    def num(self, suite: str, *, until: int | None = None, last: int | None = None) -> int:
        """The number of answers in the steps until one, or in the last ones."""
        return sum(line["responses"] for line in self._of(suite, until, last))

    def right(self, suite: str, *, until: int | None = None, last: int | None = None) -> float | None:
        """Percent of right ones among them; None without any."""
        lines, num = self._of(suite, until, last), self.num(suite, until=until, last=last)
        return sum(line["right"] * line["responses"] for line in lines) / num if num else None

    def _of(self, suite: str, until: int | None, last: int | None) -> list[Mapping[str, Any]]:
        begin = 0 if last is None else self._end - last
        end = self._end if until is None else until
        return [line for line in self._lines if line["suite"] == suite and begin < line["step"] <= end]
