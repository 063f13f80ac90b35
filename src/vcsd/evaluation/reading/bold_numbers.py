"""Reads the number that a text sets in bold."""

from __future__ import annotations

import re

from vcsd.evaluation.reading.numbers import Number, concluded, is_echo, is_in_formula, numbers
from vcsd.evaluation.reading.texts.given_numbers import asks_count, limits
from vcsd.evaluation.reading.texts.question_words import NOTHING_ASKED, QuestionWords
from vcsd.evaluation.reading.texts.statements import sentences

_BOLD = re.compile(
    r"(?P<aside>\()?\*\*(?:(?P<name>[^\W\d][^\s*=≈+/:,]{0,15}(?:\s[^\s*\d=≈+/:,]{1,10})?)\s*[=≈]\s*)?[^\w*-]{0,4}"
    r"(?P<value>-?[\d.][^*\n]*|[A-Za-z]+)\*\*"
)
"""**7**, **7 cups**, **seven**, **t = 7**."""


_WITH = re.compile(r",\s+with\s+(?:(?:an?|about|around|approximately|the|only|\w+\s+of)\s+)*$", re.IGNORECASE)
_NEAR = 60
"""The number of characters around a number that are examined."""


def bold_number(text: str, asked: QuestionWords = NOTHING_ASKED) -> str | None:
    """Return the only number in bold that does not repeat the question, unless a new number comes after it.

    >>> bold_number("so it is **7** apples."), bold_number("**7** apples and 3 pears, so 10")
    ('7', None)
    >>> bold_number("It reaches **0.5** at **t = 3**.", QuestionWords("At what time does it reach 0.5?"))
    '3'
    """
    spans = _own_spans(text, asked)
    if len({value for _, value in spans}) != 1:
        return None
    end, value = spans[-1]
    known = {number.value for number in [*numbers(text[:end].replace("**", "")), *numbers(asked.text)]}
    if {number.value for number in numbers(text[end:])} <= known:
        return value
    last = concluded(sentences(text[end:])[-1].replace("**", ""))
    return value if last and last.found == value else None


def _own_spans(text: str, asked: QuestionWords) -> list[tuple[int, str]]:
    """Return the end and the value of each number in bold; without numbers of the question, if there are others."""
    given, spans, own = limits(asked), [], []
    in_question = {number.value for number in numbers(asked.text)}
    for span in _BOLD.finditer(text):
        inside = numbers(span["value"])
        if not inside or inside[0].value in given or is_in_formula(span["value"], inside[0]):
            continue
        near = text[max(0, span.start() - _NEAR) : span.start()]
        if _is_aside(span, near, asked):
            continue
        spans.append((span.end(), inside[0].value))
        number = Number(inside[0].value, inside[0].start + len(near), inside[0].end + len(near))
        is_repeated = span["name"] or is_echo(near + span["value"] + text[span.end("value") :][:_NEAR], number, asked)
        if inside[0].value not in in_question or not is_repeated:
            own.append(spans[-1])
    return own or spans


def _is_aside(span: re.Match[str], before: str, asked: QuestionWords) -> bool:
    """Whether a number in bold only adds to the answer: "It is 2007, with **61** days", "(**r = 0.9**)"."""
    if span["name"] and (span["aside"] or re.search("[=,]", span["value"])):
        return True
    return bool(_WITH.search(before)) and not asks_count(asked)
