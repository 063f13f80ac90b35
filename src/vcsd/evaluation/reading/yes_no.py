"""Reads Yes or No from a text with reasoning.

The word counts if it is stated as the answer, stands at the beginning, or is set off by punctuation in the last
sentence. "No" before a noun ("no image was given") does not count, nor does "yes or no". A text that begins with one
and corrects itself to the other means the other. Without the word, a sentence that repeats the question answers it.
"""

from __future__ import annotations

import re

from vcsd.evaluation.reading.question_words import NOTHING_ASKED, QuestionWords, says_whether
from vcsd.evaluation.reading.statements import Reading, is_complete, sentences, without_latex

_YES = r"yes|yep|yeah|true|correct"
_NO = r"no|nope|false|incorrect"
_WORD = re.compile(rf"\b(?:(?P<yes>{_YES})|(?P<no>{_NO}))\b", re.IGNORECASE)
_SET_OFF = re.compile(
    r"\s*(?:[,.;:!)\]\"'*}]|-\s|—|$)|\s+(?:it|the|they|this|that|there|these|those|he|she|we|i)\b", re.I
)
_BOTH = re.compile(r"\W{1,3}(?:or|and)\W{1,3}(?:yes|no)\b", re.IGNORECASE)
_MARKS = " \t\n*_\"'`$([{<:#>-"
_A = re.compile(
    r"(?:an?\s+)?(?:(?:most\s+likely|likely|probably|clearly|definitely|definite|clear|indeed|simply)[\s,]+)*", re.I
)

_CHINESE_NO = re.compile(
    r"^(?:不是|不对|不正确|不能|不会|否|没有|错误|错|不)(?![\u4e00-\u9fff]|$)|^(?:不是|不对|否|没有|不)$"
)
_CHINESE_YES = re.compile(r"^(?:是的|是|对的|对|正确|有)(?![\u4e00-\u9fff])")


def read_stated(payload: str) -> Reading | None:
    """Read Yes or No in a statement; `found` is None if it says both."""
    text = without_latex(payload)
    lead = text.lstrip(_MARKS)
    lead = lead[_A.match(lead).end() :].lstrip(_MARKS)  # type: ignore[union-attr]
    if _CHINESE_NO.match(lead):
        return Reading("No", "stated")
    if _CHINESE_YES.match(lead):
        return Reading("Yes", "stated")
    said = _WORD.match(lead)
    if not said:
        return None
    after = lead[said.end() :]
    if _BOTH.match(after):
        return Reading(None, "both")
    if said[0].lower() in ("no", "true", "false", "correct", "incorrect") and not _SET_OFF.match(after):
        return None
    return Reading(_which(said), "stated")


def _which(said: re.Match[str]) -> str:
    return "Yes" if said["yes"] else "No"


_CORRECTS = re.compile(
    rf"\b(?:actually|wait|correction|on\s+second\s+thoughts?|looking\s+again)\b[^.\n]{{0,20}}?\b(?:(?P<yes>{_YES})|(?P<no>{_NO}))\b(?=\s*[,.:;!]|\s*$)",
    re.IGNORECASE,
)
_NO_IDEA = re.compile(r"\W*no,?\s+(?:i|we)\s+(?:can\s?not|can't|am\s+unable|don't|do\s+not)\b", re.IGNORECASE)
"""No, I cannot tell."""
_ALONE = re.compile(rf"^\W*(?:(?P<yes>{_YES})|(?P<no>{_NO}))\W*$", re.IGNORECASE)
_ONLY_WORDS = re.compile(rf"^(?:\W*\b(?:{_YES}|{_NO})\b)+\W*$", re.IGNORECASE)
_IS_TRUE = re.compile(
    r"\b(?:statement|claim|assertion|description|it|that|this)\s+is\s+(?:(?P<yes>true|correct|right)|(?P<no>false|incorrect|wrong|not\s+(?:true|correct|right)))\b",
    re.IGNORECASE,
)

_CHINESE_IS_TRUE = re.compile(r"[是为](?:(?P<no>错误|不正确|不对|错)|(?P<yes>正确|对))的")


def read_text(text: str, asked: QuestionWords = NOTHING_ASKED) -> Reading | None:
    """Read Yes or No in a text without a statement: its words, or a sentence that repeats the question."""
    text = without_latex(text)
    said = _read_words(text)
    if said is None and asked.text and (repeated := says_whether(text, asked)):
        return Reading(repeated, "repeated question")
    return said


def _read_words(text: str) -> Reading | None:
    if _ONLY_WORDS.match(text):
        said = {_which(found) for found in _WORD.finditer(text)}
        return Reading(said.pop() if len(said) == 1 else None, "only words")
    if corrected := [*_CORRECTS.finditer(text)]:
        return Reading(_which(corrected[-1]), "correction")
    pieces = sentences(text)
    if not pieces:
        return None
    if alone := _ALONE.match(pieces[-1]):
        return Reading(_which(alone), "last sentence")
    first = read_stated(text)
    if first is not None and not _NO_IDEA.match(text):
        return Reading(first.found, "beginning")
    return _last(pieces[-1]) if first is None and is_complete(text) else None


_NOT = re.compile(r"(?:\b(?:not|never|neither|nor)|n't)\s+[\"'*]*$", re.IGNORECASE)


def _last(sentence: str) -> Reading | None:
    said = {
        _which(found)
        for found in _WORD.finditer(sentence)
        if found[0].lower() in ("yes", "no")
        and _SET_OFF.match(sentence[found.end() :])
        and not _NOT.search(sentence[: found.start()])
    }
    if not said:
        said = {_which(found) for pattern in (_IS_TRUE, _CHINESE_IS_TRUE) for found in pattern.finditer(sentence)}
    return Reading(said.pop() if len(said) == 1 else None, "last sentence") if said else None
