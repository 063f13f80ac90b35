"""Scoring: questions and predictions in, a scorecard out.

    align -> mark -> tally -> scorecard

Every question has exactly one prediction: a missing one is a failed one, and a prediction of no question, or a second
one, is an error. What each mode reads out of an answer is in `marking.py`, how answers become a number in
`aggregate.py`, how sure the number is in `uncertainty.py`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcsd.errors import ConfigError, RunError, did_you_mean
from vcsd.evaluation.aggregate import entry_of, metrics_of, tally
from vcsd.evaluation.benchmark import BENCHMARKS, Benchmark
from vcsd.evaluation.marking import JUDGED, Marking, mark
from vcsd.evaluation.question import Prediction
from vcsd.evaluation.scorecard import BenchmarkScore, Counts, GroupScore, Scorecard
from vcsd.evaluation.uncertainty import LEVEL, NUM_RESAMPLES, SEED, interval, resample
from vcsd.monitor.text import is_repetitive

if TYPE_CHECKING:
    from vcsd.evaluation.judge import Judge
    from vcsd.evaluation.question import Question, Verdict

Predictions = Mapping[str, Iterable[Prediction]] | Iterable[Prediction]
"""The predictions of each benchmark by its name; or one list, where no two questions share an id."""

_FEW = 5
_WORD = re.compile(r"[^\W\u3040-\u9fff]+|[^\s]")
"""A word, or one sign or Chinese or Japanese character: what stands for a token where the tokens are not known."""

_LAST_CHARACTERS = 6000
"""The end of an answer in which repetition is looked for: a loop lasts to the end."""


def score(
    questions: Sequence[Question],
    predictions: Predictions,
    *,
    mode: str = "final",
    rules: str = "2026-06",
    judge: Judge | None = None,
    suites: Mapping[str, Benchmark] = BENCHMARKS,
    made_with: Mapping[str, Any] | None = None,
    allow_failed: bool = False,
) -> Scorecard:
    """The scorecard of predictions. `made_with` says how they came about; failed ones are an error unless allowed."""
    _places(questions, suites)
    answers = align(questions, predictions)
    check_failed(questions, answers, allow_failed=allow_failed)
    marking = Marking(mode, rules, judge)
    verdicts = mark(questions, answers, marking, suites)
    return scorecard_of(questions, answers, verdicts, marking=marking, suites=suites, made_with=made_with)


def align(questions: Sequence[Question], predictions: Predictions) -> list[Prediction]:
    """The prediction of each question, in the order of the questions; one that is missing has failed."""
    wanted: dict[tuple[str, str], int] = {}
    problems = []
    for place, question in enumerate(questions):
        if wanted.setdefault((question.benchmark, question.id), place) != place:
            problems.append(f"question {question.id!r} of {question.benchmark} is given twice. Remove one.")
    found: dict[tuple[str, str], Prediction] = {}
    for benchmark, prediction in _with_benchmark(questions, predictions):
        key = (benchmark, prediction.question_id)
        if key not in wanted:
            problems.append(f"a prediction is for {prediction.question_id!r} of {benchmark}, which is not asked.")
        elif key in found:
            problems.append(f"question {prediction.question_id!r} of {benchmark} has two predictions. Keep one.")
        found[key] = prediction
    if problems:
        more = [f"and {len(problems) - _FEW} more like these."] if len(problems) > _FEW else []
        raise ConfigError(problems[:_FEW] + more)
    return [
        found.get((question.benchmark, question.id))
        or Prediction(question.id, "", stop=None, error="there is no prediction")
        for question in questions
    ]


def _with_benchmark(questions: Sequence[Question], predictions: Predictions) -> Iterable[tuple[str, Prediction]]:
    if isinstance(predictions, Mapping):
        return [(name, prediction) for name, several in predictions.items() for prediction in several]
    of_id: dict[str, str] = {}
    for question in questions:
        if of_id.setdefault(question.id, question.benchmark) != question.benchmark:
            raise ConfigError([
                f"question {question.id!r} is in {of_id[question.id]} and in {question.benchmark}: which one a "
                "prediction answers cannot be told. Give the predictions by benchmark: {name: predictions}."
            ])  # fmt: skip
    return [(of_id.get(prediction.question_id, "no benchmark"), prediction) for prediction in predictions]


def check_failed(questions: Sequence[Question], answers: Sequence[Prediction], *, allow_failed: bool) -> None:
    """Refuse to score a benchmark with failed questions, unless they may count as wrong."""
    failed: dict[str, list[Prediction]] = defaultdict(list)
    for question, answer in zip(questions, answers, strict=True):
        if answer.error is not None:
            failed[question.benchmark].append(answer)
    if failed and not allow_failed:
        lines = [
            f"{name}: {len(some)} failed, the first is {some[0].question_id!r}: {str(some[0].error).rstrip('.')}"
            for name, some in failed.items()
        ]
        raise RunError(
            f"questions without an answer are not averaged. {'; '.join(lines)}. Ask them again, or allow failed "
            "questions (allow_failed=True, --allow-failed) to count them as wrong."
        )


def scorecard_of(
    questions: Sequence[Question],
    answers: Sequence[Prediction],
    verdicts: Sequence[Verdict],
    *,
    marking: Marking,
    suites: Mapping[str, Benchmark] = BENCHMARKS,
    made_with: Mapping[str, Any] | None = None,
) -> Scorecard:
    """The scorecard of verdicts that are already there; all three sequences are in the order of the questions.

    Within a benchmark questions are ordered by id, so that scorecards of the same questions have the same tallies.
    """
    scores, entries = {}, []
    for name, places in _places(questions, suites).items():
        scores[name], resampled = _benchmark(
            suites[name],
            marking,
            [questions[at] for at in places],
            [answers[at] for at in places],
            [verdicts[at] for at in places],
        )
        entries.append(resampled)
    acc = sum(score.entry for score in scores.values()) / len(scores)
    bootstrap = {"num_resamples": NUM_RESAMPLES, "level": LEVEL, "seed": SEED}
    about = {**(made_with or {}), **marking.about(), "bootstrap": bootstrap}
    return Scorecard(marking.mode, marking.rules, acc, interval(np.mean(entries, axis=0)), scores, about)


def _places(questions: Sequence[Question], suites: Mapping[str, Benchmark]) -> dict[str, list[int]]:
    """Where the questions of each benchmark are, in the order of the suites and of the ids."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        places[question.benchmark].append(place)
    unknown = [
        f"questions are of the benchmark {name!r}, which is not known. {did_you_mean(name, suites)}"
        for name in places
        if name not in suites
    ]
    if unknown or not places:
        raise ConfigError(unknown or ["there are no questions to score."])
    return {name: sorted(places[name], key=lambda at: questions[at].id) for name in suites if name in places}


