"""Reads a list of numbers from a text with reasoning."""

from __future__ import annotations

import re

from vcsd.evaluation.reading.numbers import PLAIN_NUMBER, clean
from vcsd.evaluation.reading.texts.statements import Reading

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_ROUND = re.compile(r"\(([^()]*,[^()]*)\)")
_BETWEEN = re.compile(rf"\bbetween\s+({PLAIN_NUMBER})\s+and\s+({PLAIN_NUMBER})", re.IGNORECASE)


def read_list(text: str) -> Reading | None:
    """Read the last list of numbers in a text, in Python's notation."""
    text = clean(text.replace("\\[", "[").replace("\\]", "]"))
    for pattern, by in ((_BRACKETS, "list"), (_ROUND, "pair"), (_BETWEEN, "between")):
        found = pattern.findall(text)
        if found:
            last = found[-1]
            return _listed(last if isinstance(last, str) else ", ".join(last), by)
    return _listed(text.rstrip("."), "list") if "," in text else None


def _listed(inside: str, by: str) -> Reading | None:
    items = [item.strip() for item in inside.split(",")]
    if not all(re.fullmatch(r"-?(?:\d+(?:\.\d+)?|\.\d+)", item) for item in items):
        return None
    return Reading(str([float(item) if "." in item else int(item) for item in items]), by)
