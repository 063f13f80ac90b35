"""Reads answers to questions about what is missing: "Which of these is NOT in the image?".

Here an option that the picture shows is wrong. "The image does not contain a sink. It shows a mouse." chooses the sink.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcsd.evaluation.reading.option_words import patterns
from vcsd.evaluation.reading.texts.statements import Reading, sentences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.reading.texts.question_words import QuestionWords

_PICTURE = r"(?:image|picture|photo|photograph|scene|figure|drawing|frame)"
_ASKS = re.compile(
    rf"\b(?:which|what)\b[^?.]*?(?:\bnot|n't|\babsent|\bmissing)\b[^?.:]*\b(?:{_PICTURE}|visible|present|shown|seen|depicted)\b",
    re.IGNORECASE,
)
_PRESENCE = re.compile(
    rf"\b(?:contain|show|include|depict|feature|display)(?:s|ed|ing)?\b|\b(?:has|have|see|seen|visible|present|there)\b|"
    rf"\bin\s+(?:the|this)\s+{_PICTURE}\b|\bpart\s+of\b|\bappears?\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:not|no|cannot|neither|nor|never|absent|missing|without)\b|n't\b", re.IGNORECASE)
_DOUBT = re.compile(
    r"\b(?:if|whether|clear|clearly|sure|certain|might|may|could|possibl[ey]|appears?\s+to\s+be|both|all)\b|\?",
    re.IGNORECASE,
)
_TURN = re.compile(
    r"[;,]?\s+\b(?:but|however|while|whereas|instead|although|though)\b|;|,\s+(?=(?:it|there|which)\b)|,?\s+and\s+(?=(?:it|there)\b)",
    re.IGNORECASE,
)


def asks_for_absent(asked: QuestionWords) -> bool:
    """Whether the question asks what a picture does not show."""
    return bool(_ASKS.search(asked.text))


def affirms_presence(sentence: str) -> bool:
    """Whether a sentence says that something is in the picture."""
    return bool(_PRESENCE.search(sentence)) and not _NEGATION.search(sentence)


def read_absent(text: str, options: Mapping[str, str], asked: QuestionWords) -> Reading | None:
    """Read the only option that a text says is not in the picture, if the question asks for it.

    >>> from vcsd.evaluation.reading.texts.question_words import QuestionWords
    >>> question = QuestionWords("Which of these is NOT in the image: (A) mouse or (B) sink?")
    >>> read_absent("There is no sink in the image. It shows a mouse.", {"A": "mouse", "B": "sink"}, question).found
    'B'
    """
    if not asks_for_absent(asked) or _DOUBT.search(text):
        return None
    denied: set[str] = set()
    affirmed: set[str] = set()
    for sentence in sentences(text):
        for clause in _TURN.split(sentence):
            named = {letter for letter, pattern in patterns(tuple(options.items())) if pattern.search(clause)}
            num_negations = len(_NEGATION.findall(clause))
            if num_negations > 1 or (num_negations and named and not _PRESENCE.search(clause)):
                return None
            (denied if num_negations else affirmed).update(named)
    return Reading(denied.pop(), "not in the picture") if len(denied) == 1 and not denied & affirmed else None
