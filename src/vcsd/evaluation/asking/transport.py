"""One HTTP exchange with an untrusted server: limited in bytes and in total time.

A redirect is followed only within the server's origin, and only by requests without a key.
"""

from __future__ import annotations

import http.client
import io
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

MAX_BYTES = 8 * 2**20
"""Limit of a whole reply. One of 32,000 tokens has less than a megabyte, like most lists of models."""

MAX_ERROR_BYTES = 2**14
MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)


class TooSlowError(Exception):
    """The server did not send a complete answer in time."""


class TooLargeError(Exception):
    """The server sends more than MAX_BYTES."""


@dataclass(frozen=True)
class Reply:
    """What a server sent. `location` is the full address to which it redirects, else empty."""

    status: int
    body: bytes
    retry_after: str = ""
    location: str = ""


class Transport:
    """Sends requests. `follows` allows redirects within the origin; `is_local` ignores the environment's proxy."""

    def __init__(self, headers: Mapping[str, str], *, timeout: float, follows: bool, is_local: bool) -> None:
        self._headers, self._timeout, self._follows = headers, timeout, follows
        proxies = [urllib.request.ProxyHandler({})] if is_local else []
        self._opener = urllib.request.build_opener(*proxies, _NoRedirects, _HttpHandler, _HttpsHandler)

    def exchange(self, url: str, body: bytes | None) -> Reply:
        """Send one request. Raises TooSlowError, TooLargeError, OSError or HTTPException."""
        with _Deadline(self._timeout) as deadline:
            try:
                for _ in range(MAX_REDIRECTS):
                    reply = self._once(url, body, deadline)
                    if not (reply.location and self._follows and _origin(reply.location) == _origin(url)):
                        break
                    url = reply.location
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = getattr(error, "reason", error)
                if deadline.is_over or isinstance(reason, TimeoutError):
                    raise TooSlowError from error
                if isinstance(error, ValueError):  # http.client does not check every number that a server sends
                    raise http.client.HTTPException(str(error)) from error
                raise
            if deadline.is_over:  # the connection was cut, and a partial answer can look complete
                raise TooSlowError
        return reply

    def _once(self, url: str, body: bytes | None, deadline: _Deadline) -> Reply:
        request = _Request(url, body, self._headers, deadline)
        try:
            response = self._opener.open(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            with error:
                location = error.headers.get("Location") if error.code in _REDIRECTS else None
                return Reply(
                    error.code,
                    error.read(MAX_ERROR_BYTES),
                    error.headers.get("Retry-After") or "",
                    _joined(url, location) if location else "",
                )
        with response:
            # Never read as many bytes as the server announces: Python would allocate them first.
            return Reply(response.status, response.read(MAX_BYTES))


class _Deadline:
    """Cuts the connections of a request when its time is over, even if the server is still sending."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()

    def watch(self, connection: socket.socket) -> None:
        """Cut this connection at the deadline, even after TLS has wrapped the socket."""
        with self._lock:
            twin = connection.dup()
            self._connections.append(twin)
            if self.is_over:
                _cut(twin)

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            for connection in self._connections:
                _cut(connection)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # the server was faster
        connection.shutdown(socket.SHUT_RDWR)


class _Request(urllib.request.Request):
    def __init__(self, url: str, body: bytes | None, headers: Mapping[str, str], deadline: _Deadline) -> None:
        super().__init__(url, data=body, headers=dict(headers))
        self.deadline = deadline


class _Counted(io.RawIOBase):
    """Reads from a connection, and raises TooLargeError after MAX_BYTES, which include headers and chunk framing."""

    def __init__(self, connection: io.BufferedReader) -> None:
        self._connection, self._num_bytes = connection, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        num_bytes = self._connection.readinto1(buffer)
        self._num_bytes += num_bytes
        if self._num_bytes > MAX_BYTES:
            raise TooLargeError
        return num_bytes

    def close(self) -> None:
        self._connection.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """Limits what is read. http.client itself accepts a chunk of length -1 and reads until the end."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.fp = io.BufferedReader(_Counted(self.fp))


class _HttpConnection(http.client.HTTPConnection):
    """A connection that is watched from its start: a proxy or TLS may be slow before the server is reached."""

    response_class = _Response

    def __init__(self, *given: Any, deadline: _Deadline, **more: Any) -> None:
        super().__init__(*given, **more)

        def watched(*given: Any) -> socket.socket:
            connection = socket.create_connection(*given)
            deadline.watch(connection)
            return connection

        self._create_connection = watched


class _HttpsConnection(_HttpConnection, http.client.HTTPSConnection):
    pass


def _watched(kind: type[_HttpConnection], request: urllib.request.Request) -> Callable[..., http.client.HTTPConnection]:
    assert isinstance(request, _Request), "only Transport sends requests"
    deadline = request.deadline

    def connection(host: str, *, timeout: float) -> http.client.HTTPConnection:
        return kind(host, timeout=timeout, deadline=deadline)

    return connection


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(_HttpConnection, req), req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(_HttpsConnection, req), req)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to Transport: urllib would send the key to any host, and read the whole body first."""

    def _leave(self, *_: object) -> None:
        return None

    http_error_301 = http_error_302 = http_error_303 = http_error_307 = http_error_308 = _leave  # type: ignore[assignment]


def _joined(url: str, location: str) -> str:
    try:
        return urllib.parse.urljoin(url, location)
    except ValueError:
        return location


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
