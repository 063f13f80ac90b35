"""A model in this process as an answerer: the engine that draws rollouts in training draws the answers.

The model may be one that is being trained: its train and eval modes are restored, no gradient is kept, and the random
generators of Python, NumPy and torch are left as they were.
"""

from __future__ import annotations

import hashlib
import random
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vcsd.errors import ConfigError, DataError
from vcsd.evaluation.question import Prediction
from vcsd.models.processor import PROCESSOR_FILES, encode
from vcsd.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from vcsd.evaluation.question import Question
    from vcsd.models.processor import Encoded, Processor
    from vcsd.rollout.sampling import Sampling
    from vcsd.rollout.transformers import TransformersEngine

BATCH_SIZE = 64
BATCH_BYTES = 2**31
"""A batch ends when the pixels of its questions reach this size: sixty 8K images would fill a machine's memory."""

WEIGHT_FILES = ("config.json", "generation_config.json", "*.safetensors", "*.bin")


class ModelAnswerer:
    """Answers with an engine. `name` is the model's identity: the same name must mean the same weights."""

    def __init__(
        self,
        engine: TransformersEngine,
        processor: Processor,
        *,
        name: str,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        max_prompt_tokens: int | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        self._engine, self._processor, self._batch_size = engine, processor, batch_size
        self._settings: dict[str, Any] = {
            "max_tokens": max_prompt_tokens,
            "chat_template_kwargs": dict(chat_template_kwargs or {}),
        }
        self._name = name

    @property
    def identity(self) -> dict[str, Any]:
        """The model's name, its precision, and how large it sees."""
        size = getattr(self._processor.image_processor, "size", None)
        dtype = self._engine.compute_dtype or self._engine.base.dtype
        return {"model": self._name, "dtype": str(dtype), "image_size": str(size), **self._settings}

    def answer(
        self, questions: Sequence[Question], sampling: Sampling, *, seed: int
    ) -> Iterator[tuple[int, Prediction]]:
        """Answer in batches: what cannot be encoded fails alone."""
        batch: dict[int, Encoded] = {}
        for place, question in enumerate(questions):
            try:
                batch[place] = self._encode(question)
            except DataError as error:
                yield place, _failed(question, error)
                continue
            if len(batch) >= self._batch_size or sum(map(_num_bytes, batch.values())) >= BATCH_BYTES:
                yield from self._draw(questions, batch, sampling, seed)
                batch = {}
        yield from self._draw(questions, batch, sampling, seed)

    def _encode(self, question: Question) -> Encoded:
        shown = VIEWS["original"](question.example)
        return encode(self._processor, shown, **self._settings)

    def _draw(
        self, questions: Sequence[Question], batch: Mapping[int, Encoded], sampling: Sampling, seed: int
    ) -> Iterator[tuple[int, Prediction]]:
        if not batch:
            return
        try:
            with same_randomness():
                sampled = self._engine.sample(list(batch.values()), sampling, num_rollouts=1, seed=seed)
        except torch.OutOfMemoryError as error:
            lack = error
        else:
            for place, rollout in zip(batch, sampled.rollouts, strict=True):
                text = self._processor.tokenizer.decode(list(rollout.token_ids), skip_special_tokens=True)
                yield place, Prediction(questions[place].id, text, rollout.stop, len(rollout.token_ids))
            return
        torch.cuda.empty_cache()
        for place, encoded in batch.items():
            if len(batch) > 1:
                yield from self._draw(questions, {place: encoded}, sampling, seed)
            else:
                yield place, _failed(questions[place], lack)


def _failed(question: Question, error: Exception) -> Prediction:
    return Prediction(question.id, "", stop=None, error=f"{type(error).__name__}: {error}")


def _num_bytes(encoded: Encoded) -> int:
    return 0 if encoded.pixel_values is None else encoded.pixel_values.nbytes


@contextmanager
def same_randomness() -> Iterator[None]:
    """Leave every global random generator as it was found."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def folder_identity(folder: str | PathLike[str]) -> str:
    """A hash of a model folder's weights, configuration and processor: equal for copies, other after any change."""
    folder = Path(folder)
    patterns = (*WEIGHT_FILES, *PROCESSOR_FILES)
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if not any(path.suffix in (".safetensors", ".bin") for path in paths):
        raise ConfigError([f"{folder} holds no weights (*.safetensors). Give the folder of a model."])
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(f"{path.relative_to(folder)} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()[:32]
