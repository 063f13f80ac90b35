"""Decides whether two different answers in one text contradict each other, or the later one corrects the earlier.

"The answer is 70. ... The answer is 45." states two answers, and a careful reader cannot know which is meant. A word of
correction between them, a box, a tag, or "Final answer:" says which.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcsd.evaluation.reading.texts.statements import Statement

_TAKES_BACK = re.compile(
    r"""
    \b(?:wait|actually|correction|correct(?:ed|ing)\s+(?:my|this|that|the)|oops|sorry|apolog\w+|on\s+second\s+thoughts?|
       in\s+fact|hmm+|mistook|reconsider\w*|re-?evaluat\w*|re-?check\w*|re-?examin\w*|re-?calculat\w*|re-?count\w*|re-?do|
       re-?think|re-?assess\w*|re-?visit\w*|revis(?:ed?|ing|ion)|double-?\s?check\w*|initial(?:ly)?|at\s+first|
       previous(?:ly)?|misread|misinterpret\w*|overlooked|looking\s+again|closer\s+(?:look|inspection)|try\s+again)\b
  | \b(?:made|was|is|contains?|an?)\s+(?:an?\s+|my\s+)?(?:mistake|error)\b
  | \b(?:this|that|it|which|I|we|answer|result)\s+(?:is|was|were|am|seems?)\s+(?:\w+\s+)?
       (?:wrong|incorrect|mistaken|not\s+(?:correct|right))\b
  | \bno\s*[,!] | (?<=[.!?]\s)No\.\s
  | 更正|纠正|修正|重新|实际上|其实|事实上|(?<=[.,])不对|错了|等等|再看|再次|仔细看
  | (?:这个?|上述|之前的?|前面的?)答案?[^.]{0,3}(?:错误|有误)
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""What was said before does not hold."""
_CHOOSES_NEAREST = re.compile(
    r"\b(?:clos(?:est|er)\s+(?:to|option|choice|match|answer|one)|nearest|"
    r"(?:do|does)(?:\s+not|n't)\s+(?:include|contain|list|appear|match)|"
    r"not\s+(?:listed|among|one\s+of|available|an\s+option)|none\s+of\s+the)\b",
    re.IGNORECASE,
)
"""39.99 is not among the options, so the closest one is chosen."""
_CORRECT = re.compile(
    r"\b(?:correct|right|actual|true)\s+(?:final\s+)?(?:answer|option|choice|value|result)\b|正确的?(?:答案|选项)",
    re.IGNORECASE,
)
_FINALLY = re.compile(r"\W*(?:my\s+|the\s+|our\s+)?(?:final|concluding)\b|最终|最后", re.IGNORECASE)
_FINAL_BEFORE = re.compile(r"\bfinal\W*$|最[终后]\W*$", re.IGNORECASE)
_OF_A_PART = re.compile(
    r"\b(?:partial|intermediate|sub|first|second|third|previous|next|other|each|possible|another|preliminary)[\s-]+$|"
    r"\bmethod\b[^.\n]{0,12}$",
    re.IGNORECASE,
)
_TO_A_PART = re.compile(
    r"(?:answer|ans|result|value|option|choice)s?\s+(?:to|for|of|in|from|at|with|after|before)\s+"
    r"(?!(?:the|this|that|your|our|a)\s+(?:\w+\s+)?(?:question|problem|puzzle|query|task|exercise)\b)",
    re.IGNORECASE,
)
"""The answer to the first part is ...: not yet the answer."""
_ROUNDABOUT = re.compile(r",|\b(?:which|can|by|determined|found|if|method)\b", re.IGNORECASE)
"""The answer can be found by looking at the largest city, which is ..."""
_NEAR = 30


def is_corrected(text: str, earlier: Statement, later: Statement) -> bool:
    """Whether the text says between two statements, or with the later one, that the earlier one does not hold."""
    said = _SENTENCE_END.search(text, earlier.start)
    start, end = said.end() if said else earlier.start, _end(text, later.start)
    if is_taken_back(text, earlier, later) or _CHOOSES_NEAREST.search(text, start, later.start):
        return True
    is_corrected_now = _CORRECT.search(text, later.start, end) or _CORRECT.search(
        text, max(start, later.start - _NEAR), end
    )
    return bool(is_corrected_now) and not _CORRECT.search(text, max(0, earlier.start - _NEAR), start)


def is_taken_back(text: str, earlier: Statement, later: Statement) -> bool:
    """Whether a word of correction stands between two statements."""
    said = _SENTENCE_END.search(text, earlier.start)
    return bool(_TAKES_BACK.search(text, said.end() if said else earlier.start, later.start))


_SENTENCE_END = re.compile(r"[.!?;]|\n")


def _end(text: str, start: int) -> int:
    """Return the end of the words that introduce a statement: "the correct answer is"."""
    return min(len(text), start + _NEAR)


def takes_back(text: str) -> bool:
    """Whether a text has a word of correction: wait, actually, 更正."""
    return bool(_TAKES_BACK.search(text) or _CHOOSES_NEAREST.search(text))


def decides(text: str, statement: Statement) -> bool:
    """Whether a statement is marked as the final answer: a box, a tag, or the word."""
    start = max(0, statement.start - _NEAR // 2)
    before = text[start : statement.start].rpartition("\n")[2]
    words = text[statement.start : _end(text, statement.start)]
    return statement.form in ("boxed", "tag") or bool(_FINALLY.match(words) or _FINAL_BEFORE.search(before))


def is_about_a_part(text: str, statement: Statement) -> bool:
    """Whether a statement answers only a part of the question: "the answer to part (a) is 12"."""
    before = text[max(0, statement.start - _NEAR) : statement.start]
    head = text[statement.start :].partition(statement.payload[:_NEAR] or "\n")[0]
    return bool(_OF_A_PART.search(before) or _TO_A_PART.match(head) or _ROUNDABOUT.search(head))


def is_alone(text: str, statement: Statement) -> bool:
    """Whether a statement is the last line of a text: "Answer: C"."""
    is_last_line = "\n" not in text[statement.start :]
    return is_last_line and text[: statement.start].rstrip(" *#_").endswith("\n")
