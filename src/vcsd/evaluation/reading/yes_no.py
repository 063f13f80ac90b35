"""Reads Yes or No from a text with reasoning.

The word counts if it is stated as the answer, stands at the beginning, or is set off by punctuation in the last
sentence. "No" before a noun ("no image was given") does not count, nor does "yes or no". A text that begins with one
and corrects itself to the other means the other. Without the word, a sentence that repeats the question answers it.
"""

from __future__ import annotations

import re

from vcsd.evaluation.reading.texts.question_words import NOTHING_ASKED, QuestionWords, says_whether
from vcsd.evaluation.reading.texts.refusals import refuses
from vcsd.evaluation.reading.texts.statements import Reading, is_complete, sentences, without_latex

_YES = r"yes|yep|yeah|true|correct"
_NO = r"no|nope|false|incorrect"
_WORD = re.compile(rf"\b(?:(?P<yes>{_YES})|(?P<no>{_NO}))\b", re.IGNORECASE)
_SET_OFF = re.compile(
    r"\s*(?:[,.;:!)\]\"'*}\n]|-\s|—|$)|\s+(?:it|the|they|this|that|there|these|those|he|she|we|i)\b", re.I
)
_BOTH = re.compile(r"\W{1,3}(?:or|and)\W{1,3}(?:an?\s+)?(?:yes|no)\b", re.IGNORECASE)
_YES_OR_NO = re.compile(rf"\b(?:yes|no){_BOTH.pattern}", re.IGNORECASE)
_MARKS = " \t\n*_\"'`$([{<:#>-"
_A = re.compile(
    r"(?:an?\s+)?(?:(?:most\s+likely|likely|probably|clearly|definitely|definite|clear|indeed|simply)[\s,]+)*", re.I
)

_CHINESE_NO = re.compile(
    r"^(?:不是|不对|不正确|不能|不会|否|没有|错误|错|不)(?![\u4e00-\u9fff]|$)|^(?:不是|不对|否|没有|不)$"
)
_CHINESE_YES = re.compile(r"^(?:是的|是|对的|对|正确|有)(?![\u4e00-\u9fff])")


def read_stated(payload: str, asked: QuestionWords = NOTHING_ASKED) -> Reading | None:
    """Read Yes or No in a statement; `found` is None if it says both, or makes a condition that was not asked for."""
    text = without_latex(payload)
    lead = text.lstrip(_MARKS)
    lead = lead[_A.match(lead).end() :].lstrip(_MARKS)  # type: ignore[union-attr]
    for word, pattern in (("No", _CHINESE_NO), ("Yes", _CHINESE_YES)):
        if chinese := pattern.match(lead):
            is_partly = _PARTLY.match(lead, chinese.end()) and not _makes_condition(asked)
            return Reading(None, "condition") if is_partly else Reading(word, "stated")
    said = None if _NUMBERED.match(lead) else _WORD.match(lead)
    if not said:
        return None
    after = lead[said.end() :]
    if _BOTH.match(after):
        return Reading(None, "both")
    if said[0].lower() in ("no", "true", "false", "correct", "incorrect") and not _SET_OFF.match(after):
        return None
    is_partly = _PARTLY.match(after) and not _makes_condition(asked)
    return Reading(None, "condition") if is_partly else Reading(_which(said), "stated")


def _makes_condition(asked: QuestionWords) -> bool:
    return asked.imagines or bool(re.search(r"\bwhen\b|当", asked.text, re.IGNORECASE))


_PARTLY = re.compile(
    r"[\s,;*_\"'-]*(?:but\s+|though\s+|and\s+)?(?:only\s+)?"
    r"(?:(?:if|when|unless|provided|assuming|as\s+long\s+as)\b(?!\s+(?:I|we|you|one)\b)|"
    r"(?:in\s+part|partly|partially|to\s+(?:some|a\s+certain)\s+(?:extent|degree)|not\s+(?:entirely|completely|fully|always))\b)|"
    r"[\s,;]*(?:但|不过)?(?:是|只)?(?:在|有|是)?(?:如果|假如|前提|只要|除非|部分)",
    re.IGNORECASE,
)
"""Yes, if ...; yes, but only in part."""
_NUMBERED = re.compile(r"no\.\s?\d", re.IGNORECASE)
"""No. 3: a number, not a denial."""


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
    r"\b(?:statement|claim|assertion|description|it|that|this)(?:\s+is|'s)\s+(?:an?\s+)?"
    r"(?:(?:most\s+)?likely\s+|probably\s+|clearly\s+)?"
    r"(?:(?P<yes>true|correct|right)|(?P<no>false|incorrect|wrong|untrue|not\s+(?:true|correct|right)))\b"
    r"(?!\s+(?:only|if|when|unless|for)\b)",
    re.IGNORECASE,
)
_IS_NOT_TRUE = re.compile(
    r"\b(?:statement|claim|assertion|description|it|that|this)\s+isn't\s+(?:(?P<yes>(?!))|(?P<no>true|correct|right))\b",
    re.IGNORECASE,
)

_CHINESE_IS_TRUE = re.compile(
    r"(?:[是为](?=[^,.]{1,3}的)|(?:说法|陈述|描述|命题|叙述)(?:是|为)?)"
    r"(?:(?P<no>错误|不正确|不对|错)|(?P<yes>正确|对))(?!吗|与否|还是|或)"
)


_LOOP = re.compile(r"^\W*(?:(?P<yes>(?:yes){3,}y?e?)|(?P<no>(?:no){3,}n?))\W*$", re.IGNORECASE)
"""Yesyesyes: one word in a loop, which may break off in the middle."""


def read_text(text: str, asked: QuestionWords = NOTHING_ASKED) -> Reading | None:
    """Read Yes or No in a text without a statement: its words, or a sentence that repeats the question."""
    text = without_latex(text)
    if loop := _LOOP.match(text):
        return Reading(_which(loop), "only words")
    said = _read_words(text, asked)
    if said is None and asked.text and (repeated := says_whether(text, asked)):
        return Reading(repeated, "repeated question")
    return said


def _read_words(text: str, asked: QuestionWords) -> Reading | None:
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
    first = read_stated(text, asked)
    if first is not None and not _NO_IDEA.match(text):
        return Reading(first.found, "beginning")
    return _last(pieces[-1]) if first is None and is_complete(text) else None


_NOT = re.compile(
    r"(?:\b(?:not|never|neither|nor)|n't)\s+(?:say\s+)?[\"'*]*$|"
    r"\b(?:maybe|perhaps|possibly|whether|if(?!\s+(?:I|we)\b)|some|someone|people|many|you)\b[^.]*$",
    re.IGNORECASE,
)
"""Before a word that is denied, doubted, or said by others."""


def _last(sentence: str) -> Reading | None:
    if _YES_OR_NO.search(sentence):
        return None
    said = {
        _which(found)
        for found in _WORD.finditer(sentence)
        if found[0].lower() in ("yes", "no")
        and _SET_OFF.match(sentence[found.end() :])
        and not _NOT.search(sentence[: found.start()])
    }
    if not said and not refuses(sentence):
        said = {
            _which(found)
            for pattern in (_IS_TRUE, _IS_NOT_TRUE, _CHINESE_IS_TRUE)
            for found in pattern.finditer(sentence)
            if not _NOT.search(sentence[: found.start()])
        }
    return Reading(said.pop() if len(said) == 1 else None, "last sentence") if said else None
