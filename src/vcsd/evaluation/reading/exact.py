"""`exact`: VLMEvalKit's rules, faults included. Use it only to compare with VLMEvalKit.

The rules were made for answers of a few words. They often fail on texts with reasoning, and a failure counts as wrong,
so the score is a lower bound. There are two sets of rules, named by the month they came into use:

2025-08   a letter counts only among the last four words (VLMEvalKit #1175)
2026-06   if that fails, "answer is X" is searched for, even where X begins a word (#1552)

Known faults, kept for parity: "The answer is clear" reads as C and "the answer is a dog" as A (2026-06); lower-case
letters, `$B$` and `"B"` are not read; neither is `**Yes**`, nor a yes after 32 full stops; an empty answer, or one like
"None" or "n/a", is read back from VLMEvalKit's table as "nan", in which an option such as "a" is found.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcsd.data.formats.vlmevalkit_tsv import MISSING

if TYPE_CHECKING:
    from collections.abc import Mapping

RULES = ("2025-08", "2026-06")

REFUSED = "Z"
"""The letter for an answer that declines to choose; it is never right."""

_NO_ANSWER = "Failed to obtain answer via API"
_REFUSALS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
_TO_SPACE = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_LAST_WORDS = 4
_ANSWER_IS = re.compile(r"answer\s+is\s+\**([A-D])", re.IGNORECASE)

_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_DIGIT_COMMA_DIGIT = re.compile(r"\d,\d")
_LONE_STOP = re.compile(r"(?<!\d)\.(?!\d)")
_STOPS_REMOVED = 32


def read_back(text: str) -> str:
    """Return the answer as VLMEvalKit's prediction table returns it: some words mean an empty cell there.

    >>> read_back("None"), read_back("None of them")
    ('nan', 'None of them')
    """
    return "nan" if text in MISSING else text


def read_option(text: str, options: Mapping[str, str], rules: str = "2026-06") -> str | None:
    """Read the letter of the chosen option, Z for a refusal, or None.

    >>> colours = {"A": "red", "B": "green"}
    >>> [read_option(text, colours) for text in (r"It is \\boxed{B}", "green", "A or B", "b", "The answer is a dog")]
    ['B', 'B', None, None, 'A']
    >>> read_option("The answer is a dog", colours, rules="2025-08") is None
    True
    """
    return _read_letter(text, options, rules) or _read_words(text, options)


def _read_letter(text: str, options: Mapping[str, str], rules: str) -> str | None:
    if _NO_ANSWER in text:
        return None
    if any(refusal in text for refusal in _REFUSALS):
        return REFUSED
    words = text.translate(_TO_SPACE).split()
    letters = [letter for letter in options if letter in words]
    if len(letters) == 1 and words.index(letters[0]) >= len(words) - _LAST_WORDS:
        return letters[0]
    if not letters and REFUSED in words:
        return REFUSED
    said = _ANSWER_IS.search(text) if rules == "2026-06" else None
    return said[1].upper() if said and said[1].upper() in options else None


def _read_words(text: str, options: Mapping[str, str]) -> str | None:
    """Find the only option whose words are in a short answer."""
    text = text.lower()
    if len(text) > 2 * sum(map(len, options.values())):
        return None
    named = [letter for letter, words in options.items() if words.lower() in text]
    return named[0] if len(named) == 1 else None


_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_PREFIXES = (
    *("The best answer is", "The correct answer is", "The answer is", "The answer"),
    *("The best option is", "The correct option is", "Best answer:", "Best option:"),
)
_FIVE = re.compile(r"[A-E]")


def read_first_letter(text: str) -> str | None:
    """Read MME-RealWorld's answers as VLMEvalKit does: the first of the letters A to E, wherever it stands.

    Faults, kept for parity: "Both dogs" reads as B, and an answer that consists of a known phrase alone as A.

    >>> [read_first_letter(text) for text in ("(D)", "The best answer is: C", "Both dogs", "the third one", "a")]
    ['D', 'C', 'B', None, 'A']
    """
    tagged = _TAGGED.search(text)
    text = (tagged[1].strip().upper() if tagged else text).strip()
    for prefix in _PREFIXES:
        text = text.replace(prefix, "")
    if letter := _FIVE.search(text):
        return letter[0]
    if len(text.split()) > 10:
        return None
    return next((letter for letter in "ABCDE" if text.lower() in f"({letter.lower()})"), None)


def read_yes_no(text: str) -> str | None:
    """Read Yes or No, if one of the words is in the answer and the other is not.

    >>> [read_yes_no(text) for text in ("Yes, it is.", "Answer: no", "**Yes**", "No, not yes")]
    ['Yes', 'No', None, None]
    """
    text = lowered = text.lower()
    has_number = _DIGIT_COMMA_DIGIT.search(text)
    for mark in _MARKS:
        is_loose = has_number or f"{mark} " in lowered or f" {mark}" in lowered
        text = text.replace(mark, "" if is_loose else " ")
    words = _LONE_STOP.sub("", text, count=_STOPS_REMOVED).split()
    says_yes, says_no = "yes" in words, "no" in words
    return None if says_yes == says_no else "Yes" if says_yes else "No"
