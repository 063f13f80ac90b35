"""Marking: what each mode reads out of an answer, and whether that is right.

exact   VLMEvalKit's rules, for parity (`exact.py`, and `mathvista.py` for MathVista)
final   our deterministic reader of reasoned answers (`answers.py`)
judge   VLMEvalKit's rules first, then a language model for what they leave open (`judge.py`)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from vcsd.errors import ConfigError, did_you_mean
from vcsd.evaluation import exact, mathvista
from vcsd.evaluation.answers import read_answer
from vcsd.evaluation.question import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.evaluation.benchmark import Benchmark, Numbers
    from vcsd.evaluation.question import Prediction, Question

MODES = ("exact", "final")
FAILED = "failed"
"""Who reads an answer that never came."""


@dataclass(frozen=True)
class Marking:
    """How answers are read: the mode, the month of VLMEvalKit's rules, and the judge where there is one.

    >>> Marking("exakt")
    Traceback (most recent call last):
        ...
    vcsd.errors.ConfigError: mode = 'exakt' is not a way to score. Did you mean 'exact'?
    """

    mode: str
    rules: str = "2026-06"

    def __post_init__(self) -> None:
        problems = []
        if self.mode not in MODES:
            problems.append(f"mode = {self.mode!r} is not a way to score. {did_you_mean(self.mode, MODES)}")
        if self.rules not in exact.RULES:
            problems.append(f"rules = {self.rules!r} are not known. {did_you_mean(self.rules, exact.RULES)}")
        if problems:
            raise ConfigError(problems)

    def numbers(self, benchmark: Benchmark) -> Numbers:
        """How MathVista's kind of answers is compared in a benchmark."""
        if self.mode == "exact":
            return "vlmevalkit"
        return benchmark.numbers or ("official" if self.mode == "final" else "vlmevalkit")

    def about(self) -> dict[str, Any]:
        """What a scorecard says of it besides mode and rules."""
        return {}


def mark(
    questions: Sequence[Question],
    answers: Sequence[Prediction],
    marking: Marking,
    suites: Mapping[str, Benchmark],
) -> list[Verdict]:
    """The verdict on each answer, in the order of the questions. A failed answer is wrong and read by nobody."""
    return [
        Verdict(question.id, None, is_right=False, by=FAILED)
        if answer.error is not None
        else _mark(question, answer.text, marking, suites[question.benchmark])
        for question, answer in zip(questions, answers, strict=True)
    ]


def _mark(question: Question, text: str, marking: Marking, benchmark: Benchmark) -> Verdict:
    if marking.mode == "final":
        return _mark_finally(question, text, marking.numbers(benchmark))
    return _mark_exactly(question, text, marking, benchmark)


def _mark_finally(question: Question, text: str, numbers: Numbers) -> Verdict:
    reading = read_answer(text, question.kind, question.options)
    by = f"final, {reading.by}"
    if reading.found is None:
        return Verdict(question.id, None, is_right=False, by=by)
    if question.kind == "yes_no":
        return Verdict(question.id, reading.found, reading.found == question.gold, by)
    return Verdict(question.id, reading.found, mathvista.is_right(question, reading.found, numbers), by)


def _mark_exactly(question: Question, text: str, marking: Marking, benchmark: Benchmark) -> Verdict:
    rules = cast("exact.Rules", marking.rules)
    by = f"exact {rules}"
    if question.kind == "yes_no":
        found = exact.read_yes_no(exact.read_back(text))
    elif question.kind == "option" and not benchmark.is_read_twice:
        found = exact.read_option(exact.read_back(text), question.options, rules)
    else:
        first = mathvista.read_first(question, text, rules)
        found, is_right = mathvista.check(question, first or mathvista.NOTHING_READ, rules)
        return Verdict(question.id, found, is_right, f"{by}, {'first' if first else 'second'} reading")
    return Verdict(question.id, found, found == question.gold, by)
