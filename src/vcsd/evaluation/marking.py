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
    from vcsd.evaluation.judge import Judge
    from vcsd.evaluation.question import Prediction, Question

MODES = ("exact", "final", "judge")
FAILED = "failed"
"""Who reads an answer that never came."""
JUDGED = "judge"
"""With the judge's name: who reads what the rules leave open."""


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
    judge: Judge | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.mode not in MODES:
            problems.append(f"mode = {self.mode!r} is not a way to score. {did_you_mean(self.mode, MODES)}")
        if self.rules not in exact.RULES:
            problems.append(f"rules = {self.rules!r} are not known. {did_you_mean(self.rules, exact.RULES)}")
        if (self.mode == "judge") != (self.judge is not None):
            given = "there is none" if self.judge is None else "one is given"
            problems.append(f"mode = {self.mode!r}, but of a judge {given}. The mode 'judge' has one, the others none.")
        if problems:
            raise ConfigError(problems)

    def numbers(self, benchmark: Benchmark) -> Numbers:
        """How MathVista's kind of answers is compared in a benchmark."""
        if self.mode == "exact":
            return "vlmevalkit"
        return benchmark.numbers or ("official" if self.mode == "final" else "vlmevalkit")

    def about(self) -> dict[str, Any]:
        """What a scorecard says of it besides mode and rules."""
        return {} if self.judge is None else {"judge": self.judge.about()}


def mark(
    questions: Sequence[Question],
    answers: Sequence[Prediction],
    marking: Marking,
    suites: Mapping[str, Benchmark],
) -> list[Verdict]:
    """The verdict on each answer, in the order of the questions. A failed answer is wrong and read by nobody."""
    verdicts = [
        Verdict(question.id, None, is_right=False, by=FAILED)
        if answer.error is not None
        else _mark(question, answer.text, marking, suites[question.benchmark])
        for question, answer in zip(questions, answers, strict=True)
    ]
    if marking.judge is None:
        return verdicts
    left = [
        place
        for place, verdict in enumerate(verdicts)
        if verdict.found is None and verdict.by != FAILED and answers[place].text.strip()
    ]
    rules = cast("exact.Rules", marking.rules)
    found = marking.judge.read_all([(questions[place], answers[place].text) for place in left], rules)
    for place, reading in zip(left, found, strict=True):
        numbers = marking.numbers(suites[questions[place].benchmark])
        verdicts[place] = _judged(questions[place], reading, f"{JUDGED} {marking.judge.model}", numbers)
    return verdicts


def _judged(question: Question, found: str | None, by: str, numbers: Numbers) -> Verdict:
    """The verdict on what a judge has read. Letters, yes and no are compared as they are, the rest as MathVista's."""
    if question.kind in ("option", "yes_no"):
        return Verdict(question.id, found, found == question.gold, by)
    return Verdict(question.id, found, found is not None and mathvista.is_right(question, found, numbers), by)


def _mark(question: Question, text: str, marking: Marking, benchmark: Benchmark) -> Verdict:
    if marking.mode == "final":
        return _mark_finally(question, text, marking.numbers(benchmark))
    if marking.mode == "judge":
        return _mark_by_rules(question, text, marking)
    return _mark_exactly(question, text, marking, benchmark)


def _mark_by_rules(question: Question, text: str, marking: Marking) -> Verdict:
    """What VLMEvalKit's rules read before a judge is asked; a right 0 counts, and nothing is read twice."""
    rules = cast("exact.Rules", marking.rules)
    by = f"exact {rules}"
    if question.kind in ("option", "yes_no"):
        is_option = question.kind == "option"
        found = exact.read_option(text, question.options, rules) if is_option else exact.read_yes_no(text)
        return Verdict(question.id, found, found is not None and found == question.gold, by)
    value, is_right = mathvista.check(question, text, rules)
    return Verdict(question.id, value if is_right else None, is_right, by)


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
