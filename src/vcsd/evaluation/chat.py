"""A client of OpenAI-compatible servers: one request, tried again with growing pauses, and clear words when it fails.

Answers that are worth another try: none at all, a time-out, 408, 409, 425, 429, 5xx, and text that is no completion.
RefusedError   the server does not take this one request (400, 413, 422): the question's fault, another may do
RunError       nothing more can be had from this server: wrong key, unknown model, or every try has failed
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NUM_TRIES = 6
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
TIMEOUT = 1800.0
"""Seconds for one answer: thousands of tokens on a busy server take minutes."""

NUM_TIMEOUTS = 2
"""A server that was silent for so long, so often, is taken to hang; further tries would take hours."""

_REFUSED = (400, 413, 422)
_HOPELESS = (401, 403, 404, 405)
_NO_SUCH_PAGE = (404, 405)
_AT_HOME = ("localhost", "127.0.0.1", "::1")
_SHOWN = 300
_KEY = re.compile(r"[!-~]+")
"""What a header can hold of a key: visible characters of ASCII."""


class RefusedError(Exception):
    """A request that the server understood and did not take."""


class _AgainError(Exception):
    """A failure that may pass."""

    def __init__(self, message: str, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


class _SilentError(_AgainError):
    """No answer in all the time that one may take."""


class _HopelessError(Exception):
    """A status that no further try will change."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Completion:
    """What a server said: the text, why it stopped in the server's word, and how many tokens it took."""

    text: str
    reason: str | None
    num_tokens: int | None


class ChatClient:
    """Talks to one server. `url` ends in /v1, as servers announce it."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        num_tries: int = NUM_TRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        host = _host(url)
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            if not _KEY.fullmatch(api_key.strip()):
                raise ConfigError(["the server's key has characters that no key has, such as spaces. Set it again."])
            self._headers["Authorization"] = f"Bearer {api_key.strip()}"
        self._timeout, self._num_tries, self._sleep = timeout, num_tries, sleep
        # A proxy for the outside world must not stand between us and a server on this machine.
        proxies = [urllib.request.ProxyHandler({})] if host in _AT_HOME else []
        self._open = urllib.request.build_opener(*proxies).open

    def complete(self, request: Mapping[str, Any]) -> Completion:
        """The answer to a chat request."""
        try:
            found: Completion = self._persist(lambda: _completion(self._send("/chat/completions", request)))
        except _HopelessError as error:
            raise RunError(str(error)) from error
        return found

    def models(self) -> list[dict[str, Any]] | None:
        """What the server says it serves; None where it does not say."""
        try:
            answer = self._persist(lambda: self._send("/models", None))
        except _HopelessError as error:
            if error.status in _NO_SUCH_PAGE:
                return None
            raise RunError(str(error)) from error
        except RefusedError as error:
            raise RunError(f"{self.url} does not say what it serves: {error}. Check the address.") from error
        data = answer.get("data")
        return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else None

    def _persist(self, attempt: Callable[[], Any]) -> Any:
        num_silent = 0
        for number in range(1, self._num_tries + 1):
            try:
                return attempt()
            except _AgainError as failure:
                num_silent += isinstance(failure, _SilentError)
                if number == self._num_tries or num_silent == NUM_TIMEOUTS:
                    raise RunError(
                        f"{self.url}: {failure} That was try {number} of {self._num_tries}. Answers so far are kept; "
                        "start the same command again when the server answers, and it goes on."
                    ) from failure
                pause = FIRST_PAUSE * 2 ** (number - 1) if failure.pause is None else failure.pause
                self._sleep(min(pause, LONGEST_PAUSE))
        raise AssertionError("the loop returns or raises")

    def _send(self, path: str, content: Mapping[str, Any] | None) -> dict[str, Any]:
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.url + path, data=body, headers=self._headers)
        try:
            with self._open(request, timeout=self._timeout) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            raise self._judged(error) from error
        except TimeoutError as error:
            raise _SilentError(f"no answer within {self._timeout:g} seconds.") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise _SilentError(f"no answer within {self._timeout:g} seconds.") from error
            raise _AgainError(f"the server cannot be reached ({type(error).__name__}: {reason}).") from error
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _AgainError(f"the answer is not JSON: {_short(text)}.") from error
        if not isinstance(answer, dict):
            raise _AgainError(f"the answer is no object: {_short(text)}.")
        return answer

    def _judged(self, error: urllib.error.HTTPError) -> Exception:
        """A status as what to do about it."""
        try:
            said = _short(error.read())
        except (OSError, http.client.HTTPException):
            said = "(nothing)"
        if error.code in _REFUSED:
            return RefusedError(f"the server refuses it with status {error.code}: {said}")
        if error.code in _HOPELESS:
            return _HopelessError(
                f"{self.url}: status {error.code}: {said}. Check the address, the model's name and the key.", error.code
            )
        wait = error.headers.get("Retry-After", "")
        return _AgainError(f"status {error.code}: {said}.", float(wait) if wait.isdigit() else None)


def _host(url: str) -> str:
    """The host of an address that can be asked."""
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not re.search(r"\s", url):
            return parts.hostname
    except ValueError:  # a port that is no number, or half an IPv6 address
        pass
    raise ConfigError([f"server = {url!r} is no address. Give one such as http://localhost:8000/v1."])


def _completion(answer: Mapping[str, Any]) -> Completion:
    """A chat completion, or a failure: a server in trouble may answer 200 with anything."""
    try:
        choice = answer["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
        content, thought = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
        used = (answer.get("usage") or {}).get("completion_tokens")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise _AgainError(f"the answer is no chat completion: {_short(json.dumps(answer).encode())}.") from error
    if not all(isinstance(each, str | None) for each in (content, thought, reason)):
        raise _AgainError(f"the answer's content is no text: {_short(json.dumps(choice).encode())}.")
    if content is None and thought is None and reason not in ("stop", "length"):
        raise _AgainError(f"the answer has no content: {_short(json.dumps(answer).encode())}.")
    text = content or ""
    if thought:  # a server that splits off the thinking: put it back where the model wrote it
        text = f"<think>{thought}" if content is None else f"<think>{thought}</think>{content}"
    # Half a surrogate pair is no text that a file can hold.
    return Completion(text.encode("utf-8", "replace").decode(), reason, used if isinstance(used, int) else None)


def _short(text: bytes) -> str:
    shown = " ".join(text.decode("utf-8", "replace").split())
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + " ..."
