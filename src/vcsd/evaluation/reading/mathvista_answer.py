"""Compares answers of MathVista in one of three ways.

official     as its authors do: an integer is truncated, a float is rounded to the question's precision, an option is
             replaced by its words (so either of two equal options is right), and the results are compared as text. The
             gold answer is normalised too: no answer could match `0.50`, because rounding drops the 0.
nearest      as official, but guesses where the authors do: an extraction that is not an option counts as the option at
             the smallest edit distance, and an empty one as the shortest option.
vlmevalkit   as VLMEvalKit does: integers and floats must be equal without rounding; lists are always wrong; an option
             is its letter.

VLMEvalKit's exact route reads twice. First the answer: a letter by its option rules, or a number, which is kept only if
it equals gold. The reading is written to a table, read back, and checked. This has faults that only `exact` reproduces:
a correct 0 counts as not read; `3.0` is not an integer; if nothing was read, the table gives "nan", in which an option
such as "a" or "n" is found.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcsd.errors import DataError
from vcsd.evaluation.benchmarks.files.python_lists import read_list
from vcsd.evaluation.reading.exact import read_back, read_option
from vcsd.evaluation.reading.texts.statements import plain_signs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vcsd.evaluation.benchmarks.benchmark import Numbers
    from vcsd.types import Question

NOTHING_READ = "nan"

_IN_BRACKETS = re.compile(r"\(([a-zA-Z])\)")
_DECIMAL_PLACES = {"with one decimal place": 1, "with two decimal places": 2}
_DEFAULT_PRECISION = 2


def read_first(question: Question, text: str, rules: str) -> str | None:
    """Read as VLMEvalKit does without a judge: any option, or the number if it is the gold one."""
    text = read_back(text)
    if question.kind == "option":
        return read_option(text, question.options, rules)
    number, is_right = check(question, text, rules)
    return text if is_right and float(number or 0) else None  # VLMEvalKit treats zero as no number


def check(question: Question, read: str, rules: str) -> tuple[str | None, bool]:
    """Apply VLMEvalKit's second reading to the first one or to a judge's reply; also return whether it is right."""
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


_PARSE: Mapping[str, Callable[[str], float]] = {"integer": int, "float": float}


def is_right(question: Question, found: str, numbers: Numbers) -> bool:
    """Whether an extracted answer is the gold one, in one of the three ways to compare."""
    if numbers == "vlmevalkit":
        return check(question, found, "2026-06")[1]
    gold = normalise(question, question.gold)
    if numbers == "nearest" and question.kind == "option":
        return gold is not None and nearest_option(question.options, found) == gold
    return gold is not None and normalise(question, found) == gold


def normalise(question: Question, extraction: str) -> str | None:
    """Return the official form of an extracted answer: an option's words, a whole number, a rounded one, a list.

    Returns None if there is no such form. An extraction that is neither a letter nor an option's words also gives None;
    the authors take the option with the smallest edit distance instead (`nearest_option`).
    """
    if question.kind == "option":
        letter, words = _letter(extraction), extraction.strip()
        return question.options.get(letter, words if words in question.options.values() else None)
    try:
        if question.kind == "integer":
            return str(int(float(extraction)))
        if question.kind == "float":
            return str(round(float(extraction), precision_of(question)))
        if question.kind == "list":
            return str(read_list(extraction))
    except (ValueError, OverflowError):
        return None
    # Free text is rare in MathVista, but common in users' own files.
    return " ".join(plain_signs(extraction).split()).removesuffix(".").casefold()


def _letter(extraction: str) -> str:
    """Return the first letter in brackets, or the whole extraction."""
    bracketed = _IN_BRACKETS.search(extraction)
    return bracketed[1].upper() if bracketed else extraction.strip()


def nearest_option(options: Mapping[str, str], extraction: str) -> str:
    """Read any extraction as the authors do: a letter's words, else the option at the smallest edit distance.

    >>> nearest_option({"A": "blue", "B": "green"}, "greenish")
    'green'
    """
    letter = _letter(extraction)
    return options.get(letter) or min(options.values(), key=lambda words: edit_distance(letter, words))


def edit_distance(a: str, b: str) -> int:
    """Count the characters that must be inserted, removed or changed to turn a into b.

    >>> edit_distance("kitten", "sitting"), edit_distance("", "abc")
    (3, 3)
    """
    row = list(range(len(b) + 1))
    for place, character in enumerate(a, start=1):
        diagonal, row[0] = row[0], place
        for column, other in enumerate(b, start=1):
            distance = min(row[column] + 1, row[column - 1] + 1, diagonal + (character != other))
            diagonal, row[column] = row[column], distance
    return row[-1]


def precision_of(question: Question) -> int:
    """Return the decimal places of a float question: from its precision cell, its hint, or its gold answer."""
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
