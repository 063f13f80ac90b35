"""Asks a model questions: one prediction per question, in the same order, for any answerer.

    answerer = ModelAnswerer(TransformersEngine(model), processor, name="Qwen3-VL-2B")              # in this process
    answerer = ServerAnswerer(ChatClient("http://localhost:8000/v1"), "Qwen/Qwen3-VL-2B-Instruct")  # vLLM and others
    predictions = ask(questions, answerer, sampling=PAPER_SAMPLING, path="predictions.jsonl")

Answers are stored as they arrive. A question that cannot be asked gets a prediction with the error, and the others are
still asked. If the model or server fails altogether, an error is raised; the answers so far are kept.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from vcsd.errors import ConfigError
from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.evaluation.asking.predictions import PredictionFile, answer_key
from vcsd.evaluation.asking.presets import PAPER_SAMPLING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from vcsd.rollout.sampling import Sampling
    from vcsd.types import Prediction, Question


class Answerer(Protocol):
    """A model that answers questions, wherever it runs."""

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything about the model and its inputs that an answer depends on, as JSON values."""
        ...

    def answer(
        self, questions: Sequence[Question], sampling: Sampling, *, seed: int
    ) -> Iterator[tuple[int, Prediction]]:
        """Answer every question once, in any order; yield its index and the prediction."""
        ...


def ask(
    questions: Sequence[Question],
    answerer: Answerer,
    *,
    sampling: Sampling = PAPER_SAMPLING,
    path: str | PathLike[str] | None = None,
    seed: int = 0,
    keys: Sequence[str] | None = None,
    bar: AskingBar | None = None,
) -> list[Prediction]:
    """Return one prediction per question, in order. Answers in `path` that were asked in the same way are reused.

    `keys` are the answers' keys, for callers that have computed them.
    """
    _refuse_duplicates(questions)
    stored, asker = PredictionFile(path), dict(answerer.identity)
    if keys is None:
        keys = [answer_key(question, sampling, asker=asker, seed=seed) for question in questions]
    predictions = [stored.find(question, key) for question, key in zip(questions, keys, strict=True)]
    todo = [index for index, known in enumerate(predictions) if known is None or known.error is not None]
    with AskingBar(None) if bar is None else bar as progress:
        progress.begin(len(questions) - len(todo), len(questions))
        for number, prediction in answerer.answer([questions[index] for index in todo], sampling, seed=seed):
            index = todo[number]
            stored.add(questions[index], keys[index], prediction)
            predictions[index] = prediction
            progress.step(is_failed=prediction.error is not None)
    missing = [question.id for question, known in zip(questions, predictions, strict=True) if known is None]
    assert not missing, f"{type(answerer).__name__} left {len(missing)} questions without a prediction: {missing[:3]}"
    return [prediction for prediction in predictions if prediction is not None]


def _refuse_duplicates(questions: Sequence[Question]) -> None:
    """Raise if two questions share an id: answers are stored by benchmark and question id."""
    counts = Counter((question.benchmark, question.id) for question in questions)
    repeated = [f"{benchmark} {name!r}" for (benchmark, name), count in counts.items() if count > 1]
    if repeated:
        raise ConfigError([f"{len(repeated)} question ids are not unique, such as {repeated[0]}. Make ids unique."])
