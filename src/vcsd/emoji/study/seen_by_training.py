"""What training saw: the answers that it sampled, beside the exam of the weights that it left behind.

With `trainer.bf16` every pass of training rounds the weights to bfloat16, and rollouts are drawn from a rounded copy.
If an exam measures the unrounded weights instead, the two may be far apart: a base lies on bfloat16's grid, so small
updates are not seen before they add up to half a step of the grid.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

from vcsd.emoji.questions import PROMPT_SHARES, SUITES
from vcsd.emoji.study.key_monitor import KEYS
from vcsd.monitor.lines import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from vcsd.emoji.study.study_list import EmojiRun

    Results = Mapping[EmojiRun, dict[str, Any]]

UNTOUCHED = 2
"""Steps at the start whose rollouts are the base's: the rate is still warming up."""

LAST = 10
"""Steps at the end whose rollouts are compared with the exam."""

UNROUNDED = "scores_unrounded"


def seen_by_training(results: Results, out: Path) -> Iterator[str]:
    """The section of the page: rollouts of the last steps and the exam, by method and suite, as means over bases."""
    methods = list(dict.fromkeys(run.variant for run in results if run.stage == "test" and run.trains))
    rollouts = {run: _Rollouts(out / "runs" / run.name / KEYS) for run in results if run.stage == "test" and run.trains}
    yield "## What training saw"
    yield ""
    yield f"Percent of right answers, means over bases: sampled in the first {UNTOUCHED} and the last {LAST} steps of"
    yield "training (temperature 1, prompts of the split `train`), and greedy in the exam (split `test`). Only suites"
    yield "that prompts ask about."
    yield ""
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


def _unrounded(results: Results, methods: list[str]) -> Iterator[str]:
    """The exam of rounded and of unrounded weights, if both were taken."""
    if not all(UNROUNDED in result for run, result in results.items() if run.stage == "test" and run.trains):
        return
    yield "The exam of the weights rounded to bfloat16, which counts, and of the unrounded ones, means over bases:"
    yield ""
    yield "| suite | " + " | ".join(f"{name}: rounded | unrounded" for name in methods) + " |"
    yield "|---|" + "--:|--:|" * len(methods)
    for suite in SUITES:
        cells = [_exam(results, name, suite, key) for name in methods for key in ("scores", UNROUNDED)]
        yield f"| {suite} | " + " | ".join(cells) + " |"
    yield ""


def _exam(results: Results, variant: str, suite: str, key: str = "scores") -> str:
    return _percent([
        result[key][suite]["right"] for run, result in results.items() if (run.stage, run.variant) == ("test", variant)
    ])  # fmt: skip


def _percent(values: list[float]) -> str:
    return f"{mean(values):.1f}" if values else "-"


class _Rollouts:
    """The sampled answers of a run, by `keys.jsonl`."""

    def __init__(self, path: Path) -> None:
        self._lines: list[Mapping[str, Any]] = list(read_lines(path))
        self._end = max((int(line["step"]) for line in self._lines), default=0)

    def right(self, suite: str, *, until: int | None = None, last: int | None = None) -> float | None:
        """Percent of right answers in the steps until one, or in the last ones; None without any."""
        begin = 0 if last is None else self._end - last
        end = self._end if until is None else until
        lines = [line for line in self._lines if line["suite"] == suite and begin < line["step"] <= end]
        num = sum(line["responses"] for line in lines)
        return sum(line["right"] * line["responses"] for line in lines) / num if num else None
