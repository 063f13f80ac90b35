"""Decides whether two different answers in one text contradict each other, or the later one corrects the earlier.

"The answer is 70. ... The answer is 45." states two answers, and a careful reader cannot know which is meant. A word of
correction between them, a box, a tag, or "Final answer:" says which.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcsd.evaluation.reading.statements import Statement

_CORRECTS = re.compile(
    r"""
    \b(?:wait|actually|correct(?:ion|ed|ing)|oops|sorry|apolog\w+|on\s+second\s+thoughts?|in\s+fact|hmm+|instead|rather|
       mistake[ns]?|mistook|errors?|erroneous\w*|wrong(?:ly)?|incorrect(?:ly)?|reconsider\w*|re-?evaluat\w*|re-?check\w*|
       re-?examin\w*|re-?calculat\w*|re-?count\w*|re-?do|re-?think|re-?assess\w*|re-?read\w*|re-?visit\w*|revis\w+|
       double-?\s?check\w*|initial(?:ly)?|at\s+first|previous(?:ly)?|misread|misinterpret\w*|overlooked|looking\s+again|
       closer\s+(?:look|inspection)|not\s+(?:correct|right|true)|try\s+again|once\s+more|doesn't\s+match|does\s+not\s+match|
       none\s+of\s+the|clos(?:est|er)\s+(?:to|option|choice|match|answer|one)|nearest|
       (?:do|does)(?:\s+not|n't)\s+(?:include|contain|list|appear)|not\s+(?:listed|among|one\s+of|available|an\s+option))\b
  | \bno\s*[,!] | \bno\.\s | \b(?:so|therefore|thus|hence)\b,?\s+the\s+(?:correct|right|actual|true)\b
  | \b(?:correct|right|actual|true)\s+(?:final\s+)?(?:answer|option|choice|value|result)\b
  | 更正|纠正|修正|重新|实际上|其实|事实上|不对|错了|错误|有误|等等|再看|再次|仔细看|应该是|正确的?(?:答案|选项)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FINALLY = re.compile(r"\W*(?:my\s+|the\s+|our\s+)?(?:final|concluding)\b|最终|最后", re.IGNORECASE)
_FINAL_BEFORE = re.compile(r"\bfinal\W*$|最[终后]\W*$", re.IGNORECASE)
_OF_A_PART = re.compile(
    r"\b(?:partial|intermediate|sub|first|second|third|previous|next|other|each|possible|another|preliminary)[\s-]+$",
    re.IGNORECASE,
)
_TO_A_PART = re.compile(
    r"(?:answer|ans|result|value|option|choice)s?\s+(?:to|for|of|in|from|at|with|after|before)\s+"
    r"(?!(?:the|this|that|your|our|a)\s+(?:\w+\s+)?(?:question|problem|puzzle|query|task|exercise)\b)",
    re.IGNORECASE,
)
"""The answer to the first part is ...: not yet the answer."""
_NEAR = 30


def is_corrected(text: str, earlier: Statement, later: Statement) -> bool:
    """Whether the text says between two statements, or with the later one, that the earlier one does not hold."""
    return bool(_CORRECTS.search(text, earlier.start, _end(text, later.start)))


def _end(text: str, start: int) -> int:
    """Return the end of the words that introduce a statement: "the correct answer is"."""
    return min(len(text), start + _NEAR)


def takes_back(text: str) -> bool:
    """Whether a text has a word of correction: wait, actually, 更正."""
    return bool(_CORRECTS.search(text))


def decides(text: str, statement: Statement) -> bool:
    """Whether a statement is marked as the final answer: a box, a tag, or the word."""
    start = max(0, statement.start - _NEAR // 2)
    before = text[start : statement.start].rpartition("\n")[2]
    words = text[statement.start : _end(text, statement.start)]
    return statement.form in ("boxed", "tag") or bool(_FINALLY.match(words) or _FINAL_BEFORE.search(before))


def is_about_a_part(text: str, statement: Statement) -> bool:
    """Whether a statement answers only a part of the question: "the answer to part (a) is 12"."""
    before = text[max(0, statement.start - _NEAR) : statement.start]
    return bool(_OF_A_PART.search(before) or _TO_A_PART.match(text, statement.start))


def is_alone(text: str, statement: Statement) -> bool:
    """Whether a statement is the last line of a text: "Answer: C"."""
    is_last_line = "\n" not in text[statement.start :]
    return is_last_line and text[: statement.start].rstrip(" *#_").endswith("\n")
