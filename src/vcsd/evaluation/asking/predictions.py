"""Predictions on disk: an append-only file that stores each answer with its question and how it was asked.

A record is identified by benchmark, question and key. The key is a hash of everything that the answer depends on: the
model, the messages, the pixels, the sampling values and, where tokens are drawn, the seed. So an interrupted run
resumes where it stopped, and a changed setting never reuses an old answer. A failed question is recorded too, and is
asked again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.errors import ConfigError
from vcsd.monitor.lines import Lines, read_lines
from vcsd.types import Prediction
from vcsd.views.image_hash import image_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike

    from vcsd.rollout.sampling import Sampling
    from vcsd.types import Question


_MOST_TOKENS = 2**31


class PredictionFile:
    """The answers in a file, to which new ones are appended. Without a path, they are kept in memory only.

    >>> import tempfile
    >>> from vcsd.types import Example, Question
    >>> example = Example("0", [], [{"role": "user", "content": "Is it red?"}])
    >>> question = Question(example, benchmark="toy", kind="yes_no", gold="Yes")
    >>> path = Path(tempfile.mkdtemp()) / "predictions.jsonl"
    >>> PredictionFile(path).add(question, "k1", Prediction("0", "Yes.", stop="end", num_tokens=2))
    >>> PredictionFile(path).find(question, "k1").text, PredictionFile(path).find(question, "k2")
    ('Yes.', None)
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self._lines = None if path is None else Lines(path)
        self._stored: dict[tuple[str, str, str], Prediction] = {}
        self._latest: dict[tuple[str, str], Prediction] = {}
        for number, record in enumerate(() if path is None else read_lines(path), start=1):
            try:
                name = (record["benchmark"], record["question"], record["key"])
                fields = {field: record[field] for field in ("text", "stop", "num_tokens", "error")}
            except KeyError as error:
                raise ConfigError(
                    [f"{path}, record {number} has no {error}: this is not a file of predictions. Choose another file."]
                ) from error
            if not all(isinstance(value, str) for value in (*name, fields["text"])) or not _is_sound(**fields):
                raise ConfigError([f"{path}, record {number} is not a prediction. Correct or remove the line."])
            self._stored[name] = self._latest[name[:2]] = Prediction(record["question"], **fields)

    def find(self, question: Question, key: str) -> Prediction | None:
        """Return the latest answer to a question with this key."""
        return self._stored.get((question.benchmark, question.id, key))

    def latest(self, question: Question) -> Prediction | None:
        """Return the latest answer to a question, however it was asked."""
        return self._latest.get((question.benchmark, question.id))

    def add(self, question: Question, key: str, prediction: Prediction) -> None:
        """Store an answer at once: a kill right after this call loses nothing."""
        assert prediction.question_id == question.id, f"{prediction.question_id!r} answers {question.id!r}"
        self._stored[question.benchmark, question.id, key] = prediction
        self._latest[question.benchmark, question.id] = prediction
        if self._lines is not None:
            fields = asdict(prediction)
            del fields["question_id"]
            self._lines.append({"benchmark": question.benchmark, "question": question.id, "key": key, **fields})


def _is_sound(text: str, stop: object, num_tokens: object, error: object) -> bool:
    """Whether the fields of a record have the right types. An impossible length would spoil the mean."""
    is_length = num_tokens is None or (type(num_tokens) is int and 0 <= num_tokens < _MOST_TOKENS)
    return is_length and stop in ("end", "length", None) and isinstance(error, str | None)


def answer_key(
    question: Question,
    sampling: Sampling,
    *,
    asker: Mapping[str, object],
    seed: int,
    images: Sequence[str] | None = None,
) -> str:
    """Hash everything that an answer depends on. `asker` is the identity of the answerer.

    Greedy answers do not depend on the seed, so it is not part of their key. `images` are the identities of the
    question's images, for callers that have computed them.
    """
    content = {
        "asker": asker,
        "prompt": [dict(message) for message in question.example.prompt],
        "images": [image_identity(image) for image in question.example.images] if images is None else list(images),
        "sampling": asdict(sampling),
        "seed": seed if sampling.temperature else None,
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def questions_checksum(questions: Iterable[Question]) -> str:
    """Compute an MD5 of questions with their answers and images."""
    digest = hashlib.md5(usedforsecurity=False)
    for question in questions:
        images = [image_identity(image) for image in question.example.images]
        digest.update(f"{question.id} {question.gold} {question.example.prompt} {images}\n".encode())
    return digest.hexdigest()


def image_identity(image: Image | str | PathLike[str]) -> str:
    """Identify an image: by its position in a file with a checksum, or by a hash of its content."""
    if isinstance(image, Image):
        return image_hash(image)
    stored = getattr(image, "identity", None)
    if stored is not None:
        return str(stored)
    try:
        with Path(image).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError:
        return f"unreadable {image}"
