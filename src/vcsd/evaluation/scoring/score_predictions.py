"""Scores predictions: questions and predictions in, a scorecard out.

    align -> mark -> tally -> scorecard

Every question needs exactly one prediction. A missing one counts as failed; a second one, or one without a question, is
an error. `marking.py` reads answers, `aggregate.py` turns them into a number, `uncertainty.py` gives its interval.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, RunError, did_you_mean
from vcsd.evaluation.benchmarks import PUBLISHED
from vcsd.evaluation.reading.marking import JUDGED, NOT_JUDGED, Marking, mark
from vcsd.evaluation.scoring.aggregate import entry_of, f1_ratios, group_names, metrics_of, tally
from vcsd.evaluation.scoring.scorecard import BenchmarkScore, Counts, GroupScore, Scorecard
from vcsd.evaluation.scoring.several_answers import mean_tokens
from vcsd.evaluation.scoring.uncertainty import LEVEL, METHOD, estimate, interval, interval_of_mean
from vcsd.monitor.response_text import is_repetitive
from vcsd.types import Prediction

if TYPE_CHECKING:
    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.evaluation.reading.judging.judge import Judge
    from vcsd.evaluation.scoring.aggregate import Tally
    from vcsd.evaluation.scoring.scorecard import MadeWith
    from vcsd.types import Question, Verdict

Predictions = Mapping[str, Iterable[Prediction]] | Iterable[Prediction]
"""The predictions by benchmark; or one list, if no two questions share an id."""

_FEW = 5
_WORD = re.compile(r"[^\W\u3040-\u9fff]+|[^\s]")
"""A word, a sign, or a Chinese or Japanese character: used in place of tokens, which are not known here."""

_LAST_CHARACTERS = 6000
"""The length of the end of an answer that is searched for repetition: a loop lasts to the end."""


def score(
    questions: Sequence[Question],
    predictions: Predictions,
    *,
    mode: str = "final",
    rules: str = "2026-06",
    judge: Judge | None = None,
    suites: Mapping[str, Benchmark] = PUBLISHED,
    made_with: MadeWith | None = None,
    allow_failed: bool = False,
) -> Scorecard:
    """Score predictions. `made_with` says how they were made; failed ones are an error unless allowed."""
    _indices(questions, suites)
    answers = align(questions, predictions)
    check_failed(questions, answers, allow_failed=allow_failed, allowed_by="allow_failed=True")
    marking = Marking(mode, rules, judge)
    verdicts = mark(questions, answers, marking, suites)
    return scorecard_of(questions, answers, verdicts, marking=marking, suites=suites, made_with=made_with)


def align(questions: Sequence[Question], predictions: Predictions) -> list[Prediction]:
    """Return the prediction of each question, in the order of the questions; a missing one counts as failed."""
    wanted: dict[tuple[str, str], int] = {}
    problems = []
    for index, question in enumerate(questions):
        if wanted.setdefault((question.benchmark, question.id), index) != index:
            problems.append(f"question {question.id!r} of {question.benchmark} occurs twice. Remove one.")
    known: dict[tuple[str, str], Prediction] = {}
    for benchmark, prediction in _with_benchmark(questions, predictions):
        key = (benchmark, prediction.question_id)
        if key not in wanted:
            problems.append(f"a prediction is for {prediction.question_id!r} of {benchmark}, which is not asked.")
        elif key in known:
            problems.append(f"question {prediction.question_id!r} of {benchmark} has two predictions. Keep one.")
        known[key] = prediction
    if problems:
        more = [f"and {len(problems) - _FEW} more like these."] if len(problems) > _FEW else []
        raise ConfigError(problems[:_FEW] + more)
    return [
        known.get((question.benchmark, question.id))
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
                f"question {question.id!r} is in {of_id[question.id]} and in {question.benchmark}, so its prediction "
                "is ambiguous. Pass the predictions by benchmark: {name: predictions}."
            ])  # fmt: skip
    return [(of_id.get(prediction.question_id, "no benchmark"), prediction) for prediction in predictions]


def check_failed(
    questions: Sequence[Question],
    answers: Sequence[Prediction],
    *,
    allow_failed: bool,
    allowed_by: str | None = None,
) -> None:
    """Raise if questions failed, unless they may count as wrong. `allowed_by` is how the user allows it, if at all."""
    failed: dict[str, list[Prediction]] = defaultdict(list)
    for question, answer in zip(questions, answers, strict=True):
        if answer.error is not None:
            failed[question.benchmark].append(answer)
    if failed and not allow_failed:
        lines = [
            f"{name}: {len(several)} failed, the first is {several[0].question_id!r}: {_cause(several[0])}"
            for name, several in failed.items()
        ]
        allow = f", or allow failed questions ({allowed_by}) to count them as wrong" if allowed_by else ""
        raise RunError(f"some questions have no answer. {'; '.join(lines)}. Ask them again{allow}.")


def _cause(failed: Prediction) -> str:
    """Return why a question failed, without the class of an error meant for users, and without the question's id.

    >>> _cause(Prediction("2", "", None, error="DataError: example '2': image 1 is truncated."))
    'image 1 is truncated'
    """
    text = str(failed.error).removeprefix("DataError: ").removeprefix("RefusedError: ")
    return text.removeprefix(f"example {failed.question_id!r}: ").rstrip(".")


def scorecard_of(
    questions: Sequence[Question],
    answers: Sequence[Prediction],
    verdicts: Sequence[Verdict],
    *,
    marking: Marking,
    suites: Mapping[str, Benchmark] = PUBLISHED,
    made_with: MadeWith | None = None,
) -> Scorecard:
    """Build a scorecard from verdicts; all three sequences are in the order of the questions.

    Within a benchmark, questions are ordered by id, so that scorecards of the same questions have the same tallies.
    """
    scores = {}
    for name, indices in _indices(questions, suites).items():
        scores[name] = _benchmark(
            suites[name],
            marking,
            [questions[index] for index in indices],
            [answers[index] for index in indices],
            [verdicts[index] for index in indices],
        )
    entries = [score.entry for score in scores.values()]
    limits = interval_of_mean(entries, [score.interval for score in scores.values()])
    about = {**(made_with or {}), **marking.about(), "interval": {"method": METHOD, "level": LEVEL}}
    return Scorecard(marking.mode, marking.rules, sum(entries) / len(entries), limits, scores, about)


def _indices(questions: Sequence[Question], suites: Mapping[str, Benchmark]) -> dict[str, list[int]]:
    """Return the indices of each benchmark's questions, in the order of the suites and of the ids."""
    indices: dict[str, list[int]] = defaultdict(list)
    for index, question in enumerate(questions):
        indices[question.benchmark].append(index)
    unknown = [
        f"questions belong to the benchmark {name!r}, which is not known. {did_you_mean(name, suites)}"
        for name in indices
        if name not in suites
    ]
    if unknown or not indices:
        raise ConfigError(unknown or ["there are no questions to score."])
    return {name: sorted(indices[name], key=lambda index: questions[index].id) for name in suites if name in indices}


