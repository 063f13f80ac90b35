"""What several answers to each question show beyond their mean: pass@k, diversity and length.

A model that is trained on its own answers may become less diverse: its mean rises while the best of k answers does not.

pass@k     the probability that at least one of k answers is right, by the unbiased estimator from n answers of which c
           are right: 1 - C(n - c, k) / C(n, k), averaged over single questions, not over units such as rotations.
distinct   how many different answers were read from the n, averaged over questions
entropy    of the answers that were read, in bits, averaged over questions. Both grow with n: compare equal n only.
unread     the share of answers from which nothing was read; they are in neither of the two
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import comb, log2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.types import Prediction, Question, Verdict


@dataclass(frozen=True)
class SeveralAnswers:
    """The measures of one benchmark. `pass_at` is in percent by k; `mean_tokens` is None if no length is known."""

    num_answers: int
    pass_at: Mapping[int, float]
    distinct: float
    entropy: float
    unread: float
    mean_tokens: float | None


def pass_at(k: int, num: int, num_right: int) -> float:
    """Estimate without bias the probability that at least one of k answers is right: `num_right` of `num` are.

    >>> pass_at(1, 4, 1), pass_at(2, 4, 1), pass_at(4, 4, 1), pass_at(2, 4, 0)
    (0.25, 0.5, 1.0, 0.0)
    """
    return 1 - comb(num - num_right, k) / comb(num, k)


def entropy(answers: Sequence[str]) -> float:
    """Return the entropy of answers in bits.

    >>> entropy(["A", "A", "B", "B"]), entropy(["A", "A"]), entropy([])
    (1.0, 0.0, 0.0)
    """
    shares = [count / len(answers) for count in Counter(answers).values()]
    return sum((share * log2(1 / share) for share in shares), 0.0)


def mean_tokens(answers: Sequence[Prediction]) -> float | None:
    """Return the mean length of the answers whose length is known, in tokens."""
    lengths = [answer.num_tokens for answer in answers if answer.error is None and answer.num_tokens is not None]
    return sum(lengths) / len(lengths) if lengths else None


def several_answers(
    questions: Sequence[Question],
    answers: Sequence[Sequence[Prediction]],
    verdicts: Sequence[Sequence[Verdict]],
) -> dict[str, SeveralAnswers]:
    """Measure each benchmark. `answers` and `verdicts` hold one sequence per seed, in the order of the questions."""
    names = dict.fromkeys(question.benchmark for question in questions)
    indices = {name: [at for at, question in enumerate(questions) if question.benchmark == name] for name in names}
    return {
        name: _measure(
            [questions[at] for at in places],
            [[several[at] for several in verdicts] for at in places],
            [several[at] for several in answers for at in places],
        )
        for name, places in indices.items()
    }


def _measure(
    questions: Sequence[Question], by_question: Sequence[Sequence[Verdict]], predictions: Sequence[Prediction]
) -> SeveralAnswers:
    num = len(by_question[0])
    rights = [sum(verdict.is_right for verdict in verdicts) for verdicts in by_question]
    read = [
        [_one_form(question, verdict.found) for verdict in verdicts if verdict.found is not None]
        for question, verdicts in zip(questions, by_question, strict=True)
    ]
    ks = sorted({*(2**power for power in range(num.bit_length()) if 2**power <= num), num})
    return SeveralAnswers(
        num,
        {k: 100 * _mean([pass_at(k, num, right) for right in rights]) for k in ks},
        _mean([len(set(own)) for own in read]),
        _mean([entropy(own) for own in read]),
        1 - sum(map(len, read)) / (num * len(read)),
        mean_tokens(predictions),
    )


def _one_form(question: Question, answer: str) -> str:
    """Return an answer in the form that equal answers share: 1.50 is 1.5, and [1,2] is [1, 2]."""
    if question.kind == "list":
        return "".join(answer.split()).casefold()
    try:
        return str(float(answer)) if question.kind in ("integer", "float") else answer.strip().casefold()
    except ValueError:
        return answer.strip().casefold()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
