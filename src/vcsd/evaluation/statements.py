"""Where in a reasoned answer the answer is stated, before anything is read out of it.

A statement is a place that says "this is my answer": a box, an answer tag, "the answer is ...", a heading named Answer.
Statements are given last first: reasoning that changes its mind ends with what it means. What a model thinks between
<think> and </think> is not its answer; thinking that never ends has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

PAYLOAD_LENGTH = 300
"""Characters after "the answer is" that are looked at."""


@dataclass(frozen=True)
class Reading:
    """What was read, by which rule. `found` None: the answer is stated there, but names none or several.

    >>> Reading("B", "boxed").found
    'B'
    """

    found: str | None
    by: str


@dataclass(frozen=True)
class Statement:
    """A place where an answer is stated: what is stated, from which character on, and in what form."""

    payload: str
    start: int
    form: Literal["boxed", "tag", "declared"]


_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_PLAIN = str.maketrans({**_FULL_WIDTH, "。": ".", "、": ",", "−": "-", "\u3000": " ", "“": '"', "”": '"', "’": "'"})  # noqa: RUF001


def spoken(text: str) -> str | None:
    """The part of an answer that is meant for the reader, in plain signs; None if the model was still thinking.

    >>> spoken("<think>A or B?</think>Ｂ。"), spoken("<think>A or")
    ('B.', None)
    """
    before, closed, after = text.rpartition("</think>")
    if not closed and "<think>" in text:
        return None
    return (after if closed else text).translate(_PLAIN).strip()


_BOXED = re.compile(r"\\boxed\s*\{")
_TAG = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_DECLARED = re.compile(
    r"""
    (?: \b(?:answer|ans)\b [^.\n:=?]{0,40}? (?: \bis\b | \b(?:would|should|must|will)\ be\b | [:=] | \s-\s | \*{0,2}\s*\n )
      | \bans\.
      | \b(?:correct|right|best|final|selected|chosen|my)\ (?:option|choice|selection)\b [^.\n:=?A-Z]{0,20}?
        (?: \bis\b | \b(?:would|should|must|will)\ be\b | [:=] )
      | \bthe\ choice\ is\b
      | (?:答案|正确选项|最终结果)(?:应该|应当|应)?(?:是|为|选|[:=*\s])[:=*\s]*
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_IN_DOUBT = re.compile(r"\b(?:whether|if)\b[^.\n]{0,20}$", re.IGNORECASE)


def statements(text: str) -> list[Statement]:
    """The places where an answer is stated, the last one first."""
    found = [*_boxed(text), *_tagged(text), *_declared(text)]
    return sorted(found, key=lambda statement: statement.start, reverse=True)


def _boxed(text: str) -> Iterator[Statement]:
    for opening in _BOXED.finditer(text):
        depth = 1
        for place in range(opening.end(), len(text)):
            depth += (text[place] == "{") - (text[place] == "}")
            if depth == 0:
                yield Statement(text[opening.end() : place].strip(), opening.start(), "boxed")
                break


def _tagged(text: str) -> Iterator[Statement]:
    for tag in _TAG.finditer(text):
        yield Statement(tag[1].strip(), tag.start(), "tag")


def _declared(text: str) -> Iterator[Statement]:
    for said in _DECLARED.finditer(text):
        if not _IN_DOUBT.search(text[max(0, said.start() - 40) : said.start()]):
            payload = text[said.end() : said.end() + PAYLOAD_LENGTH].lstrip(" \t\n:*_#")
            yield Statement(payload.partition("\n")[0].strip(), said.start(), "declared")


_LATEX_WRAPPER = re.compile(r"\\(?:text|mathrm|mathbf|textbf|textit|mathit|mbox|rm|bf|operatorname)\s*\{([^{}]*)\}")


def without_latex(text: str) -> str:
    r"""The text without the LaTeX around words.

    >>> without_latex(r"\\(\\text{(B)} \\textbf{green}\\)")
    '(B) green'
    """
    return re.sub(r"\\[()\[\]]|\$|\\[,;! ]", "", _LATEX_WRAPPER.sub(r"\1", text))


_SENTENCE_END = re.compile(r"(?<=[!?])\s+|(?<=[^\W\d_][.])\s+|(?<=[\d)\]}\"'*$%°][.])\s+|(?<=[\u3040-\u9fff][.])|\n+")
_LABEL_ONLY = re.compile(r"^\W*[A-Za-z]\.$")
_FEW_WORDS = 6


def sentences(text: str) -> list[str]:
    """The sentences of a text. A label such as "B." stays with what follows it.

    >>> sentences("The sea is 3.5 m deep. Is it? So: B. blue")
    ['The sea is 3.5 m deep.', 'Is it?', 'So: B. blue']
    """
    found: list[str] = []
    for piece in _SENTENCE_END.split(text):
        if not piece or not piece.strip():
            continue
        if found and (_LABEL_ONLY.match(found[-1]) or re.search(r"(?:^|\W)[A-Z]\.$", found[-1])):
            found[-1] += f" {piece.strip()}"
        else:
            found.append(piece.strip())
    return found


def is_complete(text: str) -> bool:
    """Whether a text seems to have come to its end: it stops like a sentence, or is too short to be one.

    >>> is_complete("It is red."), is_complete("To find the colour of the car, we look at the")
    (True, False)
    """
    return text.rstrip(" *_`$\"')]}")[-1:] in ".!?%°" or len(text.split()) <= _FEW_WORDS
