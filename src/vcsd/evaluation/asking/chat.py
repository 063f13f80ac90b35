"""A client for OpenAI-compatible servers: one request at a time, retried with growing pauses.

Retried: no response, a time-out, status 408, 409, 425, 429 or 5xx, and a response that is not a completion.
RefusedError   the server refuses this one request (400, 413, 422); other requests may work
GaveUpError    every try failed, because of this request or because the server is down (`judge_client.py` finds out)
RunError       the server cannot be used: wrong key, unknown model, a redirect, answers that are too slow or too large

The server is not trusted. Its answers are limited in bytes and time, and the keys that it was sent are masked in them.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.asking.address import Address, Secrets
from vcsd.evaluation.asking.transport import MAX_BYTES, TooLargeError, TooSlowError, Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vcsd.evaluation.asking.transport import Reply

T = TypeVar("T")

NUM_TRIES = 6
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
TIMEOUT = 1800.0
"""Seconds for one whole answer: thousands of tokens on a busy server take minutes."""

NUM_TIMEOUTS = 2
"""Give up after this many answers that are too slow or too large: more tries would take hours."""

_REFUSED = (400, 413, 422, 451)
_FORBIDDEN = 403
_HOPELESS = (401, 403, 404, 405)
_NO_SUCH_PAGE = (404, 405)
_AT_HOME = ("localhost", "127.0.0.1", "::1")
_MAX_QUOTED = 300
_MAX_TOKENS = 2**31
_LONGEST_TOKEN = 128
"""Characters: the longest tokens of released tokenizers are runs of spaces."""

_LONGEST_TEXT = 2**16
"""Characters of an answer that are always accepted, however few tokens were requested."""
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_FLAGGED = re.compile(r"moderation|flagged|content.{0,3}(?:filter|policy|management)", re.IGNORECASE)
"""Matches a status 403 that is about one question, as OpenRouter's is. Others are about the key."""

_KEY = re.compile(r"[!-~]+")
"""A key consists of visible ASCII characters; others cannot be sent in a header."""


class RefusedError(Exception):
    """The server understood a request and refused it."""


class NoAnswerError(RunError):
    """The server works, but every try of this request failed to return a valid answer."""


class GaveUpError(RunError):
    """Every try of a request failed. `reason` is the failure of the last one."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class _AgainError(Exception):
    """A failure that is worth another try."""

    def __init__(self, message: str, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


class _NoCompletionError(_AgainError):
    """A JSON object that is not a chat completion, such as one with an empty list of choices."""


class _CostlyError(_AgainError):
    """No complete answer within the limits of time and size."""


class _HopelessError(Exception):
    """A status that another try will not change."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Completion:
    """A server's answer: the text, the server's reason for stopping, and the number of tokens."""

    text: str
    reason: str | None
    num_tokens: int | None


