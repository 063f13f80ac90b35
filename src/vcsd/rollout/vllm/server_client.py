"""HTTP to a vLLM server: JSON in, JSON out, and a wait for a server that is not up.

A server that does not answer, answers too late or fails inside raises a ServerLostError: the same request may be sent
again. One that refuses what is in a request raises a RequestRefusedError: others may be answered. One that refuses any
request, for lack of a key or otherwise, raises a ServerRefusedError. The key, if the environment variable VLLM_API_KEY
has one, is sent and never shown.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vcsd.errors import ConfigError, RunError
from vcsd.rollout.vllm.vllm_requests import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

KEY = "VLLM_API_KEY"
LOCAL = ("127.0.0.1", "localhost", "::1")
_SHOWN = 300
MAX_BYTES = 2**28
"""The longest reply. A request has at most a few rollouts, each of a few megabytes with its log-probabilities."""

HEALTH_SECONDS = 10.0
"""The limit for the reply to `/health`. vLLM sends it at once, without a body, however many requests it computes."""

HEALTH_BYTES = 2**16
CONNECT_SECONDS = 30.0
"""The limit for connecting. A machine that drops packets would hold each request for minutes."""

_PIECE = 2**16
_FAILED = 500
_OK = 200
_NOT_FOUND = 404
_ABOUT_ONE = (400, 413, 422)
"""Statuses that are about what is in a request: wrong, too large, not understood."""
_NO_KEY = (401, 403)
_LATER = (408, 429)
"""Statuses that ask to send the same again later."""


class NotOfferedError(RunError):
    """The server does not have what was asked for."""


class ServerLostError(RunError):
    """The server did not answer, or failed inside. Sending the same again may help."""


class ServerRefusedError(RunError):
    """The server refuses requests of this kind, whatever is in them."""


def check_url(url: str, key: str = "rollout.server_url") -> str:
    """Return a server's address without a slash at its end. Raise a ConfigError if it is not one.

    `key` names the setting in the error.
    """
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise ConfigError([f"{key} must not hold a password. Put the key into {KEY}."])
    try:
        has_place = parts.scheme == "http" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        has_place = False
    if not has_place or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError([f"{key} = {url!r} is not an address such as http://127.0.0.1:8000."])
    return url.rstrip("/")


class ServerClient:
    """One server. `timeout` is for one request, in seconds: a whole response of the model. `/health` has its own."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 1800.0,
        sleep: Callable[[float], None] = time.sleep,
        key: str = "rollout.server_url",
    ) -> None:
        self.url, self.timeout, self._sleep, self._key = check_url(url, key), timeout, sleep, key
        self._open: set[socket.socket] = set()
        self._is_closed = False
        parts = urlsplit(self.url)
        self.host, self._port = str(parts.hostname), int(parts.port or 0)
        if self.host not in LOCAL:
            log.warning("%s is not this machine. Whoever reaches it can replace its weights.", self.url)

    def get(self, path: str) -> Any:
        """Return the reply to a GET."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: object = None) -> Any:
        """Return the reply to a POST."""
        return self._ask("POST", path, {} if body is None else body)

    def is_ready(self) -> bool:
        """Whether the server answers."""
        return self._problem(HEALTH_SECONDS) is None

    def _problem(self, seconds: float) -> str | None:
        """Return why the server is not known to be healthy within `seconds`; None if it is."""
        try:
            self._ask("GET", "/health", None, seconds=min(seconds, self.timeout), max_bytes=HEALTH_BYTES)
        except RunError as error:
            return str(error)
        return None

    def wait_until_ready(self, seconds: float, has_ended: Callable[[], str | None] = lambda: None) -> None:
        """Wait for the server, with a countdown in the log. `has_ended` returns a reason if it will never answer."""
        left, tell_at = seconds, round(seconds)
        while True:
            began = time.monotonic()
            if (problem := self._problem(min(HEALTH_SECONDS, max(left, 1.0)))) is None:
                return
            left -= time.monotonic() - began  # a server that accepts a request and never replies takes time, too
            if (reason := has_ended()) is not None:
                raise ServerLostError(reason)
            if left <= 0:
                raise ServerLostError(
                    f"the vLLM server {self.url} did not answer within {seconds:.0f} s. Start it with "
                    f"`python -m vcsd.rollout.vllm.serve MODEL_FOLDER`, or correct {self._key}. The last try: {problem}"
                )
            if round(left) <= tell_at:
                log.warning("Waiting for the vLLM server %s, for %.0f s more.", self.url, left)
                tell_at = (round(left) - 1) // 10 * 10
            self._sleep(1.0)
            left -= 1.0

    def give_up(self) -> None:
        """End all requests that wait, in whichever thread, with a ServerLostError, and refuse new ones."""
        self._is_closed = True
        for connection in list(self._open):
            _cut(connection)

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """Give up requests as `give_up` does; new ones are refused only inside this context."""
        before = self._is_closed
        self.give_up()
        try:
            yield
        finally:
            self._is_closed = before

    def _ask(
        self,
        method: str,
        path: str,
        body: object | None,
        *,
        seconds: float | None = None,
        max_bytes: int | None = None,
    ) -> Any:
        seconds = self.timeout if seconds is None else seconds
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        connection = http.client.HTTPConnection(self.host, self._port, timeout=min(seconds, CONNECT_SECONDS))
        try:
            connection.connect()
            connection.sock.settimeout(seconds)
            with self._watched(connection.sock, seconds):
                if self._is_closed:  # after connecting, so that `give_up` misses no connection
                    raise ServerLostError(f"requests to the vLLM server {self.url} were given up.")
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                with connection.getresponse() as reply:
                    status, content = reply.status, _read(reply, max_bytes or MAX_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:  # a ValueError: an odd number in the reply
            problem = _short(f"{type(error).__name__}: {error}".encode())
            raise ServerLostError(f"the vLLM server {self.url} does not answer {path} ({problem}).") from error
        finally:
            connection.close()
        if status >= _FAILED or status in _LATER:
            raise ServerLostError(f"the vLLM server {self.url} failed at {path}: {_short(content)}")
        if status == _NOT_FOUND:
            raise NotOfferedError(f"the vLLM server {self.url} has no {path}.")
        if status != _OK:
            text = f"the vLLM server {self.url} refuses {path} ({status}): {_short(content)}"
            if status in _ABOUT_ONE:
                raise RequestRefusedError(text)
            raise ServerRefusedError(f"{text} Put its key into {KEY}." if status in _NO_KEY else text)
        return _parsed(content, self.url)

    @contextmanager
    def _watched(self, connection: socket.socket, seconds: float) -> Iterator[None]:
        """Cut a connection when its time is over, however slowly the server sends, or when requests are given up."""
        is_over = threading.Event()
        too_slow = f"no complete reply within {seconds:g} s"

        def end() -> None:
            is_over.set()
            _cut(connection)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        self._open.add(connection)
        timer.start()
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError) as error:
            if is_over.is_set() or isinstance(error, TimeoutError):
                raise TimeoutError(too_slow) from error
            raise
        finally:
            timer.cancel()
            self._open.discard(connection)
        # The connection was cut, and half a reply can look like a whole one.
        if is_over.is_set():
            raise TimeoutError(too_slow)
        if self._is_closed:
            raise ConnectionAbortedError("requests were given up")


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # no longer connected
        connection.shutdown(socket.SHUT_RDWR)


def _read(reply: http.client.HTTPResponse, max_bytes: int) -> bytes:
    """Return the body of a reply. Raise an OSError if it is cut short or longer than `max_bytes`."""
    if reply.length is None and not reply.chunked:  # a head that was cut short looks like this, too
        raise ConnectionError("its reply does not say where it ends")
    content = bytearray()
    while piece := reply.read1(_PIECE):
        content += piece
        if len(content) > max_bytes:
            raise OSError(f"its reply has more than {max_bytes:,} bytes")
    if reply.length:
        raise ConnectionError(f"its reply lacks {reply.length} bytes")
    return bytes(content)


def _parsed(content: bytes, url: str) -> Any:
    if not content:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ServerLostError(f"the vLLM server {url} replied with something that is not JSON.") from error


def _short(content: bytes) -> str:
    """The beginning of an error message, without line breaks and without the key."""
    text = " ".join(content.decode("utf-8", "replace").split())
    if key := os.environ.get(KEY):
        text = text.replace(key, "***")
    return text[:_SHOWN] or "no message"
