"""Finds where a text judges options one by one: "A is correct, B is wrong", 选项B和D是错误的.

A judgement is not yet a choice. If a second option is called right too, or the text breaks off before the next one,
nothing is chosen; and an option that is called wrong is chosen only if the question asks for the wrong one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class OptionJudgement:
    """Letters that are called right or wrong, and where."""

    letters: frozenset[str]
    is_right: bool
    start: int
    end: int


_ENGLISH = re.compile(
    r"(?<![\w'])(?:(?i:options?|choices?|statements?|answers?)\s+)?[*(\"]*"
    r"(?P<letters>[A-H](?:[)*\"]*\s*(?:,\s*(?:and|or)\b|,|&|/|\band\b|\bor\b|\bnor\b)\s*(?:(?i:options?|choices?)\s+)?[*(\"]*[A-H]){0,7})"
    r"(?![A-Za-z])[)*\".:]*\s+(?:is|are|was|were|seems?|appears?|looks?|must\s+be)(?P<short>n't)?\s+"
    r"(?:(?:to\s+be|also|both|all|clearly|indeed|therefore|thus|the|an?|likely|most|only|obviously|definitely|(?P<not>not))\s+)*"
    r"(?:(?P<right>correct|right(?!\s+(?!answer|choice|option|one\b|because|since|as\b|and\b|but\b|too\b)\w)|true|accurate|valid)"
    r"|(?P<wrong>incorrect|wrong|false|inaccurate|invalid|untrue|ruled\s+out|excluded|eliminated))\b(?!\?)"
)
_CHINESE = re.compile(
    r"(?<![A-Za-z])(?P<letters>[A-H](?:[)*]*\s*(?:选项|项)?\s*(?:以及|和|与|及|或|,)\s*(?:选项)?\s*[*(]*[A-H]){0,7})(?![A-Za-z])"
    r"[)*]*\s*(?:选项|项)?\s*[:,]?\s*(?:[两二三四]个?(?:选项|项)|的?(?:说法|描述|叙述|表述|结论|观点))?\s*(?:都|均|也|就|才|则|显然|应该|应)*\s*(?:是|为)?\s*"
    r"(?:(?P<not>不)?(?P<right>正确|对(?![应于称])|符合)|(?P<wrong>错误|错|有误|被?排除|不成立))"
    r"(?!的?\s*(?:吗|么|选项|答案|一项|是)|与否|性)"
)
_EXCLUDES = re.compile(
    r"排除[了掉]?\s*(?:选项)?\s*(?P<letters>[A-H](?:\s*(?:选项|项)?\s*(?:以及|和|与|及|或|,)\s*(?:选项)?\s*[A-H])*)(?P<not>)(?P<right>(?!))?"
)
_CUES = ("correct", "right", "true", "ccurate", "valid", "wrong", "false", "ruled", "excluded", "eliminated")
_HAN_CUES = ("正确", "对", "符合", "错", "有误", "排除", "不成立")


@lru_cache(maxsize=64)
def judgements(text: str) -> tuple[OptionJudgement, ...]:
    """Find the judgements in a text. Cached, because the readers ask several times about the same text.

    >>> [(sorted(one.letters), one.is_right) for one in judgements("A is right. Options B and C are not correct.")]
    [(['A'], True), (['B', 'C'], False)]
    """
    return tuple(_find(text))


def _find(text: str) -> Iterator[OptionJudgement]:
    for pattern, cues in ((_ENGLISH, _CUES), (_CHINESE, _HAN_CUES), (_EXCLUDES, _HAN_CUES)):
        for said in pattern.finditer(text) if any(cue in text for cue in cues) else ():
            is_denied = bool(said["not"] or (pattern is _ENGLISH and said["short"]))
            letters = frozenset(re.findall("[A-H]", said["letters"]))
            yield OptionJudgement(letters, bool(said["right"]) != is_denied, said.start("letters"), said.end())


def rivals(text: str) -> frozenset[str]:
    """Return the options that are called right, if there are several; else nothing.

    >>> sorted(rivals("Option A is correct. Option C is also correct.")), sorted(rivals("A is right. B is wrong."))
    (['A', 'C'], [])
    """
    right: set[str] = set()
    for one in judgements(text):
        right = right | one.letters if one.is_right else right - one.letters
    return frozenset(right) if len(right) > 1 else frozenset()


def called_wrong(text: str) -> frozenset[str]:
    """Return the options that a text calls wrong, also those of a list with a verdict in each line.

    >>> sorted(called_wrong("A. 甲大于乙。这是错误的。\\nB选项正确。\\nD项有误。"))
    ['A', 'D']
    """
    listed = {line[1] for line in _WRONG_LINE.finditer(text)}
    return frozenset(listed.union(*(one.letters for one in judgements(text) if not one.is_right)))


_WRONG_LINE = re.compile(
    r"^[\s*#(-]{0,8}(?:选项|(?i:option\s+))?\(?([A-H])[).:,*]+\s*(?=\S)[^\n]*?(?:\n[\s*-]{1,8}[^\n]*?)?"
    r"(?:错误的|不正确|\b(?:is|are|was)\s+(?:clearly\s+)?(?:incorrect|wrong|false|not\s+(?:true|correct|right))\b)",
    re.MULTILINE,
)


def goes_on_with_another(text: str, end: int, letter: str) -> bool:
    """Whether a text goes through the options, and breaks off at a later one than this.

    >>> text = "(A) is correct. (B) is wrong. (C) is"
    >>> goes_on_with_another(text, 14, "A")
    True
    """
    later = {label[1] or label[2] for label in _NEXT_OPTION.finditer(text, end)} - {letter}
    return bool(later) and text.rstrip(" *_`$\"')]}")[-1:] not in (".", "!", "?", "%", "°")


_NEXT_OPTION = re.compile(
    r"\n[\s*#(-]{0,8}(?:(?i:option|choice)\s|选项)?\s?\(?([A-H])(?=[).:,*\s选项是]|$)|"
    r"[.;!?]\s*(?:(?i:option|choice)\s+\(?|选项\s?|\()([A-H])(?=[).:,*\s选项是]|$)"
)
