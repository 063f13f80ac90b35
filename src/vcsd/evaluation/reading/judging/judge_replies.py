"""Reads a judge's reply: a letter, yes or no, a number, a list, or that the answer settles on nothing.

A judge is asked for one word. Most give it plainly or with marks around it: `b`, "B", $B$, **Yes**, `3 people`.
VLMEvalKit's rules read the rest. A reply with two competing values, or one that denies a value ("not B"), is not read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcsd.evaluation.reading import exact, mathvista_answer

if TYPE_CHECKING:
    from vcsd.types import Question

NOTHING = "<nothing>"
"""The reading of an answer that, according to the judge, settles on nothing. No reply reads like this."""

_NONE = re.compile(r"^\W*(?:none|unknown|n/?a)\W*$", re.IGNORECASE)
_BEFORE = "`*_$\"'“”‘’ \n\t()[]{}<>,:;!（）【】「」，：；！、"  # noqa: RUF001  the quotes and Chinese marks are meant
_AFTER = f"{_BEFORE}.。"
_NEGATED = re.compile(
    r"(?i:\b(?:not|neither|nor|except|but)|n't)\s+(?i:option\s+|choice\s+)?[\"'*(`$]*(?:[A-Z]|(?i:yes|no))\b"
)
"""Not B: the letter that a reply denies."""
_COMMAND = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WHOLE = re.compile(r"[-+]?\d+\.0+")
_LIST = re.compile(r"\[[^\[\]]*\]")
_MINUS = str.maketrans("\N{MINUS SIGN}\N{EN DASH}", "--")
_ALTERED = re.compile(
    r"-\s+\d|\b(?:minus|negative|hundreds?|thousands?|millions?|billions?|trillions?|dozens?)\b", re.I
)
"""What changes the number next to it: "minus 3", "2.5 million". The digits alone would be another number."""
_FRACTION = re.compile(r"\d\s*[/:^*×]\s*\d|\d\s*(?:to|or|and|-)\s*\d")  # noqa: RUF001  the sign is meant


def read_reply(question: Question, reply: str, rules: str) -> str | None:
    """Read a judge's reply: its finding, NOTHING if it finds none, None if the reply cannot be read.

    >>> from vcsd.types import Example, Question
    >>> example = Example("0", [], [{"role": "user", "content": "How many?"}])
    >>> count = Question(example, benchmark="toy", kind="integer", gold="3")
    >>> [read_reply(count, reply, "2026-06") for reply in ("3 people", "None", "3 or 4")]
    ['3', '<nothing>', None]
    """
    plain = _undressed(reply)
    if question.kind in ("option", "yes_no") and _NEGATED.search(reply):
        return None
    if question.kind == "option":
        letter: str | None = plain.upper()
        if letter not in (*question.options, exact.REFUSED):
            letter = _worded(question, plain) or exact.read_option(reply.strip(), question.options, rules)
        return NOTHING if letter == exact.REFUSED and letter not in question.options else letter
    if _NONE.match(plain):
        return NOTHING
    if question.kind == "yes_no":
        return plain.capitalize() if plain.lower() in ("yes", "no") else exact.read_yes_no(reply.replace("*", " "))
    if question.kind == "text":
        return plain or None
    return _only_list(reply) if question.kind == "list" else _number(question, plain)


def _worded(question: Question, plain: str) -> str | None:
    """Return the only option with these words. VLMEvalKit's rules take the article of "A dog" for a letter."""
    letters = [letter for letter, words in question.options.items() if words.strip().casefold() == plain.casefold()]
    return letters[0] if len(letters) == 1 else None


def _only_list(reply: str) -> str | None:
    lists = {found[0] for found in _LIST.finditer(reply)}
    return lists.pop() if len(lists) == 1 else None


def _undressed(reply: str) -> str:
    """Return a reply without the quotes, brackets and marks around it.

    >>> [_undressed(text) for text in ('"B"', "$B$", "**Yes**.", r"\\boxed{\\text{7}}", "(C)", ".5")]
    ['B', 'B', 'Yes', '7', 'C', '.5']
    """
    text = reply.strip()
    for _ in range(2):
        text = _COMMAND.sub(r"\1", text)
    return text.lstrip(_BEFORE).rstrip(_AFTER)


def _number(question: Question, plain: str) -> str | None:
    """Return the only number in a reply, a whole one without decimals: VLMEvalKit does not accept 3.0 as an integer."""
    only = _only_number(question, plain)
    if only is not None and question.kind == "integer" and _WHOLE.fullmatch(only):
        return only.partition(".")[0]
    return only


def _only_number(question: Question, plain: str) -> str | None:
    """Return the only number in a reply. Units and words around it do not count; a fraction or a range has two."""
    plain = plain.translate(_MINUS)
    if plain.casefold() in ("nan", "inf", "infinity") or _ALTERED.search(plain):
        return None
    if mathvista_answer.normalise(question, plain) is not None:
        return plain
    if _FRACTION.search(plain):
        return None
    numbers = {found[0].replace(",", "") for found in _NUMBER.finditer(plain) if any(map(str.isdigit, found[0]))}
    only = numbers.pop() if len(numbers) == 1 else None
    return only if only is not None and mathvista_answer.normalise(question, only) is not None else None
