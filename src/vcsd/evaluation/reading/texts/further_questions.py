"""Finds where a text stops answering and continues with questions of its own.

Models that were trained on lists of questions invent further ones. Their answers are not answers to what was asked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from vcsd.evaluation.reading.texts.formulas import formula
from vcsd.evaluation.reading.texts.statements import statements

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEXT_QUESTION = re.compile(
    r"\n[\s*#]{0,12}(?:(?:next|second|new|another|follow-?up)\s+)?"
    r"(?:(?:Question|Hint|Human|User|Problem|Exercise|Input|Q|问题|题目)\s*(?:\d+\s*)?:|(?:Problem|Exercise|Question)\s*\d+\.\s)|"
    r"\n\s{0,4}#{1,6}\s{0,4}(?:Question|Problem|Exercise)\s*\d*\s*\n",
    re.IGNORECASE,
)
_FURTHER = re.compile(
    r"(?<=[.!?\n])\s{0,4}(?:(?:now|next|here|then|also)\b,?\s*)?(?:(?:here\s+)?(?:is|comes)\s+|"
    r"(?:let's|let\s+us|let\s+me|we)\s+(?:consider|look\s+at|take|try|ask|answer|turn\s+to)\s+|consider\s+|for\s+)?(?:an?\s+)?"
    r"\b(?:second|third|next|new|another|further|follow-?up)\s+(?:question|problem|exercise)\b[\w\s]{0,20}:(?=[^?]{2,400}\?)|"
    r"(?:下一个?|第二个?|第三个?|另一个?|新的?)(?:问题|题目|题)\s*:(?=[^?]{2,200}\?)",
    re.IGNORECASE,
)
"""Now, a second question: ..., also within a line."""
_NUMBERED_QUESTION = re.compile(
    r"(?:\n\s{0,4}|(?<=[.!?])\s{1,2}|(?<=[\u4e00-\u9fff][.]))[*#(Qq]{0,3}(\d{1,2})\s?[.):,]\s{0,2}"
    r"(?=[^\n?]{0,120}?\b(?i:which|what|how|who|whose|where|why)\b|(?i:is|are|was|were|does|do|did|can|has|have)\s|"
    r"[^\n?]{0,60}?[哪几谁吗什])[^\n?]{2,200}\?(?![\"'A-Za-z0-9])"
)
"""2. Which is red? After a stated answer, this is a question of the model's own."""
_WORDS_OF_A_REPLY = 5
_SAME_QUESTION = 40
"""Characters by which a repeated question is recognised."""
Ends = Literal["whole", "part", "unclear", "foreign"]


def first_reply(text: str, asked: str = "") -> tuple[str, Ends]:
    r"""Return the text before a further question that the model asks itself, and whether that is a whole reply.

    It is only a part if it is very short, announces more, or if the further question is only the one asked, repeated.
    Before a list of questions that begins with 1 it is unclear: the list may explain the answer. If the text begins
    with a numbered question too, its reply may be to a foreign one.

    >>> first_reply("The answer is B.\n\nQuestion: How many legs has a spider?\nThe answer is 8.")
    ('The answer is B.', 'part')
    """
    headed = min(filter(None, (_NEXT_QUESTION.search(text), _FURTHER.search(text))), key=re.Match.start, default=None)
    numbered = _own_question(text[: headed.start()] if headed else text)
    further = numbered or headed
    if not further:
        return text, "whole"
    reply = text[: further.start()].rstrip()
    question = further[0].lstrip("\n *#(Qq0123456789.:,)") if numbered else text[further.end() :].lstrip(" *\n")
    if bool(asked) and question.startswith(asked[:_SAME_QUESTION]):
        return reply, "part"
    if numbered:
        is_foreign = _NUMBERED_QUESTION.match(f"\n{reply}")
        return reply, "foreign" if is_foreign else "unclear" if numbered[1] == "1" else "whole"
    is_part = reply.endswith(":") or len(reply.split()) < _WORDS_OF_A_REPLY
    return reply, "part" if is_part else "whole"


def _own_question(text: str) -> re.Match[str] | None:
    """Find a numbered question after a stated answer."""
    if "?" not in text:
        return None
    numbered = _NUMBERED_QUESTION.search(text)
    return numbered if numbered and statements(text[: numbered.start()]) else None


_QUESTION = re.compile(
    r"(?:^|\n|(?<=[.!?])\s|(?<=[\u4e00-\u9fff][.?]))[\s\u200b]{0,4}(?P<lead>[*#(-]{0,3}(?:(?:Question|Q|问题|题目)?\s?\d{0,2}\s?[.):]|[-*•])?)\s{0,3}"
    r"(?P<words>[^\n?.!:]{4,200}\?)(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_FEWEST_CHARACTERS = 5
_SIGNS = re.compile(r"[\W_]+")


def reply_to_repeated(text: str, asked: str) -> str | None:
    r"""Return the reply to the question asked, if a text begins with it and continues with others; else None.

    >>> reply_to_repeated("1. Is it red?\nYes.\n2. Is it round?\nNo.", "Is it red?")
    'Yes.'
    """
    questions = [*_QUESTION.finditer(text)] if asked and text.count("?") > 1 else []
    if len(questions) < 2 or questions[0].start() > 0 or not _is_same(questions[0]["words"], asked):
        return None
    opening = _SIGNS.sub(" ", questions[0]["words"].lower()).split()[:1]
    for question in questions[1:]:
        is_alike = bool(question["lead"]) or _SIGNS.sub(" ", question["words"].lower()).split()[:1] == opening
        is_alike = is_alike or text[question.end() : question.end() + 1] == "\n"
        if is_alike and not _is_same(question["words"], asked):
            return text[questions[0].end() : question.start()].strip()
    return None


def _is_same(question: str, asked: str) -> bool:
    said, own = _SIGNS.sub("", question.lower()), _SIGNS.sub("", asked.lower())
    return len(said) >= _FEWEST_CHARACTERS and (own.startswith(said) or said.startswith(own[:_SAME_QUESTION]))


_OTHER_LIST = re.compile(
    r"(?:^|\n)(?P<question>[^\n]{4,300}(?:\?|\(\s*\)|[是为]:?))[ \t]*\n+"
    r"(?P<list>(?:[\s*(]*[A-H][).:][^\n]{1,60}(?:\n+|$)){3,})"
)
_THIRD = re.compile(r"\n[\s*(]*C[).:]")
_ITEM = re.compile(r"^[\s*(]*([A-H])[).:]\s*(.*?)\s*$", re.MULTILINE)


def before_other_options(text: str, options: Mapping[str, str]) -> str:
    r"""Return the text before a question with options of its own, none of which is one of those given; else the text.

    >>> before_other_options("Which fruit?\nA. fig\nB. plum\nC. pear\nAnswer: C", {"A": "red", "B": "blue"})
    ''
    """
    own = [formula(words) for words in options.values() if words] if _THIRD.search(text) else []
    for listed in _OTHER_LIST.finditer(text) if own else ():
        items = [formula(words) for _, words in _ITEM.findall(listed["list"])]
        if not any(item and (item in words or words in item) for item in items for words in own):
            return text[: listed.start()].strip()
    return text
