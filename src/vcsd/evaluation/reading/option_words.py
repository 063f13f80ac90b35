"""Finds the words of options in a text: complete, not negated, and the longer of two that overlap."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from vcsd.evaluation.reading.numbers import clean
from vcsd.evaluation.reading.texts.formulas import is_operand

if TYPE_CHECKING:
    from collections.abc import Mapping

_TAIL = 80
_WORD = re.compile(r"\w")
_NEGATED = re.compile(
    r"(?:\b(?:not|nor|neither|never|without|than|or|hardly|barely|no\s+longer|anything\s+but|used)|n't|\binstead\s+of)\s+"
    r"(?:(?:a|an|the|be|in|made|of|on|look|seem|appear|to)\s+){0,3}$",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"[*)\"']*\s+or\b|[*)\"']*\s+(?:is|are|was|were|would\s+be)(?:\s+(?:also\s+)?not\b|n't\b|\s+(?:wrong|incorrect|false)\b)"
)
"""After the words of an option that is rejected or one of two: "green is not the correct choice", "green or red"."""
_NUMBER_WORDS = {"3": "three", "4": "four", "5": "five", "6": "six", "7": "seven", "8": "eight", "9": "nine"} | {
    "0": "zero", "1": "one", "2": "two", "10": "ten", "11": "eleven", "12": "twelve"
}  # fmt: skip


def mentions(text: str, options: Mapping[str, str]) -> list[str]:
    """Return the letters of the options that a text mentions without denying them; the longer of two that overlap.

    Options of one letter are skipped: they would be found in "a" or "x".

    >>> mentions("not red, it is dark green", {"A": "red", "B": "green", "C": "dark green"})
    ['C']
    """
    spans = [
        (found.start(), found.end(), letter)
        for letter, pattern in patterns(tuple(options.items()))
        for found in pattern.finditer(text)
    ]
    kept = [
        letter
        for start, end, letter in spans
        if not any(s <= start and end <= e and e - s > end - start for s, e, _ in spans)
        and not _NEGATED.search(text[max(0, start - 40) : start])
        and not _DENIED.match(text, end)
        and not _is_letter(options[letter])
        and not (_IS_MATH.search(options[letter]) and is_operand(text, start, end))
    ]
    words = {options[letter]: letter for letter in sorted(set(kept), reverse=True)}
    return sorted(words.values())


@lru_cache(maxsize=4096)
def _is_letter(words: str) -> bool:
    core = clean(words).strip(" .")
    return len(core) == 1 and core.isalpha()


@lru_cache(maxsize=4096)
def patterns(options: tuple[tuple[str, str], ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return each option's letter with the pattern that finds its words."""
    return tuple((letter, _pattern(words)) for letter, words in options if words.strip(" ."))


def ends_with_option(text: str, options: Mapping[str, str]) -> bool:
    """Whether the last words of a text are those of an option."""
    tail = text[-_TAIL:]
    places = (found.end() for _, pattern in patterns(tuple(options.items())) for found in pattern.finditer(tail))
    return any(not _WORD.search(tail, end) for end in places)


_ARTICLE = re.compile(r"^(?:an?|the)\s+(?=\w)(?!only\b)", re.IGNORECASE)
_NOT_BEFORE = r"(?<![\w.,√^-])(?<![+*/\u00d7\u00f7])(?<![+*/\u00d7\u00f7]\s)(?<![\d°]\s-\s)"
_NOT_AFTER = r"(?!\s*[+/\u00d7\u00f7]|\s+-\s+(?:[\d(√]|[A-Za-z\u03b1-\u03c9]\b))"
_IS_MATH = re.compile(r"[\d√π]")
_BEFORE_UNIT = re.compile(r"(?<=[\dπ])\s*(?=[A-Za-z]{1,2}\b)")
"""The place between a number and its unit, with or without a space: 5 cm, 5cm."""


def _pattern(words: str) -> re.Pattern[str]:
    core = _ARTICLE.sub("", clean(words).rstrip(".")) or words.strip()
    joined = _BEFORE_UNIT.sub("\0", core)
    body = r"[\s-]+".join(re.escape(word) for word in re.split(r"(?<=[A-Za-z])-(?=[A-Za-z])|\s+", joined))
    body = body.replace(re.escape("\0"), r"\s*")
    body += "s?" if re.search(r"\b[A-Z][a-z]{2,}[a-rt-z]$", core) else ""
    if core in _NUMBER_WORDS:
        body = f"(?:{body}|{_NUMBER_WORDS[core]})"
    before = _NOT_BEFORE if core[:1].isascii() or core[:1] in "√π" else ""
    after = r"(?![\w%°/√π^-])(?![.,]\d)" if core[-1:].isascii() or core[-1:] == "π" else ""
    after += r"(?!\s*[+*\u00d7\u00f7=]\s*[\d(])" if core[-1:].isdigit() else ""
    after += _NOT_AFTER if _IS_MATH.search(core) else ""
    return re.compile(before + body + after, re.IGNORECASE)
