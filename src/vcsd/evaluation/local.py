"""A model in this process as an answerer: the engine that draws rollouts in training draws the answers.

The model may be one that is being trained: its train and eval modes are restored, no gradient is kept, and the random
generators of Python, NumPy and torch are left as they were.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vcsd.errors import ConfigError, DataError, RunError
from vcsd.evaluation.question import Prediction
from vcsd.models.encode import encode
from vcsd.models.processor import PROCESSOR_FILES
from vcsd.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from vcsd.evaluation.question import Question
    from vcsd.models.encode import Encoded
    from vcsd.models.processor import Processor
    from vcsd.rollout.sampling import Sampling
    from vcsd.rollout.transformers import TransformersEngine

BATCH_SIZE = 64
BATCH_TOKENS = 2**16
"""A batch ends when its prompts reach this length: sixty 8K images at once would fill the memory of any machine."""

NUM_READERS = 4
"""Threads that open and resize images while a GPU answers. Each may hold an 8K image, of 400 MB as patches."""

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
        num_readers: int | None = None,
    ) -> None:
        self._engine, self._processor, self._batch_size = engine, processor, batch_size
        is_cuda = engine.base.device.type == "cuda"
        self._num_readers = num_readers or (NUM_READERS if is_cuda else 1)
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
        for place, found in enumerate(self._read_ahead(questions)):
            if isinstance(found, Prediction):
                yield place, found
                continue
            batch[place] = found
            if len(batch) >= self._batch_size or sum(map(len, batch.values())) >= BATCH_TOKENS:
                yield from self._draw(questions, batch, sampling, seed)
                batch = {}
        yield from self._draw(questions, batch, sampling, seed)

    def _read_ahead(self, questions: Sequence[Question]) -> Iterator[Encoded | Prediction]:
        """Encoded questions in order, or failures; the next few are made meanwhile."""
        with ThreadPoolExecutor(self._num_readers) as pool:
            rest, ahead = iter(questions), deque[Future["Encoded | Prediction"]]()
            try:
                ahead.extend(pool.submit(self._encode, question) for question in islice(rest, 2 * self._num_readers))
                while ahead:
                    found = ahead.popleft().result()
                    ahead.extend(pool.submit(self._encode, question) for question in islice(rest, 1))
                    yield found
            finally:
                for future in ahead:
                    future.cancel()

    def _encode(self, question: Question) -> Encoded | Prediction:
        try:
            shown = VIEWS["original"](question.example)
            return encode(self._processor, shown, **self._settings)
        except DataError as error:
            return _failed(question, error)

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
                if rollout.stop == "broken":
                    yield place, _failed(questions[place], RunError("the model's logits are not finite."))
                    continue
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
