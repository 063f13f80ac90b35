"""MathVista's answers are compared in two ways that differ, and both are here by name.

official     as its authors do: an integer is cut to its whole part, a float rounded to the question's precision, an
             option is its words (so that either of two equal options is right), and the results compared as text.
             We also normalise the gold answer: `0.50` as gold would otherwise never be met, since rounding drops the 0.
vlmevalkit   as VLMEvalKit does: an integer and a float must be equal as they stand, without rounding; lists are always
             wrong; an option is its letter.

VLMEvalKit's exact route reads twice. First the answer itself: a letter by its option rules, or a number, kept only if
it equals gold. What was read is written to a table, read back, and checked. Faults that come of it, kept in `exact`
and nowhere else: a right 0 counts as nothing read; `3.0` is no integer; where nothing was read the table gives "nan",
in which an option such as "a" or "n" is found.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from vcsd.errors import DataError
from vcsd.evaluation.exact import Rules, read_back, read_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.benchmark import Numbers
    from vcsd.evaluation.question import Question

NOTHING_READ = "nan"

_IN_BRACKETS = re.compile(r"\(([a-zA-Z])\)")
_DECIMAL_PLACES = {"with one decimal place": 1, "with two decimal places": 2}
_DEFAULT_PRECISION = 2


def read_first(question: Question, text: str, rules: Rules) -> str | None:
    """What VLMEvalKit reads from the answer without asking a judge: any option, or the gold number and no other."""
    text = read_back(text)
    if question.kind == "option":
        return read_option(text, question.options, rules)
    return text if _is_truthy_number(question.kind, text) and check(question, text, rules)[1] else None


def check(question: Question, read: str, rules: Rules) -> tuple[str | None, bool]:
    """VLMEvalKit's second reading: what it makes of the first, or of a judge's words, and whether that is right."""
    if question.kind == "option":
        letter = read_option(read, question.options, rules)
        return letter, letter == question.gold
    if question.kind not in _PARSE:
        return None, False
    parse = _PARSE[question.kind]
    try:
        value = parse(read)
    except ValueError:
        return None, False
    try:
        return str(value), bool(value == parse(question.gold))
    except ValueError:
        return str(value), False


_PARSE: Mapping[str, Any] = {"integer": int, "float": float}


def _is_truthy_number(kind: str, text: str) -> bool:
    """Whether a number was read that Python does not take for False, as VLMEvalKit does with zero."""
    try:
        return bool(_PARSE[kind](text)) if kind in _PARSE else False
    except ValueError:
        return False


def is_right(question: Question, found: str, numbers: Numbers) -> bool:
    """Whether an extracted answer is the gold one, compared officially or as VLMEvalKit does."""
    if numbers == "vlmevalkit":
        return check(question, found, "2026-06")[1]
    gold = normalise(question, question.gold)
    return gold is not None and normalise(question, found) == gold


def normalise(question: Question, extraction: str) -> str | None:
    """The official form of an extracted answer: the words of an option, a whole number, a rounded one, a list.

    None where there is no such form. An extraction that is neither a letter nor an option's words gives None too; the
    authors take the option with the smallest edit distance instead (`nearest_option`).
    """
    if question.kind == "option":
        return _option_words(question.options, extraction)
    try:
        if question.kind == "integer":
            return str(int(float(extraction)))
        if question.kind == "float":
            return str(round(float(extraction), precision_of(question)))
        if question.kind == "list":
            return str(_as_list(extraction))
    except (ValueError, OverflowError, SyntaxError):
        return None
    return extraction.strip()


def _option_words(options: Mapping[str, str], extraction: str) -> str | None:
    letter = _letter(extraction)
    if letter in options:
        return options[letter]
    return extraction.strip() if extraction.strip() in options.values() else None


def _letter(extraction: str) -> str:
    """The first letter in brackets, or the whole extraction."""
    bracketed = _IN_BRACKETS.search(extraction)
    return bracketed[1].upper() if bracketed else extraction.strip()


def nearest_option(options: Mapping[str, str], extraction: str) -> str:
    """The authors' reading of any extraction: a letter's words, else the option at the smallest edit distance.

    >>> nearest_option({"A": "blue", "B": "green"}, "greenish")
    'green'
    """
    letter = _letter(extraction)
    return options.get(letter) or min(options.values(), key=lambda words: edit_distance(letter, words))


def edit_distance(a: str, b: str) -> int:
    """How many characters must be inserted, removed or changed to turn a into b.

    >>> edit_distance("kitten", "sitting"), edit_distance("", "abc")
    (3, 3)
    """
    row = list(range(len(b) + 1))
    for place, character in enumerate(a, start=1):
        diagonal, row[0] = row[0], place
        for column, other in enumerate(b, start=1):
            diagonal, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, diagonal + (character != other)),
            )
    return row[-1]


def precision_of(question: Question) -> int:
    """Decimal places of a float question: from its precision cell, else from its hint, else from its gold answer."""
    cell = question.fields.get("precision") or question.groups.get("precision", "")
    if cell not in ("", "nan", "None"):
        try:
            return int(float(cell))
        except ValueError:
            raise DataError(question.id, f"precision = {cell!r} is not a number of decimal places.") from None
    asked = question.fields.get("question", "")
    for words, places in _DECIMAL_PLACES.items():
        if words in asked:
            return places
    decimals = question.gold.partition(".")[2]
    return len(decimals) if decimals.isdigit() else _DEFAULT_PRECISION


def _as_list(text: str) -> list[Any]:
    values = ast.literal_eval(text.strip())
    if not isinstance(values, list | tuple):
        raise ValueError(f"{text!r} is not a list")
    return list(values)