def _benchmark(
    benchmark: Benchmark,
    marking: Marking,
    questions: Sequence[Question],
    answers: Sequence[Prediction],
    verdicts: Sequence[Verdict],
) -> BenchmarkScore:
    whole = _tally(benchmark, questions, verdicts)
    return BenchmarkScore(
        benchmark.name,
        benchmark.title,
        entry_of(whole),
        interval(estimate([whole])),
        len(questions),
        benchmark.num_questions,
        count(answers, verdicts),
        _metrics(benchmark, whole, questions, verdicts),
        {key: _groups(benchmark, key, questions, verdicts) for key in benchmark.breakdown},
        marking.numbers(benchmark),
        whole,
        mean_tokens(answers),
    )


def count(answers: Sequence[Prediction], verdicts: Sequence[Verdict]) -> Counts:
    """Count the answers that have a problem."""
    answered = [(answer, verdict) for answer, verdict in zip(answers, verdicts, strict=True) if answer.error is None]
    return Counts(
        failed=len(answers) - len(answered),
        unresolved=sum(verdict.found is None for _, verdict in answered),
        truncated=sum(answer.stop == "length" for answer, _ in answered),
        empty=sum(not answer.text.strip() for answer, _ in answered),
        repeated=sum(is_repetitive(_WORD.findall(answer.text[-_LAST_CHARACTERS:])) for answer, _ in answered),
        judged=sum(verdict.by.startswith(JUDGED) for _, verdict in answered),
        judge_failed=sum(verdict.by.startswith(NOT_JUDGED) for _, verdict in answered),
    )


def _groups(
    benchmark: Benchmark, key: str, questions: Sequence[Question], verdicts: Sequence[Verdict]
) -> dict[str, GroupScore]:
    indices: dict[str, list[int]] = defaultdict(list)
    for index, question in enumerate(questions):
        for name in group_names(question, key):
            indices[name].append(index)
    scores = {}
    for name in sorted(indices):
        # Inside a group, a question of several groups counts once.
        inside = [replace(questions[at], groups={**questions[at].groups, key: name}) for at in indices[name]]
        marked = [verdicts[at] for at in indices[name]]
        part = _tally(benchmark, inside, marked)
        scores[name] = GroupScore(entry_of(part), len(indices[name]), _metrics(benchmark, part, inside, marked))
    return scores


def _tally(benchmark: Benchmark, questions: Sequence[Question], verdicts: Sequence[Verdict]) -> Tally:
    is_right, answers = [verdict.is_right for verdict in verdicts], [verdict.found for verdict in verdicts]
    return tally(benchmark, questions, is_right, answers)


def _metrics(
    benchmark: Benchmark, whole: Tally, questions: Sequence[Question], verdicts: Sequence[Verdict]
) -> dict[str, float]:
    """Return the parts of an entry and, with F1, what else is usually reported."""
    if benchmark.aggregation != "f1":
        return metrics_of(whole)
    ratios = f1_ratios(questions, [verdict.found for verdict in verdicts])
    return metrics_of(replace(whole, ratios=ratios))
