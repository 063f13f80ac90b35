"""Answers questions with a model in this process, through the engine that draws rollouts in training.

For contrast decoding, whose engine has a `method`, each question is encoded with its image and with the control.

This is safe in the middle of training: the model's train and eval modes are restored, no gradient is kept, and the
random generators of Python, NumPy and torch are restored.

A template that begins the answer with `<think>`, as Qwen3.5's does, leaves the tag in the prompt. It is put back before
the answer: thinking that is cut off would otherwise be taken for an answer.
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
from vcsd.models.encode import encode
from vcsd.models.messages.prompt_length import longest_prompt, longest_within
from vcsd.models.processor import PROCESSOR_FILES
from vcsd.rollout.contrast_engine import pair
from vcsd.rollout.vllm.vllm_requests import RequestRefusedError
from vcsd.types import Prediction, Rollout
from vcsd.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from os import PathLike

    from vcsd.method import Method
    from vcsd.models.packed.packing import Prompt
    from vcsd.models.processor import Processor
    from vcsd.rollout.engine import TransformersEngine
    from vcsd.rollout.fixed.proven_answers import PairAnswers, ProvenAnswers
    from vcsd.rollout.fixed.served_answers import ServedAnswers
    from vcsd.rollout.sampling import Sampling
    from vcsd.types import JsonObject, Question

BATCH_SIZE = 64
BATCH_TOKENS = 2**16
"""A batch ends when its prompts reach this length: sixty 8K images at once would fill the memory of any machine."""

THOUGHT = "<think>"
_LAST_TOKENS = 8
"""Tokens at the end of a prompt; enough for the tag in any tokenizer and the white space after it."""

NUM_READERS = 4
"""Threads that open and resize images while a GPU answers. Each may hold an 8K image, which takes 400 MB as patches."""


class ModelAnswerer:
    """Answers with an engine. `name` identifies the weights: the same name must mean the same weights.

    `prompt_of` replaces the encoding of a question, for callers that ask several models the same questions and keep
    the prompts. `identity` replaces the identity that the keys of stored answers are made from.
    """

    def __init__(
        self,
        engine: TransformersEngine | ProvenAnswers | PairAnswers | ServedAnswers,
        processor: Processor,
        *,
        name: str,
        chat_template_kwargs: Mapping[str, object] | None = None,
        batch_size: int = BATCH_SIZE,
        num_readers: int | None = None,
        prompt_of: Callable[[Question], Prompt] | None = None,
        identity: JsonObject | None = None,
    ) -> None:
        self._engine, self._processor, self._batch_size, self._name = engine, processor, batch_size, name
        is_cuda = engine.base.device.type == "cuda"
        self._num_readers = num_readers or (NUM_READERS if is_cuda else 1)
        self._switches = dict(chat_template_kwargs or {})
        self._contrast: Method | None = getattr(engine, "method", None)
        self._prompt_of = prompt_of
        self._identity = identity
        self._opens_thought: bool | None = None
        """Whether prompts end with an open thought; None before the first prompt."""

    @property
    def identity(self) -> dict[str, object]:
        """The model's name, its precision, its image size, the prompt settings, and the method of contrast decoding."""
        if self._identity is not None:
            return dict(self._identity)
        size = getattr(self._processor.image_processor, "size", None)
        dtype = self._engine.compute_dtype or self._engine.base.dtype
        settings = {"max_tokens": None, "chat_template_kwargs": self._switches}
        contrast = {} if self._contrast is None else {"contrast": repr(self._contrast)}
        label = getattr(self._engine, "label", None)
        engine = {} if label is None else {"engine": label}
        return {"model": self._name, "dtype": str(dtype), "image_size": str(size), **settings, **contrast, **engine}

    def answer(
        self, questions: Sequence[Question], sampling: Sampling, *, seed: int
    ) -> Iterator[tuple[int, Prediction]]:
        """Yield each question's index and prediction. One that cannot be encoded or drawn does not stop the others."""
        for index, drawn in self.rollouts(questions, sampling, seed=seed):
            yield index, self._prediction(questions[index].id, drawn)

    def rollouts(
        self, questions: Sequence[Question], sampling: Sampling, *, seed: int
    ) -> Iterator[tuple[int, Rollout | Exception]]:
        """Yield each question's index and its rollout or error; for callers that need the token ids."""
        batch: dict[int, Prompt] = {}
        num_tokens = 0
        for index, prompt in enumerate(self._read_ahead(questions)):
            if isinstance(prompt, DataError):
                yield index, prompt
                continue
            if self._opens_thought is None:
                self._opens_thought = self._ends_in_thought(prompt)
            batch[index] = prompt
            num_tokens += len(prompt.input_ids)
            if len(batch) >= self._batch_size or num_tokens >= BATCH_TOKENS:
                yield from self._draw(batch, sampling, seed)
                batch, num_tokens = {}, 0
        yield from self._draw(batch, sampling, seed)

    def _prediction(self, question_id: str, drawn: Rollout | Exception) -> Prediction:
        if isinstance(drawn, Rollout) and drawn.stop in ("end", "length"):
            text = self._processor.tokenizer.decode(list(drawn.token_ids), skip_special_tokens=True)
            text = f"{THOUGHT}{text}" if self._opens_thought else text
            return Prediction(question_id, text, drawn.stop, len(drawn.token_ids))
        error = self._failure(drawn) if isinstance(drawn, Rollout) else drawn
        return Prediction(question_id, "", stop=None, error=f"{type(error).__name__}: {error}")

    def _ends_in_thought(self, prompt: Prompt) -> bool:
        end = self._processor.tokenizer.decode(list(prompt.input_ids[-_LAST_TOKENS:]), skip_special_tokens=False)
        return str(end).rstrip().endswith(THOUGHT)

    def _failure(self, rollout: Rollout) -> RunError:
        """Return the error for a rollout that is not an answer."""
        if rollout.stop == "broken":
            return RunError("the model's logits are not finite.")
        return RunError(
            f"its response was cut off after {len(rollout.token_ids)} tokens: the engine has room for {self._room()} "
            "tokens of prompt and response. Lower the limit of new tokens, lower max_pixels, or give vLLM more memory."
        )

    def _room(self) -> int | None:
        """The longest prompt with its response, in tokens, for engines with a limit besides the model's."""
        room: int | None = getattr(self._engine, "room", None)
        return room

    def _read_ahead(self, questions: Sequence[Question]) -> Iterator[Prompt | DataError]:
        """Encode the questions in order, a few of them ahead of time in other threads."""
        with ThreadPoolExecutor(self._num_readers) as pool:
            rest, ahead = iter(questions), deque[Future["Prompt | DataError"]]()
            try:
                ahead.extend(pool.submit(self._prompt, question) for question in islice(rest, 2 * self._num_readers))
                while ahead:
                    prompt = ahead.popleft().result()
                    ahead.extend(pool.submit(self._prompt, question) for question in islice(rest, 1))
                    yield prompt
            finally:
                for future in ahead:
                    future.cancel()

    def _prompt(self, question: Question) -> Prompt | DataError:
        try:
            if self._prompt_of is not None:
                return self._prompt_of(question)
            limits = (longest_prompt(self._engine.base.config, 1), longest_within(self._room(), 1))
            limit = min((one for one in limits if one is not None), default=None)
            return encode_question(question, self._processor, self._contrast, self._switches, max_tokens=limit)
        except DataError as error:
            return error

    def _draw(
        self, batch: Mapping[int, Prompt], sampling: Sampling, seed: int
    ) -> Iterator[tuple[int, Rollout | Exception]]:
        """Draw a batch; question by question if it does not fit into memory, or if one of them is refused."""
        if not batch:
            return
        try:
            with same_randomness():
                sampled = self._engine.sample(list(batch.values()), sampling, num_rollouts=1, seed=seed)
        except (torch.OutOfMemoryError, RequestRefusedError) as error:
            failure = error.with_traceback(None)  # the traceback keeps the batch's tensors in memory
        else:
            yield from zip(batch, sampled.rollouts, strict=True)
            return
        torch.cuda.empty_cache()
        for index, prompt in batch.items():
            if len(batch) > 1:
                yield from self._draw({index: prompt}, sampling, seed)
            else:
                yield index, failure


def encode_question(
    question: Question,
    processor: Processor,
    contrast: Method | None = None,
    chat_template_kwargs: Mapping[str, object] | None = None,
    *,
    max_tokens: int | None = None,
) -> Prompt:
    """Encode a question; for contrast decoding, as the pair of views that the method compares."""
    settings: dict[str, Any] = {"max_tokens": max_tokens, "chat_template_kwargs": chat_template_kwargs}
    if contrast is not None:
        return pair(question.example, contrast, processor, **settings)
    return encode(processor, VIEWS["original"](question.example), **settings)


@contextmanager
def same_randomness() -> Iterator[None]:
    """Restore every global random generator afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def folder_identity(folder: str | PathLike[str]) -> str:
    """Hash a model folder's weights, configuration and processor: equal for copies, different after any change."""
    folder = Path(folder)
    patterns = ("config.json", "generation_config.json", "*.safetensors", "*.bin", *PROCESSOR_FILES)
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if not any(path.suffix in (".safetensors", ".bin") for path in paths):
        raise ConfigError([f"{folder} holds no weights (*.safetensors). Pass the folder of a model."])
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            digest.update(f"{path.relative_to(folder)} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()[:32]
