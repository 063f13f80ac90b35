"""Answers questions with a server: vLLM, or any other with OpenAI's chat completions and images as data URLs.

Every sampling value is sent, even if it is off: a server would take missing values from the model's generation config,
which would change the experiment. Requests run in parallel, and the server batches them.
"""

from __future__ import annotations

import base64
import io
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PIL import Image

from vcsd.errors import ConfigError, DataError, RunError, did_you_mean
from vcsd.evaluation.asking.chat import ChatClient, RefusedError
from vcsd.evaluation.asking.model_answerer import folder_identity
from vcsd.evaluation.asking.side_by_side import SideBySide
from vcsd.models.messages.control_tokens import served_control_token
from vcsd.types import Prediction, message_texts
from vcsd.views.original import load_image, open_image

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from vcsd.evaluation.asking.chat import Completion
    from vcsd.rollout.sampling import Sampling
    from vcsd.types import Message, Question

log = logging.getLogger(__name__)

CONCURRENCY = 32
MAX_REFUSED = 16
"""This many refusals before the first answer stop the run: the cause cannot be a single question."""

_LONGEST_NAME, _MOST_NAMES = 200, 1000
"""Limits on the names that a server lists, for suggesting one of them."""

_LONGEST_ROOT = 1000
_SENT_AS_IS = ("JPEG", "PNG", "WEBP")
_ORIENTATION = 0x0112
_STOPS: dict[str | None, Literal["end", "length"]] = {"stop": "end", "length": "length"}


class ServerAnswerer:
    """Answers with the model that a server lists as `model`. A name that is not listed raises an error at once."""

    def __init__(
        self,
        client: ChatClient,
        model: str,
        *,
        chat_template_kwargs: Mapping[str, object] | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self._client, self._model, self._concurrency = client, model, concurrency
        self._switches = dict(chat_template_kwargs or {})
        self._served = _served(client, model)

    @property
    def identity(self) -> dict[str, object]:
        """The model's name and, if the server lists it, its root; for a local folder, a hash of the weights instead."""
        return {"server": self._client.url, "model": self._model, **self._served, "switches": self._switches}

    def answer(
        self, questions: Sequence[Question], sampling: Sampling, *, seed: int
    ) -> Iterator[tuple[int, Prediction]]:
        """Yield predictions as they arrive. When the server fails, requests under way may still yield answers."""
        if num_withheld := sum(_control_token(question) is not None for question in questions):
            log.warning(
                "%d of %d questions were not sent: they contain control tokens, which a server would not read as text.",
                *(num_withheld, len(questions)),
            )
        fatal: RunError | None = None
        refused, num_answered = [], 0
        work = SideBySide(lambda question: self._ask(question, sampling, seed), questions, self._concurrency)
        with work:
            for index, prediction, error in work:
                if isinstance(error, RunError):
                    fatal = fatal or error
                    work.begin_no_more()
                    continue
                if prediction is None:
                    assert error is not None
                    raise error
                yield index, prediction
                refused += [prediction.error] if (prediction.error or "").startswith(RefusedError.__name__) else []
                num_answered += prediction.error is None
                if not num_answered and len(refused) >= MAX_REFUSED and fatal is None:
                    fatal = RunError(f"{self._client.url} refused the first {len(refused)} questions: {refused[-1]}")
                    work.begin_no_more()
        if fatal is not None:
            raise fatal

    def _ask(self, question: Question, sampling: Sampling, seed: int) -> Prediction:
        try:
            request = self._request(question, sampling, seed)
            completion = self._client.complete(request)
        except (DataError, RefusedError) as error:
            return Prediction(question.id, "", stop=None, error=f"{type(error).__name__}: {error}")
        stop = _STOPS.get(completion.reason)
        problem = None if stop else f"the server ended the answer with finish_reason {completion.reason!r}"
        return Prediction(question.id, self._with_thought(completion), stop, completion.num_tokens, problem)

    def _with_thought(self, completion: Completion) -> str:
        """Return the text, with `<think>` before thinking that was cut off: the template may have put it in the prompt.

        A text whose thinking the server separated has the tags already. A server that does not separate it sends none.
        """
        is_cut = completion.reason == "length" and self._switches.get("enable_thinking") is True
        has_tags = "<think>" in completion.text or "</think>" in completion.text
        return f"<think>{completion.text}" if is_cut and not has_tags else completion.text

    def _request(self, question: Question, sampling: Sampling, seed: int) -> dict[str, object]:
        if token := _control_token(question):
            raise DataError(
                question.id,
                f"its text contains {token!r}, which a server reads as a control token. It was not sent. To keep it as "
                "text, ask the model's folder, without --server.",
            )
        images = iter([data_url(question.id, image) for image in question.example.images])
        request: dict[str, object] = {
            "model": self._model,
            "messages": [_message(message, images) for message in question.example.prompt],
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1 if sampling.top_k is None else sampling.top_k,
            "min_p": sampling.min_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "n": 1,
            "seed": seed,
        }
        return {**request, "chat_template_kwargs": self._switches} if self._switches else request


def _control_token(question: Question) -> str | None:
    """Return a control token in the texts of a question, each alone or joined; None if there is none."""
    return served_control_token("".join(text for message in question.example.prompt for text in message_texts(message)))


def _served(client: ChatClient, model: str) -> dict[str, str]:
    """Return the root or weights that the server lists for the model; raise if it does not serve the model."""
    models = client.models()
    if models is None:
        return {}
    by_name = {str(listed.get("id")): listed for listed in models}
    if model not in by_name:
        names = [name for name in by_name if len(name) <= _LONGEST_NAME][:_MOST_NAMES]
        raise ConfigError([f"{client.url} does not serve {model!r}. {did_you_mean(model, names)}"])
    root = by_name[model].get("root")
    if not isinstance(root, str) or len(root) > _LONGEST_ROOT:
        return {}
    return {"weights": folder_identity(root)} if Path(root).is_dir() else {"root": root}


def _message(message: Message, images: Iterator[str]) -> dict[str, object]:
    parts = [
        {"type": "image_url", "image_url": {"url": next(images)}} if part["type"] == "image" else dict(part)
        for part in message["content"]
    ]
    return {**message, "content": parts}


def data_url(question_id: str, source: Image.Image | str | PathLike[str]) -> str:
    """Return an image as a data URL: the file's own bytes if every decoder reads them alike, else an RGB PNG."""
    if not isinstance(source, Image.Image):
        content = _content(question_id, source)
        kind = _plain_format(content)
        if kind is not None:
            return f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}"
    written = io.BytesIO()
    load_image(question_id, source).save(written, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"


def _content(question_id: str, source: str | PathLike[str]) -> bytes:
    try:
        return bytes(source.read()) if hasattr(source, "read") else Path(source).read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(question_id, f"the image '{source}' cannot be read: {error}.") from error


def _plain_format(content: bytes) -> str | None:
    """Return the format of an upright RGB image, which a server decodes as this package does; None for others."""
    try:
        with open_image(io.BytesIO(content)) as image:
            is_plain = image.mode == "RGB" and image.getexif().get(_ORIENTATION, 1) == 1
            is_plain = is_plain and not image.has_transparency_data and getattr(image, "n_frames", 1) == 1
            return image.format if is_plain and image.format in _SENT_AS_IS else None
    except Exception:  # load_image reports what is wrong
        return None
