"""Marks predictions: what each mode reads from a text, and whether that is right.

exact   VLMEvalKit's rules, for parity (`exact.py`, and `mathvista_answer.py` for MathVista)
final   this package's deterministic reader for texts with reasoning (`final_answer.py`)
judge   VLMEvalKit's rules first, then a language model for the texts they cannot read (`judging`)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, did_you_mean
from vcsd.evaluation.reading import exact, mathvista_answer
from vcsd.evaluation.reading.final_answer import READER, read_answer
from vcsd.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.evaluation.benchmarks.benchmark import Benchmark, Numbers
    from vcsd.evaluation.reading.judging.judge import Judge, Judgement
    from vcsd.types import JsonObject, Prediction, Question

MODES = ("exact", "final", "judge")
COMPARISONS: dict[str, Numbers] = {"official": "official", "nearest": "nearest", "vlmevalkit": "vlmevalkit"}
FAILED = "failed"
"""The reader named in the verdict on a failed prediction."""
JUDGED = "judge"
"""The reader named in a judge's verdict, followed by the judge's name."""
NOT_JUDGED = "no judgement"
"""The reader named in the verdict on an answer to which the judge gave no useful reply."""
_NO_CHOICE = ", no choice"
"""Added to the reader's name if the answer settles on nothing: Z, Unknown, or a letter without an option."""


@dataclass(frozen=True)
class Marking:
    """How answers are read: the mode, the month of VLMEvalKit's rules, and the judge if the mode needs one.

    `mathvista` overrides how this mode compares MathVista's answers: official, nearest or vlmevalkit.

    >>> Marking("exakt")
    Traceback (most recent call last):
        ...
    vcsd.errors.ConfigError: mode = 'exakt' is not a way to score. Did you mean 'exact'?
    """

    mode: str
    rules: str = "2026-06"
    judge: Judge | None = None
    mathvista: str | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.mathvista is not None and self.mathvista not in COMPARISONS:
            hint = did_you_mean(self.mathvista, COMPARISONS)
            problems.append(f"mathvista = {self.mathvista!r} is not a way to compare answers. {hint}")
        if self.mode == "exact" and self.mathvista not in (None, "vlmevalkit"):
            problems.append(
                f"mathvista = {self.mathvista!r} has no effect: exact compares as VLMEvalKit does. Omit it."
            )
        if self.mode not in MODES:
            problems.append(f"mode = {self.mode!r} is not a way to score. {did_you_mean(self.mode, MODES)}")
        if self.rules not in exact.RULES:
            problems.append(f"rules = {self.rules!r} are not known. {did_you_mean(self.rules, exact.RULES)}")
        if (self.mode == "judge") != (self.judge is not None):
            given = "no judge was passed" if self.judge is None else "a judge was passed"
            problems.append(
                f"mode = {self.mode!r}, but {given}. Only the mode 'judge' takes a judge, and it needs one."
            )
        if problems:
            raise ConfigError(problems)

    def numbers(self, benchmark: Benchmark) -> Numbers:
        """Return how a benchmark's MathVista-style answers are compared."""
        if self.mode == "exact":
            return "vlmevalkit"
        if self.mathvista is not None and benchmark.is_read_twice:
            return COMPARISONS[self.mathvista]
        return benchmark.numbers or ("official" if self.mode == "final" else "vlmevalkit")

    def about(self) -> JsonObject:
        """Return what a scorecard records besides mode and rules: the version of the reader, and the judge."""
        return {"reader": READER, **({} if self.judge is None else {"judge": self.judge.about()})}


def mark(
    questions: Sequence[Question], answers: Sequence[Prediction], marking: Marking, suites: Mapping[str, Benchmark]
) -> list[Verdict]:
    """Return the verdict on each answer, in the order of the questions. Failed answers are wrong and not read."""
    verdicts = [
        Verdict(question.id, None, is_right=False, by=FAILED)
        if answer.error is not None
        else _mark(question, answer.text, marking, suites[question.benchmark])
        for question, answer in zip(questions, answers, strict=True)
    ]
    if marking.judge is None:
        return verdicts
    unread = [
        index
        for index, verdict in enumerate(verdicts)
        if _is_open(verdict) and marking.judge.preset.asks(answers[index].text, suites[questions[index].benchmark])
    ]
    asked = [(questions[at], answers[at].text, suites[questions[at].benchmark]) for at in unread]
    judgements = marking.judge.read_all(asked, marking.rules)
    for index, (question, _, benchmark), judgement in zip(unread, asked, judgements, strict=True):
        verdicts[index] = _judged(question, judgement, marking.judge.model, marking.numbers(benchmark))
    return verdicts