class ChatClient:
    """Talks to one server. `url` ends in /v1; the attribute `url` is the address without keys."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        num_tries: int = NUM_TRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = Address.parse(url)
        self.url = self._address.shown
        api_key = (api_key or "").strip()
        if api_key and not _KEY.fullmatch(api_key):
            raise ConfigError(["the server's key contains spaces or characters outside ASCII. Set it again."])
        authorization = self._address.authorization(api_key)
        login = (authorization or "").rpartition(" ")[2]
        self._secrets = Secrets([*self._address.keys, api_key, login, authorization or ""])
        self._num_tries, self._sleep = num_tries, sleep
        self._timeout = timeout
        self._transport = Transport(
            {"Content-Type": "application/json"} | ({"Authorization": authorization} if authorization else {}),
            timeout=timeout,
            follows=not (authorization or self._address.keys),
            is_local=self._address.host in _AT_HOME,
        )

    def complete(self, request: Mapping[str, object], *, at_most: int | None = None) -> Completion:
        """Send a chat request and return the answer. `at_most` limits the tries further."""
        max_tokens = request.get("max_completion_tokens", request.get("max_tokens"))
        most = max(_LONGEST_TEXT, _LONGEST_TOKEN * max_tokens if isinstance(max_tokens, int) else 0)
        try:
            return self._retry(lambda: _completion(self._send("/chat/completions", request), most), at_most)
        except _HopelessError as error:
            raise RunError(str(error)) from error

    def models(self) -> list[dict[str, object]] | None:
        """Return the models that the server lists; None if it has no such list."""
        try:
            answer = self._retry(lambda: self._send("/models", None))
        except _HopelessError as error:
            if error.status in _NO_SUCH_PAGE:
                return None
            raise RunError(str(error)) from error
        except RefusedError as error:
            raise RunError(f"{self.url} does not list its models: {error}. Check the address.") from error
        data = answer.get("data")
        return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else None

    def _retry(self, attempt: Callable[[], T], at_most: int | None = None) -> T:
        num_costly, num_tries = 0, self._num_tries if at_most is None else min(at_most, self._num_tries)
        for number in range(1, num_tries + 1):
            try:
                return attempt()
            except _AgainError as failure:
                num_costly += isinstance(failure, _CostlyError)
                if number == num_tries or num_costly == NUM_TIMEOUTS:
                    raise self._given_up(failure, number) from failure
                pause = FIRST_PAUSE * 2 ** (number - 1) if failure.pause is None else failure.pause
                self._sleep(min(pause, LONGEST_PAUSE))
        raise AssertionError("the loop returns or raises")

    def _given_up(self, failure: _AgainError, number: int) -> RunError:
        message = (
            f"{self.url}: {failure} That was try {number} of {self._num_tries}. Answers so far are kept; when the "
            "server works again, the same command resumes."
        )
        if isinstance(failure, _NoCompletionError):
            return NoAnswerError(message)
        return RunError(message) if isinstance(failure, _CostlyError) else GaveUpError(message, str(failure))

    def _send(self, path: str, content: Mapping[str, object] | None) -> dict[str, Any]:
        body = None if content is None else json.dumps(content).encode()
        try:
            reply = self._transport.exchange(self._address.endpoint(path), body)
        except TooSlowError as error:
            raise _CostlyError(f"no complete answer within {self._timeout:g} seconds.") from error
        except TooLargeError as error:
            raise _CostlyError(f"the answer is larger than {MAX_BYTES // 2**20} MiB.") from error
        except (OSError, http.client.HTTPException) as error:
            reason = self._short(str(getattr(error, "reason", error)))
            raise _AgainError(f"the server cannot be reached ({type(error).__name__}: {reason}).") from None
        if not 200 <= reply.status < 300:
            raise self._classified(reply)
        try:
            answer = self._secrets.mask_json(json.loads(reply.body))
        except (ValueError, RecursionError) as error:
            raise _AgainError(f"the answer is not JSON: {self._short(reply.body)}.") from error
        if not isinstance(answer, dict):
            raise _AgainError(f"the answer is not a JSON object: {self._short(reply.body)}.")
        return answer

    def _classified(self, reply: Reply) -> Exception:
        """Turn a status into the error that says whether to try again."""
        body = self._short(reply.body)
        if reply.status in _REFUSED or (reply.status == _FORBIDDEN and _FLAGGED.search(body)):
            return RefusedError(f"the server refuses it with status {reply.status}: {body}")
        if reply.location:
            return _HopelessError(
                f"{self.url}: the server redirects to {self._short(reply.location)}. Requests are not sent to another "
                "server, and keys to no other address. Give the new address if you trust it.",
                reply.status,
            )
        if reply.status in _HOPELESS:
            return _HopelessError(
                f"{self.url}: status {reply.status}: {body}. Check the address, the model's name and the key.",
                reply.status,
            )
        return _AgainError(f"status {reply.status}: {body}.", retry_after(reply.retry_after))

    def _short(self, text: bytes | str) -> str:
        """Quote what a server sent, without keys."""
        return _short(self._secrets.mask(text.decode("utf-8", "replace") if isinstance(text, bytes) else text))


def retry_after(wait: str, now: datetime | None = None) -> float | None:
    """Return the seconds that a server asks to wait: a number, possibly with a fraction, or a date.

    >>> retry_after("1.5"), retry_after("Wed, 21 Oct 2026 07:28:00 GMT", datetime(2026, 10, 21, 7, 27, 50, tzinfo=UTC))
    (1.5, 10.0)
    >>> retry_after("soon") is None
    True
    """
    if _SECONDS.fullmatch(wait.strip()):
        return float(wait)
    try:
        then = parsedate_to_datetime(wait)
    except (ValueError, OverflowError):
        return None
    then = then.replace(tzinfo=UTC) if then.tzinfo is None else then
    return max(0.0, (then - (now or datetime.now(UTC))).total_seconds())


def _completion(answer: Mapping[str, Any], longest_text: int) -> Completion:
    """Read a chat completion. A faulty server may send anything with status 200."""
    try:
        choice = answer["choices"][0]
        reason = choice.get("finish_reason")
        message = choice.get("message") or {} if reason == "content_filter" else choice["message"]
        content, thought = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
        if isinstance(content, list):
            content, thought = _in_parts(content, thought)
        used = (answer.get("usage") or {}).get("completion_tokens")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise _NoCompletionError(f"the answer is not a chat completion: {_short(json.dumps(answer))}.") from error
    if not all(isinstance(part, str | None) for part in (content, thought, reason)):
        raise _NoCompletionError(f"the answer's content is not text: {_short(json.dumps(choice))}.")
    if content is None and thought is None and reason not in ("stop", "length", "content_filter"):
        raise _NoCompletionError(f"the answer has no content: {_short(json.dumps(answer))}.")
    text = content or ""
    if thought:  # the server separated the thinking: put it back where the model wrote it
        text = f"<think>{thought}" if content is None else f"<think>{thought}</think>{content}"
    if len(text) > longest_text:
        raise _CostlyError(f"the answer has {len(text):,} characters, more than its tokens could have.")
    num_tokens = used if type(used) is int and 0 <= used < _MAX_TOKENS else None
    # Half a surrogate pair cannot be encoded in UTF-8.
    return Completion(text.encode("utf-8", "replace").decode(), reason and _short(reason), num_tokens)


def _in_parts(parts: list[Any], thought: Any) -> tuple[Any, Any]:
    """Join content that is sent in parts, as Mistral's thinking models do. Other parts are left for the caller."""
    if any(part.get("type") not in ("text", "thinking") for part in parts):
        return parts, thought
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    thoughts = [part["thinking"] for part in parts if part["type"] == "thinking"]
    for number, inner in enumerate(thoughts):
        thoughts[number] = inner if isinstance(inner, str) else "".join(piece["text"] for piece in inner)
    return text, thought or "\n".join(thoughts) or None


def _short(text: str) -> str:
    line = " ".join(text[: 8 * _MAX_QUOTED].split())
    return line if len(line) <= _MAX_QUOTED else line[:_MAX_QUOTED] + " ..."
