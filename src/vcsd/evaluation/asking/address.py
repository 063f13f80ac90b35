"""The address of a server, with the keys in it for requests and without them for display.

A key may be a user and password, a query value or a part of the path. The address is printed, written and hashed
without keys, so that stored answers remain valid when a key changes.
"""

from __future__ import annotations

import base64
import re
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from vcsd.types import JsonValue

MASK = "***"
_MIN_LENGTH = 6
"""Shorter keys, such as vLLM's "EMPTY", are not secrets, and masking them would hide ordinary words."""

_KEY_NAME = re.compile(r"key|token|secret|sig|pass|auth|code", re.IGNORECASE)
_KEY_IN_PATH = re.compile(
    r"(?<=/)(?:(?:sk|pk|key|token|hf|gh[a-z])[-_][\w-]{8,}|(?=[^/]*\d)(?:[A-Za-z0-9]{24,}|[0-9a-f-]{32,}))(?=/|$)"
)
"""A part of a path that looks like a key. Model names must not match."""

_BEFORE_AT = re.compile(r"//\S*@|[?#].*", re.DOTALL)


class Secrets:
    """The keys of a server, to be masked in texts.

    >>> Secrets(["sk-12345678"]).mask("wrong key: sk-12345678")
    'wrong key: ***'
    """

    def __init__(self, words: list[str]) -> None:
        known = {word for word in words if len(word) >= _MIN_LENGTH}
        forms = known | {urllib.parse.quote(word, safe="") for word in known}
        longest_first = sorted(forms, key=lambda word: (-len(word), word))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def mask(self, text: str) -> str:
        """Return the text with every key replaced."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def mask_json(self, value: JsonValue) -> JsonValue:
        """Return a JSON value with every key in its texts replaced."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, list):
            return [self.mask_json(item) for item in value]
        if isinstance(value, dict):
            return {self.mask(name): self.mask_json(item) for name, item in value.items()}
        return value


@dataclass(frozen=True)
class Address:
    """A parsed address. `shown` is the address without keys, `keys` are the keys in it.

    >>> address = Address.parse("http://me:hunter22@localhost:8000/v1?api_key=12345678")
    >>> address.shown
    'http://***@localhost:8000/v1?api_key=***'
    >>> address.endpoint("/models")
    'http://localhost:8000/v1/models?api_key=12345678'
    """

    host: str
    shown: str
    login: str | None
    """user:password"""
    keys: tuple[str, ...]
    _base: str
    _query: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parse an address, or raise a ConfigError."""
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
        except ValueError:  # a port that is not a number, or half an IPv6 address
            raise _invalid(url) from None
        host = parts.hostname
        if parts.scheme not in ("http", "https") or not host or port == 0 or re.search(r"[\s\x00-\x1f\x7f]", url):
            raise _invalid(url)
        login, at, place = parts.netloc.rpartition("@")
        path = parts.path.rstrip("/")
        values = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        keys = [value for name, value in values if _KEY_NAME.search(name)]
        keys += [*map(urllib.parse.unquote, login.split(":", 1)[1:]), *_KEY_IN_PATH.findall(path)]
        shown = f"{parts.scheme}://{MASK + at if at else ''}{place}{_KEY_IN_PATH.sub(MASK, path)}"
        shown += "?" + "&".join(f"{name}={MASK}" for name, _ in values) if values else ""
        return cls(
            host,
            shown,
            urllib.parse.unquote(login) if at else None,
            tuple(keys),
            f"{parts.scheme}://{place}{path}",
            f"?{parts.query}" if parts.query else "",
        )

    def endpoint(self, path: str) -> str:
        """Return the address of an endpoint, with the keys that the server expects in it."""
        return self._base + path + self._query

    def authorization(self, api_key: str | None) -> str | None:
        """Return the header that identifies the user."""
        if api_key:
            return f"Bearer {api_key}"
        return None if self.login is None else "Basic " + base64.b64encode(self.login.encode()).decode()


def _invalid(url: str) -> ConfigError:
    shown = _BEFORE_AT.sub(lambda match: f"//{MASK}@" if match[0].startswith("//") else "", url)
    shown = _KEY_IN_PATH.sub(MASK, shown)
    return ConfigError([f"server = {shown!r} is not an address. Give one such as http://localhost:8000/v1."])