def _is_open(verdict: Verdict) -> bool:
    """Whether a judge is asked: the rules found neither a choice nor a refusal to choose."""
    return verdict.found is None and verdict.by != FAILED and not verdict.by.endswith(_NO_CHOICE)


def _chosen(question: Question, found: str | None, by: str) -> Verdict:
    """Mark a choice. A letter that is not an option, such as VLMEvalKit's Z for refusals, is not a choice."""
    if question.kind == "option" and found is not None and found not in question.options:
        return Verdict(question.id, None, is_right=False, by=by + _NO_CHOICE)
    return Verdict(question.id, found, found == question.gold, by)


def _judged(question: Question, judgement: Judgement, model: str, numbers: Numbers) -> Verdict:
    """Mark what a judge has read. Letters, Yes and No are compared as they are, the rest as in MathVista."""
    found = judgement.found
    if judgement.failure is not None:
        return Verdict(question.id, None, is_right=False, by=f"{NOT_JUDGED} ({judgement.failure}) by {model}")
    by = f"{JUDGED} {model}"
    if found is None:
        return _guessed(Verdict(question.id, None, is_right=False, by=by + _NO_CHOICE), question, numbers)
    if question.kind in ("option", "yes_no"):
        return _chosen(question, found, by)
    return Verdict(question.id, found, mathvista_answer.is_right(question, found, numbers), by)


def _guessed(verdict: Verdict, question: Question, numbers: Numbers) -> Verdict:
    """With `nearest`, mark an unread answer by the guess of MathVista's authors. It still counts as unread."""
    if numbers != "nearest" or question.kind != "option":
        return verdict
    return replace(verdict, is_right=mathvista_answer.is_right(question, "", numbers), by=f"{verdict.by}, guessed")


def _mark(question: Question, text: str, marking: Marking, benchmark: Benchmark) -> Verdict:
    if marking.mode == "final":
        return _mark_finally(question, text, marking.numbers(benchmark))
    if marking.mode == "judge":
        return _mark_by_rules(question, text, marking, benchmark)
    return _mark_exactly(question, text, marking, benchmark)


def _mark_by_rules(question: Question, text: str, marking: Marking, benchmark: Benchmark) -> Verdict:
    """Mark by VLMEvalKit's rules before a judge is asked; a correct 0 counts, and nothing is read twice."""
    by = f"exact {marking.rules}"
    if benchmark.is_first_letter:
        return _chosen(question, exact.read_first_letter(text), by)
    if question.kind in ("option", "yes_no"):
        is_option = question.kind == "option"
        found = exact.read_option(text, question.options, marking.rules) if is_option else exact.read_yes_no(text)
        return _chosen(question, found, by)
    value, is_right = mathvista_answer.check(question, text, marking.rules)
    return Verdict(question.id, value if is_right else None, is_right, by)


def _mark_finally(question: Question, text: str, numbers: Numbers) -> Verdict:
    reading = read_answer(text, question.kind, question.options, question.wording)
    by = f"final, {reading.by}"
    if reading.found is None:
        return _guessed(Verdict(question.id, None, is_right=False, by=by), question, numbers)
    if question.kind == "yes_no":
        return Verdict(question.id, reading.found, reading.found == question.gold, by)
    return Verdict(question.id, reading.found, mathvista_answer.is_right(question, reading.found, numbers), by)


def _mark_exactly(question: Question, text: str, marking: Marking, benchmark: Benchmark) -> Verdict:
    rules, by = marking.rules, f"exact {marking.rules}"
    if benchmark.is_first_letter:
        found = exact.read_first_letter(exact.read_back(text))
    elif question.kind == "yes_no":
        found = exact.read_yes_no(exact.read_back(text))
    elif question.kind == "option" and not benchmark.is_read_twice:
        found = exact.read_option(exact.read_back(text), question.options, rules)
    else:
        first = mathvista_answer.read_first(question, text, rules)
        found, is_right = mathvista_answer.check(question, first or mathvista_answer.NOTHING_READ, rules)
        by = f"{by}, {'first' if first else 'second'} reading"
        if question.kind == "option":
            return _chosen(question, found, by)
        return Verdict(question.id, found, is_right, by)
    return _chosen(question, found, by)
