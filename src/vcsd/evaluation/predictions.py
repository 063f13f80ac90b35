"""Predictions on disk: an append-only file in which an answer belongs to a question and to how it was asked.

A record is found again by benchmark, question and key. The key is a hash of everything that the answer depends on:
the model, the messages, the pixels, the sampling values and, where tokens are drawn, the seed. So an interrupted run
goes on where it stopped, and nothing that was changed since is answered from the past. A failed question is on record
too, but is asked again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL.Image import Image

from vcsd.errors import ConfigError
from vcsd.evaluation.question import Prediction
from vcsd.monitor.lines import Lines, read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from vcsd.evaluation.question import Question
    from vcsd.rollout.sampling import Sampling


class Predictions:
    """The answers of a file, and the place for more. With no path they are kept in memory alone.

    >>> import tempfile
    >>> from vcsd.evaluation.question import Question
    >>> from vcsd.types import Example
    >>> example = Example("0", [], [{"role": "user", "content": "Is it red?"}])
    >>> question = Question(example, benchmark="toy", kind="yes_no", gold="Yes")
    >>> path = Path(tempfile.mkdtemp()) / "predictions.jsonl"
    >>> Predictions(path).add(question, "k1", Prediction("0", "Yes.", stop="end", num_tokens=2))
    >>> Predictions(path).find(question, "k1").text, Predictions(path).find(question, "k2")
    ('Yes.', None)
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self._lines = None if path is None else Lines(path)
        self._found: dict[tuple[str, str, str], Prediction] = {}
        for number, record in enumerate(() if path is None else read_lines(path), start=1):
            try:
                place = (record["benchmark"], record["question"], record["key"])
                said = {name: record[name] for name in ("text", "stop", "num_tokens", "error")}
            except KeyError as error:
                raise ConfigError(
                    [f"{path}, record {number} has no {error}: it holds no predictions. Choose another file."]
                ) from error
            if not all(isinstance(word, str) for word in (*place, said["text"])):
                raise ConfigError([f"{path}, record {number} holds no prediction. Mend or remove the line."])
            self._found[place] = Prediction(record["question"], **said)

    def __len__(self) -> int:
        return len(self._found)

    def find(self, question: Question, key: str) -> Prediction | None:
        """The latest answer to a question that was asked in this way."""
        return self._found.get((question.benchmark, question.id, key))

    def add(self, question: Question, key: str, prediction: Prediction) -> None:
        """Write an answer down at once: a kill right after this loses nothing."""
        assert prediction.question_id == question.id, f"{prediction.question_id!r} answers {question.id!r}"
        self._found[question.benchmark, question.id, key] = prediction
        if self._lines is not None:
            said = asdict(prediction)
            del said["question_id"]
            self._lines.append({"benchmark": question.benchmark, "question": question.id, "key": key, **said})


def answer_key(question: Question, sampling: Sampling, *, asker: Mapping[str, Any], seed: int) -> str:
    """A hash of what an answer depends on. `asker` says which model is asked, and how it is shown things.

    Greedy answers do not depend on the seed, so it does not count there.
    """
    asked = {
        "asker": asker,
        "prompt": [dict(message) for message in question.example.prompt],
        "images": [image_identity(image) for image in question.example.images],
        "sampling": asdict(sampling),
        "seed": seed if sampling.temperature else None,
    }
    text = json.dumps(asked, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def image_identity(image: Any) -> str:
    """What makes an image this image: where it is stored in a known file, or a hash of its content."""
    if isinstance(image, Image):
        digest = hashlib.sha256(f"{image.mode} {image.size} ".encode() + image.tobytes())
        return digest.hexdigest()[:32]
    stored = getattr(image, "identity", None)
    if stored is not None:
        return str(stored)
    try:
        with Path(image).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError:
        return f"unreadable {image}"
