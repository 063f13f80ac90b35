"""Asking: questions in, one prediction for each out, in the same order; whoever answers.

    answerer = ModelAnswerer(TransformersEngine(model), processor, name="Qwen3-VL-2B")        # in this process
    answerer = ServerAnswerer("http://localhost:8000/v1", "Qwen/Qwen3-VL-2B-Instruct")        # vLLM and its like
    predictions = ask(questions, answerer, sampling=PAPER_SAMPLING, path="predictions.jsonl")

Answers are written down as they come. A question that cannot be asked is a prediction with an error, and the others
are asked all the same; a model or server that cannot go on is an error, and what it has said is kept.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from vcsd.errors import ConfigError
from vcsd.evaluation.bar import AskingBar
from vcsd.evaluation.predictions import Predictions, answer_key
from vcsd.evaluation.presets import PAPER_SAMPLING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from vcsd.evaluation.question import Prediction, Question
    from vcsd.rollout.sampling import Sampling


class Answerer(Protocol):
    """A model that answers questions, wherever it runs."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything about the model and its inputs that an answer depends on, as plain JSON."""
        ...

    def answer(
        self, questions: Sequence[Question], sampling: Sampling, *, seed: int
    ) -> Iterator[tuple[int, Prediction]]:
        """Answer every question once, in any order: its place in the sequence, and the prediction."""
        ...


def ask(
    questions: Sequence[Question],
    answerer: Answerer,
    *,
    sampling: Sampling = PAPER_SAMPLING,
    path: str | PathLike[str] | None = None,
    seed: int = 0,
    bar: AskingBar | None = None,
) -> list[Prediction]:
    """One prediction per question, in order. What `path` holds of the same way of asking is not asked."""
    _refuse_doubles(questions)
    known, asker = Predictions(path), dict(answerer.identity)
    keys = [answer_key(question, sampling, asker=asker, seed=seed) for question in questions]
    found = [known.find(question, key) for question, key in zip(questions, keys, strict=True)]
    todo = [place for place, prediction in enumerate(found) if prediction is None or prediction.error is not None]
    with AskingBar(None) if bar is None else bar as shown:
        shown.begin(len(questions) - len(todo), len(questions))
        for number, prediction in answerer.answer([questions[place] for place in todo], sampling, seed=seed):
            place = todo[number]
            known.add(questions[place], keys[place], prediction)
            found[place] = prediction
            shown.step(is_failed=prediction.error is not None)
    missing = [question.id for question, prediction in zip(questions, found, strict=True) if prediction is None]
    assert not missing, f"{type(answerer).__name__} left {len(missing)} questions without a prediction: {missing[:3]}"
    return [prediction for prediction in found if prediction is not None]


def _refuse_doubles(questions: Sequence[Question]) -> None:
    """Answers are found by benchmark and question id: two questions of one name would share an answer."""
    counts = Counter((question.benchmark, question.id) for question in questions)
    twice = [f"{benchmark} {name!r}" for (benchmark, name), count in counts.items() if count > 1]
    if twice:
        raise ConfigError(
            [f"{len(twice)} questions have the name of another one, such as {twice[0]}. Make ids unique."]
        )
