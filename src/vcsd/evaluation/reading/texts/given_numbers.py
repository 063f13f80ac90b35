"""Finds numbers that a question gives and therefore does not ask for: limits ("above 0.5"), settings ("V = 20").

It also turns "twice" into a number where the question asks how many times something happens.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcsd.evaluation.reading.texts.question_words import QuestionWords

_LIMIT = re.compile(
    r"\b(?:above|below|than|exceed(?:s|ed|ing)?|at\s+(?:least|most))\s+[$£€]?(?P<number>\d[\d,]*(?:\.\d+)?|\.\d+)",
    re.IGNORECASE,
)
_COUNTS = re.compile(r"\bhow\s+(?:many|much|often)\b|\bcount\b|\bnumber\s+of\b", re.IGNORECASE)


def limits(asked: QuestionWords) -> frozenset[str]:
    """Return the values that the question only compares with. A count may be equal to one by chance.

    >>> from vcsd.evaluation.reading.texts.question_words import QuestionWords
    >>> sorted(limits(QuestionWords("Which line stays above 0.65?"))), limits(QuestionWords("How many are above 3?"))
    (['0.65'], frozenset())
    """
    values = {limit["number"].replace(",", "") for limit in _LIMIT.finditer(asked.text)}
    is_count = asks_count(asked)
    return frozenset(value for value in values if not is_count or "." in value)


def asks_count(asked: QuestionWords) -> bool:
    """Whether the question asks how many or how much."""
    return bool(_COUNTS.search(asked.text))


_SETTING = re.compile(
    r"(?<![A-Za-z0-9_=])(?<!=\s)(?P<name>[A-Za-z\u0370-\u03ff][A-Za-z0-9_]{0,12})\s*=\s*-?\d+(?:\.\d+)?(?![\w.]*\d)"
)
_SPACE = re.compile(r"\s+")


def without_settings(sentence: str, asked: QuestionWords) -> str:
    """Remove the values of equations that the question has too, such as those in a title that the answer repeats.

    >>> from vcsd.evaluation.reading.texts.question_words import QuestionWords
    >>> without_settings("2 peaks in 'Run (V=20)'", QuestionWords("How many peaks are in 'Run (V=20)'?"))
    "2 peaks in 'Run (V)'"
    """
    if "=" not in sentence or "=" not in asked.text or _OFFERS.search(asked.text):
        return sentence
    given = {_SPACE.sub("", setting[0]) for setting in _SETTING.finditer(asked.text)}
    return _SETTING.sub(lambda said: said["name"] if _SPACE.sub("", said[0]) in given else said[0], sentence)


_OFFERS = re.compile(r"\bor\b", re.IGNORECASE)
_HOW_MANY_TIMES = re.compile(r"\bhow\s+(?:many\s+times|often)\b", re.IGNORECASE)
_TIMES = {"once": "1", "twice": "2", "thrice": "3"}
_SAID_TIMES = re.compile(
    r"(?<!\bat )(?<!\bthan )(?<!\bleast )(?<!\bmost )(?<!\bto )(?<!\bnot )(?<!\beven )(?<!\bor )"
    r"(?<!\balmost )(?<!\bnearly )"
    rf"\b(?P<word>{'|'.join(_TIMES)})\b(?=\W{{0,3}}(?:[.,!]|$|\s(?:in|at|on|within|over|along|across|throughout)\b))"
)


def times_as_numbers(text: str, asked: QuestionWords) -> str:
    """Write "twice" as "2 times" if the question asks how many times; not "more than once", "once the line rises".

    >>> from vcsd.evaluation.reading.texts.question_words import QuestionWords
    >>> times_as_numbers("They meet twice.", QuestionWords("How many times do they meet?"))
    'They meet 2 times.'
    """
    if not _HOW_MANY_TIMES.search(asked.text):
        return text
    return _SAID_TIMES.sub(lambda said: f"{_TIMES[said['word']]} times", text)
