"""Finds where a text with reasoning states its answer, before anything is read.

A statement is a passage that says "this is my answer": a box, an answer tag, "the answer is ...", a heading "Answer".
The last statement comes first: reasoning may change its mind, and its last word counts. Text between <think> and
</think> is not the answer; thinking that never ends has no answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from vcsd.evaluation.reading.refusals import after_refusal, asks_for_more, refuses

if TYPE_CHECKING:
    from collections.abc import Iterator

PAYLOAD_LENGTH = 300
"""Characters after "the answer is" that are considered."""

MOST_STATEMENTS = 30
"""Statements that are considered, from the end: a loop repeats "the answer is" thousands of times."""


@dataclass(frozen=True)
class Reading:
    """An answer and the rule that read it. `found` None: an answer is stated, but it is unreadable or ambiguous."""

    found: str | None
    by: str


@dataclass(frozen=True)
class Statement:
    """A passage that states an answer: its content, its first character, and its form."""

    payload: str
    start: int
    form: Literal["boxed", "tag", "declared", "chosen"]


_PLAIN: dict[int, str | int] = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}  # full width to half
_PLAIN |= {ord(sign): plain for sign, plain in zip("。、−\u3000“”’", '.,- ""\'', strict=True)}  # noqa: RUF001


def plain_signs(text: str) -> str:
    """Replace full-width signs by plain ones.

    >>> plain_signs("（３００，２７）")  # noqa: RUF002
    '(300,27)'
    """
    return text.translate(_PLAIN)


_SPECIAL = re.compile(r"</?s>|<\|[^|<>]{1,30}\|>")
_MANY_SPACES = re.compile(r"(\s)\1{2,}")
_MOST_COURTESIES = 3
_COURTESY = re.compile(
    r"(?:(?<=[.!?*\n`])|^)\s*(?:I\s+hope\s+(?:this|that|it)\b|(?:Please\s+)?(?:let|feel)\b(?:\s+me\s+know|\s+free)|"
    r"Is\s+there\s+anything\s+else|Do\s+you\s+(?:have|want|need)\b|Would\s+you\s+like)[^.!?\n]*[.!?]*\s*$",
    re.IGNORECASE,
)
"""Courtesies that an assistant adds at the end."""


def spoken(text: str) -> str | None:
    """Return the part of a text that is meant for the reader, in plain signs; None if the thinking never ends.

    >>> spoken("<think>A or B?</think>Ｂ。"), spoken("<think>A or")
    ('B.', None)
    """
    _before, closed, after = text.rpartition("</think>")
    if not closed and "<think>" in text:
        return None
    said = plain_signs(_SPECIAL.sub("", after if closed else text))
    said = _MANY_SPACES.sub(r"\1\1", said).strip()
    for _ in range(_MOST_COURTESIES):
        tail = max(0, len(said) - PAYLOAD_LENGTH)
        if courtesy := _COURTESY.search(said, tail):
            said = said[: courtesy.start()].rstrip()
    return said


_NEXT_QUESTION = re.compile(r"\n[\s*#]*(?:Question|Hint|Human|User|Problem|Q)\s*(?:\d+\s*)?:", re.IGNORECASE)
_WORDS_OF_A_REPLY = 5
_SAME_QUESTION = 40
"""Characters by which a repeated question is recognised."""


def first_reply(text: str, asked: str = "") -> tuple[str, bool]:
    r"""Return the text before a further question that the model asks itself, and whether that is a whole reply.

    It is not whole if it is very short, announces more, or if the further question is only the one asked, repeated.

    >>> first_reply("The answer is B.\n\nQuestion: How many legs has a spider?\nThe answer is 8.")
    ('The answer is B.', False)
    """
    further = _NEXT_QUESTION.search(text)
    if not further:
        return text, True
    reply = text[: further.start()].rstrip()
    is_repeated = bool(asked) and text[further.end() :].lstrip(" *\n").startswith(asked[:_SAME_QUESTION])
    return reply, not is_repeated and not reply.endswith(":") and len(reply.split()) >= _WORDS_OF_A_REPLY


_BOXED = re.compile(r"\\boxed\s*\{")
_TAG = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_GAP = r"(?:(?!\b(?-i:[A-HJ-Z])\b)[^.\n:=?]){0,100}?"
_SAYS = r"\bis\b | \b(?:would|should|must|will)\ be\b | [:=]"
_DECLARED = re.compile(
    rf"""
    (?: (?<!to\ )\b(?:answer|ans)\b {_GAP} (?: {_SAYS} | \s-\s | \*{{0,2}}\s*\n )
      | \bans\.
      | \b(?:correct|right|best|final|selected|chosen|my)\ (?:option|choice|selection)\b {_GAP} (?: {_SAYS} )
      | \bthe\ choice\ is\b
      | \bonly\ (?:option|choice)\ that\b {_GAP} (?: {_SAYS} )
      | \bfinal\ (?:value|integer|result|number)\b {_GAP} (?: {_SAYS} )
      | (?:答案|正确选项|最终结果)\s*(?:应该|应当|应)?\s*(?:是|为|选|[:=*\s])[:=*\s]*
      | (?<![A-Z\s个该])(?:选项|选择)\s*(?:应该|应当|应)?\s*(?:是|为|[:=])[:=*\s]*
      | ^\s*选项\s*[:=][:=*\s]*
      | 正确的\s*(?:应该|应当|应)?\s*(?:是|为)\s*[:*(]*(?=[A-H](?![A-Za-z]))
    )
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_DECLARES = re.compile(
    r"ans|correct|right|best|final|selected|chosen|my |only|the choice|答案|正确选项|正确的|最终结果|选项|选择"
)
"""Where a declaration may begin. A cheap first pass: the full pattern is slow on a long text."""
_CHOSEN = re.compile(
    r"\b(?:choose|select|pick|go\ with|lean(?:ing)?\ towards?)\b[\s:*]*"
    r"(?:(?:option|choice|answer)\b[\s:*]*)?(?=[(\"]?[A-Z]\b)"
)
_IS_CORRECT = re.compile(
    r"(?<![\w'])(?P<letter>[A-Z])[*)\".]*\s+(?:is|must\ be|seems)\s+(?:the\s+|clearly\s+|indeed\s+)*"
    r"(?:most\s+|only\s+)?(?:correct|best|answer|accurate|appropriate|closest\s+match|right(?!\s+(?!answer|choice|option|one\b|because|since|as\b)\w))\b"
    r"(?!\?)"
)
_CHINESE_CORRECT = re.compile(r"(?<![A-Za-z])([A-H])\s*(?:选项|项)?\s*(?:是|为)?\s*正确(?!吗|与否)")
"""B选项正确. If several letters are called correct, none is chosen."""
_NONE_BEFORE = re.compile(
    r"\b(?:none|neither|nor|not|no|only\s+if|whether)\b[^.\n]{0,60}$|\b[A-Z]\)?\s*(?:,|,?\s*(?:and|or|nor))\s*(?:option\s+)?\(?$|"
    r"[∠△⊙°=+\u00d7/*<>-]\s*\(?$|\b(?:angle|triangle|point|line|arc|side|segment|vertex|circle)\s+\(?$"
)
"""Before a letter that is not chosen: "none of A, B, C, D is correct", "angle B is right"."""
_CHOICE_WORDS = ("choose", "select", "pick", "go with", "lean")
_PRAISE = ("correct", "answer", "right", "best", "accurate", "appropriate", "closest")
_IN_BRACKETS = re.compile(r"[^.\n]{0,40}\(([A-Z])\)")
_LABEL = re.compile(r"\W*\(?([A-Z])[).:]")
_ENTRY = re.compile(r"[A-Za-z][^:=.\n]{0,40}:\s*[$£€]?\d")
_ASKED = re.compile(r"[^.!\n]{0,40}\?")
_IN_DOUBT = re.compile(
    r"\b(?:whether|if)\b[^.\n]{0,20}$|\b(?:for\s+example|for\s+instance|e\.g\.|suppose|let's\s+say)\b[^.\n]{0,160}$|"
    r"\bif\b[^.\n]{0,120}\bthen\s+(?:the|our|your)\s+(?:final\s+)?$|\b(?:not|cannot|can't)\s+(?:the\s+|an?\s+|one\s+of\s+the\s+)?$",
    re.IGNORECASE,
)
"""Before a statement that is only considered, an example, or denied."""
_LONGEST_DOUBT = 200
_IS_GIVEN = re.compile(r"\b(?:when|at|if|for|where|with|substitut\w+|plug\w*|let|set)\b[^=]*=$", re.IGNORECASE)
"""The final value when x = ...: what follows is not the answer."""


def statements(text: str) -> list[Statement]:
    """Find the passages that state an answer, the last one first. Some forms apply to options only."""
    tagged = (Statement(tag[1].strip(), tag.start(), "tag") for tag in _TAG.finditer(text))
    found = [*_boxed(text), *tagged, *_declared(text), *_chosen(text)]
    return sorted(found, key=lambda statement: statement.start, reverse=True)[:MOST_STATEMENTS]


def _boxed(text: str) -> Iterator[Statement]:
    for opening in [*_BOXED.finditer(text)][-MOST_STATEMENTS:]:
        depth = 1
        for place in range(opening.end(), len(text)):
            depth += (text[place] == "{") - (text[place] == "}")
            if depth == 0:
                yield Statement(text[opening.end() : place].strip(), opening.start(), "boxed")
                break


def _declared(text: str) -> Iterator[Statement]:
    lowered = text.lower()
    places = _DECLARES.finditer(lowered if len(lowered) == len(text) else text)
    for said in filter(None, (_DECLARED.match(text, place.start()) for place in places)):
        payload, _, after = text[said.end() : said.end() + PAYLOAD_LENGTH].lstrip(" \t\n:*_#").partition("\n")
        label, next_label = _LABEL.match(payload), _LABEL.match(after)
        is_list = label and next_label and label[1] != next_label[1]
        is_list = is_list or (_ENTRY.match(payload) and _ENTRY.match(after))
        if (
            not is_list
            and not _IS_GIVEN.search(said[0])
            and not _ASKED.match(payload)
            and not _IN_DOUBT.search(text[max(0, said.start() - _LONGEST_DOUBT) : said.start()])
        ):
            yield Statement(payload.strip(), said.start(), "declared")


def _chosen(text: str) -> Iterator[Statement]:
    for said in _CHOSEN.finditer(text) if any(word in text for word in _CHOICE_WORDS) else ():
        yield Statement(text[said.end() : said.end() + PAYLOAD_LENGTH].partition("\n")[0], said.start(), "chosen")
    for said in _IS_CORRECT.finditer(text) if any(word in text for word in _PRAISE) else ():
        other = _IN_BRACKETS.match(text, said.end())
        is_other = other and other[1] != said["letter"]  # "Point D is the correct point (C)"
        if not is_other and not _NONE_BEFORE.search(text[max(0, said.start() - 80) : said.start()]):
            yield Statement(said["letter"], said.start(), "chosen")
    praised = [*_CHINESE_CORRECT.finditer(text)] if "正确" in text else []
    if len({said[1] for said in praised}) == 1:
        yield Statement(praised[-1][1], praised[-1].start(), "chosen")


_LATEX_WRAPPER = re.compile(r"\\(?:text|mathrm|mathbf|textbf|textit|mathit|mbox|rm|bf|operatorname)\s*\{([^{}]*)\}")


def without_latex(text: str) -> str:
    r"""Remove the LaTeX around words.

    >>> without_latex(r"\(\text{(B)} \textbf{green}\)")
    '(B) green'
    """
    if "\\" not in text:
        return text.replace("$", "")
    return re.sub(r"\\[()\[\]]|\$|\\[,;! ]", "", _LATEX_WRAPPER.sub(r"\1", text))


_THEREFORE = re.compile(
    r"^\W*(?:(?:therefore|thus|hence|consequently|in\s+conclusion|in\s+summary|to\s+conclude|overall)\b|所以|因此|综上|故)",
    re.IGNORECASE,
)
_SO = re.compile(
    r"^\W*(?:so|finally|as\s+a\s+result|based\s+on|in\s+this\s+case|given\s+(?:this|these|the))\b", re.IGNORECASE
)
_SUPPOSES = re.compile(
    r"^\W*(?:for\s+(?:example|instance)|e\.g\.|suppose|imagine|let's\s+(?:say|assume|suppose)|例如|比如|假设)",
    re.IGNORECASE,
)
_NEAR_THE_END = 4


def conclusions(text: str, *, has_ended: bool) -> list[str]:
    """Return the concluding sentences: the last one, if the text is complete, and a "therefore" near the end.

    After a refusal only a "therefore" concludes anything. Requests and examples never do.

    >>> conclusions("There are 3 cats. Therefore, 4 are left. All of them are black.", has_ended=True)
    ['Therefore, 4 are left.', 'All of them are black.']
    >>> conclusions("I cannot see the 2 cats. Please show me the 2 cats.", has_ended=True)
    []
    """
    pieces = [piece for piece in sentences(text) if "|" not in piece]  # rows of a table conclude nothing
    tail = [piece for piece in pieces[-_NEAR_THE_END:] if not (asks_for_more(piece) or _SUPPOSES.match(piece))]
    if not has_ended and tail and tail[-1] is pieces[-1]:
        tail, last = tail[:-1], []
    else:
        last = tail[-1:]
    if pieces[:1] and tail and tail[0] is not pieces[0] and refuses(pieces[0]) and not after_refusal(pieces[0]):
        tail = [piece for piece in tail if refuses(piece) or concludes(piece)]
        last = [piece for piece in last if concludes(piece)]
    refusals = [place for place, piece in enumerate(tail) if refuses(piece)]
    if refusals:
        rest = [after_refusal(tail[refusals[-1]]), *tail[refusals[-1] + 1 :]]
        return [piece for place, piece in enumerate(rest) if piece and (place == 0 or concludes(piece))][-1:]
    therefore = [piece for piece in tail[: len(tail) - len(last)] if _THEREFORE.match(piece)]
    return therefore[-1:] + last


def concludes(sentence: str) -> bool:
    """Whether a sentence begins with "therefore", "so" or the like."""
    return bool(_THEREFORE.match(sentence) or _SO.match(sentence))


_SENTENCE_END = re.compile(r"(?<=[!?])\s+|(?<=[^\W\d_][.])\s+|(?<=[\d)\]}\"'*$%°][.])\s+|(?<=[\u3040-\u9fff][.])|\n+")
_ENDS_WITH_LABEL = re.compile(r"(?:^|[\s:(*])[A-Z]\.$")
_LABEL_ONLY = re.compile(r"^\W*[A-Za-z]\.$")
_FEW_WORDS = 6
_FEW_CHARACTERS = 80
"""Chinese has no spaces between words."""


def sentences(text: str) -> list[str]:
    """Split a text into sentences. A label such as "B." stays with the text after it.

    >>> sentences("The sea is 3.5 m deep. Is it? So: B. blue")
    ['The sea is 3.5 m deep.', 'Is it?', 'So: B. blue']
    """
    return [*_sentences(text)]


@lru_cache(maxsize=64)
def _sentences(text: str) -> tuple[str, ...]:
    """Split a text. The readers ask for the sentences of one text several times."""
    found: list[str] = []
    for piece in _SENTENCE_END.split(text):
        if not piece or not piece.strip():
            continue
        if (
            found
            and found[-1][-2:-1].isalpha()
            and (_LABEL_ONLY.match(found[-1]) or _ENDS_WITH_LABEL.search(found[-1]))
        ):
            found[-1] += f" {piece.strip()}"
        else:
            found.append(piece.strip())
    return tuple(found)


def _is_short(text: str) -> bool:
    return len(text.split()) <= _FEW_WORDS and len(text) <= _FEW_CHARACTERS


def is_complete(text: str) -> bool:
    """Whether a text seems complete: it ends like a sentence, or is too short to be one.

    >>> is_complete("It is red."), is_complete("To find the colour of the car, we look at the")
    (True, False)
    """
    return text.rstrip(" *_`$\"')]}")[-1:] in ".!?%°" or (
        len(text.split()) <= _FEW_WORDS and len(text) <= _FEW_CHARACTERS
    )