def _benchmark(
    benchmark: Benchmark,
    marking: Marking,
    questions: Sequence[Question],
    answers: Sequence[Prediction],
    verdicts: Sequence[Verdict],
) -> tuple[BenchmarkScore, Any]:
    is_right = [verdict.is_right for verdict in verdicts]
    whole = tally(benchmark, questions, is_right)
    resampled = resample(whole, [is_right], name=benchmark.name)[0]
    return (
        BenchmarkScore(
            benchmark.name,
            benchmark.title,
            entry_of(whole),
            interval(resampled),
            len(questions),
            benchmark.num_questions,
            count(answers, verdicts),
            metrics_of(whole),
            {key: _groups(benchmark, key, questions, is_right) for key in benchmark.breakdown},
            marking.numbers(benchmark),
            whole,
        ),
        resampled,
    )


def count(answers: Sequence[Prediction], verdicts: Sequence[Verdict]) -> Counts:
    """What is not as it should be among answers."""
    came = [(answer, verdict) for answer, verdict in zip(answers, verdicts, strict=True) if answer.error is None]
    return Counts(
        failed=len(answers) - len(came),
        unresolved=sum(verdict.found is None for _, verdict in came),
        truncated=sum(answer.stop == "length" for answer, _ in came),
        empty=sum(not answer.text.strip() for answer, _ in came),
        repeated=sum(is_repetitive(_WORD.findall(answer.text[-_LAST_CHARACTERS:])) for answer, _ in came),
        judged=sum(verdict.by.startswith(JUDGED) for _, verdict in came),
    )


def _groups(
    benchmark: Benchmark, key: str, questions: Sequence[Question], is_right: Sequence[bool]
) -> dict[str, GroupScore]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        for name in group_names(question, key):
            places[name].append(place)
    scores = {}
    for name in sorted(places):
        part = tally(benchmark, [questions[at] for at in places[name]], [is_right[at] for at in places[name]])
        scores[name] = GroupScore(entry_of(part), len(places[name]), metrics_of(part))
    return scores


def group_names(question: Question, key: str) -> list[str]:
    """The groups of a question under a key: none, one, or several where the cell is a list, as MathVista's skills."""
    cell = question.groups.get(key)
    if cell is None:
        return []
    if cell.startswith("["):
        try:
            return [str(name) for name in ast.literal_eval(cell)]
        except (SyntaxError, ValueError):
            return [cell]
    return [cell]
