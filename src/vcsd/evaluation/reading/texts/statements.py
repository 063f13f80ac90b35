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

from vcsd.evaluation.reading.texts.judgements import goes_on_with_another, judgements, rivals
from vcsd.evaluation.reading.texts.refusals import after_refusal, asks_for_more, refuses

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
    is_weak: bool = False
    """A condition, a quoted instruction or vague praise: counts only if nothing else is stated."""
    is_imagined: bool = False
    """If the lamp were off, the answer would be ...: counts only if the question imagines something too."""
    is_void: bool = False
    """An example, or what a reference says: never counts, nor does its sentence at the end of a text."""
    after: str = ""
    """What stands after the praise of an option."""
    is_verdict: bool = False
    """B is correct: chooses nothing if the question asks for the wrong one."""


_PLAIN: dict[int, str | int] = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}  # full width to half
_PLAIN |= {ord(sign): plain for sign, plain in zip("。、−\u3000“”’‘", ".,- \"\"''", strict=True)}  # noqa: RUF001


def plain_signs(text: str) -> str:
    """Replace full-width signs by plain ones.

    >>> plain_signs("（３００，２７）")  # noqa: RUF002
    '(300,27)'
    """
    return text.translate(_PLAIN)


_NEXT_TURN = re.compile(r"<\|im_start\|>\s*(?:user|human)\b|\[INST\]", re.IGNORECASE)
"""Where a model continues with the user's turn."""
_OWN_TURN = re.compile(
    r"\s*(?:(?:user|human)\s*:.{0,4000}?\n\s*)?(?:assistant|gpt|助手)\s*:\s*(?=\S)", re.IGNORECASE | re.DOTALL
)
"""The beginning of the model's turn, after the user's turn repeated or not."""
_CONCLUSION = re.compile(r"<conclusion>\s*(\S.*?)\s*(?:</conclusion>|\Z)", re.IGNORECASE | re.DOTALL)
"""The part of a text in sections that answers; the sections before it reason."""
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
    own = after if closed else text
    turn = _NEXT_TURN.search(own)
    own = own[: turn.start()] if turn and own[: turn.start()].strip() else own
    said = plain_signs(_SPECIAL.sub("", own))
    if turn := _OWN_TURN.match(said):
        said = said[turn.end() :]
    if "<conclusion>" in said.lower() and (sections := _CONCLUSION.findall(said)):
        said = sections[-1]
    said = _MANY_SPACES.sub(r"\1\1", said).strip()
    for _ in range(_MOST_COURTESIES):
        tail = max(0, len(said) - PAYLOAD_LENGTH)
        if courtesy := _COURTESY.search(said, tail):
            said = said[: courtesy.start()].rstrip()
    return said


_BOXED = re.compile(r"\\boxed\s*\{")
_TAG = re.compile(r"<(answer|final[_ ]answer)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
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
      | 答案[\]】][:=*\s]*
      | (?:答案|正确选项|最终结果)\s*(?:应该|应当|应)?\s*(?:是|为|选|[:=*\s])[:=*\s]*
      | (?<![A-Z\s个该])(?:选项|选择)\s*(?:应该|应当|应)?\s*(?:是|为|[:=])[:=*\s]*
      | ^\s*选项\s*[:=][:=*\s]*
      | (?<!不)正确的\s*(?:应该|应当|应)?\s*(?:是|为)\s*[:*(]*(?=[A-H](?![A-Za-z]))
    )
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_DECLARES = re.compile(
    r"ans|correct|right|best|final|selected|chosen|my |only|the choice|答案|正确选项|正确的|最终结果|选项|选择"
)
"""Where a declaration may begin. A cheap first pass: the full pattern is slow on a long text."""
_CHOSEN = re.compile(
    r"\b(?:choose|select|pick|go(?:ing)?\ with|lean(?:ing)?\ towards?)\b[\s:*]*"
    r"(?:(?:option|choice|answer)\b[\s:*]*)?(?=[(\"]?[A-Z]\b)"
)
_IS_CORRECT = re.compile(
    r"(?<![\w'])(?P<letter>[A-Z])[*)\".]*\s+(?:is|must\ be|seems)\s+(?:the\s+|clearly\s+|indeed\s+|also\s+)*"
    r"(?:most\s+|only\s+)?(?:correct|best|answer|accurate|appropriate|closest\s+match|right(?!\s+(?!answer|choice|option|one\b|because|since|as\b)\w))\b"
    r"(?!\?)"
)
_NONE_BEFORE = re.compile(
    r"\b(?:none|neither|nor|not|no|only\s+if|whether|doubt|false)\b[^.\n]{0,60}$|\b[A-Z]\)?\s*(?:,|,?\s*(?:and|or|nor))\s*(?:option\s+)?\(?$|"
    r"[∠△⊙°=+\u00d7/*<>-]\s*\(?$|\b(?:angle|triangle|point|line|arc|side|segment|vertex|circle)\s+\(?$"
)
"""Before a letter that is not chosen: "none of A, B, C, D is correct", "angle B is right"."""
_CHOICE_WORDS = ("choose", "select", "pick", "go with", "going with", "lean")
_PRAISE = ("correct", "answer", "right", "best", "accurate", "appropriate", "closest")
_IN_BRACKETS = re.compile(r"[^.\n]{0,40}\(([A-Z])\)")
_LABEL = re.compile(r"\W*\(?([A-Z])[).:]")
_ENTRY = re.compile(r"[A-Za-z][^:=.\n]{0,40}:\s*[$£€]?\d")
_ASKED = re.compile(r"[^.!\n]{0,40}\?")
_OTHERS = r"(?:you|one|some|someone|somebody|anyone|people|those|many|others|students?|they)"
_IN_DOUBT = re.compile(
    rf"""
    \b(?:whether|if)\b[^.\n]{{0,20}}$
  | (?:\b(?:for\s+example|for\s+instance|suppose|imagine|assum(?:e|ing)|let's\s+say)\b|\be\.g\.)[^.\n]{{0,160}}$
  | \bif\b[^.\n]{{0,220}}\bthen\s+(?:the|our|your)\s+(?:final\s+)?$
  | \b(?:not|cannot|can't)\s+(?:the\s+|an?\s+|one\s+of\s+the\s+)?$
  | \b{_OTHERS}\b[^.,;\n]{{0,40}}\b(?:think|say|argue|believe|claim|assume|guess|object|conclude)s?\b[^.,;\n]{{0,20}}$
  | \b(?:tempting|wrong|incorrect|mistake|error|false|misleading|doubt(?:ful)?|unlikely|not\s+true)\s+
        (?:is\s+|would\s+be\s+)?(?:to|that)\b[^.,;\n]{{0,40}}$
  | \b(?:thought|believed|assumed|guessed)\b[^.,;\n]{{0,30}}$
  | \b(?:wrong|incorrect|worst|false|least\s+\w+|(?:second|third|next)[-\s]best)\s+$
  | \bin\s+(?:(?:the|an?|my)\s+)?(?:previous|other|another|next|last|similar|different)\s+
        (?:question|problem|example|part|case|puzzle|exercise)\b[^.\n]{{0,30}}$
  | \b(?:unless|otherwise|in\s+which\s+case)\b[^.\n]{{0,60}}$
  | (?:例如|比如|假设|有人|以为)[^.\n;]{{0,40}}$ | (?:错误|不正确|不对)的?$
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Before a statement that is only considered, an example, a belief of others, or denied."""
_VOID_BEFORE = re.compile(
    r"\b(?:examples?(?:\s+of)?(?:\s+an)?|sample)\s+$|\b(?:example|sample)s?\s*:\s*(?:the\s+|correct\s+)*$|(?:示例|样例)\s*:?\s*$|"
    r"\b(?:(?:reference|given|provided|official|expected|original)\s+(?:solution|answer|explanation)|(?:answer|solution)\s+key|"
    r"textbook|solution\s+manual|teacher|author)s?\b\s*(?:,\s*(?:the\s+)?|(?:suggest|say|state|claim|indicate|give|impl(?:y|ie)|assert|conclude)s?\b"
    r"[^.;\n]{0,40})$|"
    r"\b(?:reference|given|provided|official)\s+$|"
    r"(?:参考解答|参考解析|参考答案|标准答案|题目|题目中)(?:中?给出的?|认为|说|显示|表明)[^.;\n]{0,10}$",
    re.IGNORECASE,
)
"""Before an example, or an answer that is only reported."""
_VOID_AFTER = re.compile(
    r"[\s,:(*]*(?:something\s+like\b|(?:for\s+(?:example|instance)\b|e\.g\.|例如|比如|譬如))|"
    r"[^.\n]{0,60}[,(]\s*(?:for\s+(?:example|instance)|e\.g\.)\s*[).]*\s*$",
    re.IGNORECASE,
)
_IMAGINED = re.compile(
    r"\bif\s+(?!(?:I|we|you|one|anything|so)\b)(?:(?!\b(?:so|therefore|hence|thus|means?)\b)[^.\n]){0,120}$|"
    r"(?:^|[.;:!?\n]\s*)(?:had|were|should)\s[^.\n]{0,80}$|(?:如果|假如|若|倘若)(?:(?!所以|因此|故)[^.\n]){0,40}$",
    re.IGNORECASE,
)
"""A condition before a statement: if the lamp were off."""
_INSTRUCTION = re.compile(
    r"\b(?:with|form(?:at)?|say|write|writing|as|like|phrase|sentence|words?|template|style)\b[^.\n\"'`]{0,30}[\"'`]"
    r"(?:so|therefore|the|my|our|final|correct|[\s,*])*$",
    re.IGNORECASE,
)
"""End with "the answer is ...": how an answer is to be written."""
_NOT_TAKEN = re.compile(
    r"(?:\bnot|n't|\bnever|\bcannot)\s+(?:\w+\s+){0,2}$|\bif\s+(?:you|we|I|one|they)\s+(?:\w+\s+)?$|(?:^|[.!?\n]\s*)To\s+$|"
    r"\b(?:wrong|incorrect|mistake|error)\s+(?:is\s+|would\s+be\s+)?to\s+$|"
    r"\b(?:some|someone|somebody|anyone|people|those|many|others|students)\b(?:(?!\b(?:so|I|we)\b)[^.,;\n])*$",
    re.IGNORECASE,
)
"""Before "choose" where nothing is chosen."""
_VERDICT = re.compile(r"(?:correct|right|accurate)$")
_ANSWER_AFTER = re.compile(r"\s+(?:answer|choice|option|one)\b")
"""B is correct judges what B says; B is the correct answer chooses it."""
_ONLY_IF = re.compile(r"(?:\s+(?:answer|choice|option))?,?\s+(?:only\s+)?(?:if|when|unless)\b")
_VAGUE = re.compile(r"\s+(?!answer|choice|option|one\b|because|since|as\b|match|here|and|for\b|based|given|due)[a-z]")
"""After praise that may be about something else: B is the best known shape."""
_EXPLAINED_BY = re.compile(
    r"(?:\w+ly\s+)?(?:grounded|based|supported|evident|derived|indicated|confirmed|because)\b", re.IGNORECASE
)
_THIS = re.compile(r"\bthis\s+(?:\w+\s+)?$", re.IGNORECASE)
_NEAR_THIS = 20
"""This answer is grounded in the legend: says why, and states nothing."""
_LONGEST_DOUBT = 260
_OPENING = re.compile(
    r"\A[ \t\n:*_#]*(?:(?:\\\[|\$\$)\s*\n\s*(?=(?:\\(?:text|textbf|mathrm|mathbf)\s*\{\s*)?\(?[A-H]"
    r"(?:[.:)][^\n]*|\}[^\n=]*|\s*)(?:\n|\Z))(?![^\n]*\\boxed)(?![\s\S]*\\\]\s*\\\[))?"
)
"""Before the content of a statement, which may be an option on a line of its own, typeset as a formula."""
_OPEN_QUOTE = re.compile(r"(?<!\w)'(?:\w|$)")
_IS_GIVEN = re.compile(r"\b(?:when|at|if|for|where|with|substitut\w+|plug\w*|let|set)\b[^=]*=$", re.IGNORECASE)
"""The final value when x = ...: what follows is not the answer."""


def statements(text: str) -> list[Statement]:
    """Find the passages that state an answer, the last one first. Some forms apply to options only."""
    tags = _TAG.finditer(text) if "</" in text else ()  # without an end, each tag would be searched to the end
    tagged = (Statement(tag[2].strip(), tag.start(), "tag") for tag in tags)
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
        payload, _, after = _OPENING.sub("", text[said.end() : said.end() + PAYLOAD_LENGTH]).partition("\n")
        label, next_label = _LABEL.match(payload), _LABEL.match(after)
        is_list = label and next_label and label[1] != next_label[1]
        is_list = is_list or (_ENTRY.match(payload) and _ENTRY.match(after))
        if (
            not is_list
            and not _IS_GIVEN.search(said[0])
            and not _ASKED.match(payload)
            and not (
                _EXPLAINED_BY.match(payload) and _THIS.search(text, max(0, said.start() - _NEAR_THIS), said.start())
            )
            and not _IN_DOUBT.search(before := _sentence_before(text, said.start()))
        ):
            is_conditional = bool(_IMAGINED.search(before))
            is_weak = is_conditional or bool(_INSTRUCTION.search(before))
            is_imagined = is_conditional and "would" in said[0]
            is_void = bool(_VOID_BEFORE.search(_head(before + said[0])) or _VOID_AFTER.match(payload))
            payload = payload.replace("'", "", 1) if _OPEN_QUOTE.search(before) else payload
            yield Statement(payload.strip(), said.start(), "declared", is_weak, is_imagined, is_void)


def _head(sentence: str) -> str:
    """Return what stands before the last "answer" of a sentence."""
    place = max(sentence.lower().rfind("answer"), sentence.rfind("答案"))
    return sentence[:place] if place >= 0 else sentence


def _sentence_before(text: str, end: int) -> str:
    """Return the beginning of the sentence in which a statement stands."""
    line = text[max(0, end - _LONGEST_DOUBT) : end].rpartition("\n")[2]
    earlier, stop, sentence = line.rpartition(". ")
    return f"{earlier[-3:]}{stop}{sentence}" if earlier[-3:].lower() == "e.g" else sentence


def _chosen(text: str) -> Iterator[Statement]:
    for said in _CHOSEN.finditer(text) if any(word in text for word in _CHOICE_WORDS) else ():
        if not _NOT_TAKEN.search(text[max(0, said.start() - 80) : said.start()]):
            yield Statement(text[said.end() : said.end() + PAYLOAD_LENGTH].partition("\n")[0], said.start(), "chosen")
    praise = [*_IS_CORRECT.finditer(text)] if any(word in text for word in _PRAISE) else []
    others = rivals(text) if praise else frozenset()
    for said in praise:
        other = _IN_BRACKETS.match(text, said.end())
        is_other = other and other[1] != said["letter"]  # "Point D is the correct point (C)"
        is_verdict = bool(_VERDICT.search(said[0])) and not _ANSWER_AFTER.match(text, said.end())
        is_passing = said["letter"] in others or goes_on_with_another(text, said.end(), said["letter"])
        if is_other or _ONLY_IF.match(text, said.end()) or (is_verdict and is_passing):
            continue
        before = _sentence_before(text, said.start())
        if not _NONE_BEFORE.search(text[max(0, said.start() - 80) : said.start()]) and not _IN_DOUBT.search(before):
            after = text[said.end() : said.end() + PAYLOAD_LENGTH]
            is_vague = bool(_VAGUE.match(text, said.end()))
            yield Statement(said["letter"], said.start(), "chosen", is_vague, after=after, is_verdict=is_verdict)
    yield from _praised_in_chinese(text) if "正确" in text else ()


def _praised_in_chinese(text: str) -> Iterator[Statement]:
    """Find B选项正确, unless several letters are called right, or the text breaks off at a later one."""
    praised = [one for one in judgements(text) if one.is_right and "正确" in text[one.start : one.end]]
    letters = frozenset[str]().union(*(one.letters for one in praised))
    if len(letters) != 1 or re.search(r"(?:说|如果|若)$", text[: praised[-1].start].removesuffix("选项").rstrip()):
        return
    (letter,), last = letters, praised[-1]
    if not goes_on_with_another(text, last.end, letter):
        is_verdict = not _ANSWER_BEFORE.search(text[max(0, last.start - _NEAR_LABEL) : last.start])
        after = text[last.end : last.end + PAYLOAD_LENGTH]
        yield Statement(letter, last.start, "chosen", after=after, is_verdict=is_verdict)


_ANSWER_BEFORE = re.compile(r"答案[^.\n]{0,8}$")
_NEAR_LABEL = 20


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
    r"^\W*(?:for\s+(?:example|instance)|e\.g\.|suppose|assume|imagine|let's\s+(?:say|assume|suppose)|例如|比如|假设)",
    re.IGNORECASE,
)
_ONLY_EXAMPLE = re.compile(
    r"\W*(?:(?:for\s+(?:example|instance)|e\.\s?g\.|such\s+as)(?!\w)|examples?\s*[:-]|例如|比如|譬如|示例|举例)",
    re.IGNORECASE,
)
_EXEMPLIFIES = re.compile(
    r"\b(?:could|may|might|can|would|is|are)\b[^.]{0,20}?[,(]\s*(?:for\s+(?:example|instance)|e\.g\.)|"
    r"(?:答案|可以|可能)(?:可以|可能)?是?[,(]?(?:例如|比如|譬如)",
    re.IGNORECASE,
)
"""It could be, for example, 4: one of several values."""
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
    tail = [piece for piece in pieces[-_NEAR_THE_END:] if not (asks_for_more(piece) or _is_example(piece))]
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


def _is_example(sentence: str) -> bool:
    return bool(_SUPPOSES.match(sentence) or _EXEMPLIFIES.search(sentence))


def only_exemplifies(text: str) -> bool:
    """Whether a text is one sentence, and that an example.

    >>> only_exemplifies("e.g. the answer is B"), only_exemplifies("It is B, e.g. because of the lamp.")
    (True, False)
    """
    return bool(_ONLY_EXAMPLE.match(text)) and len(sentences(text)) == 1


_COUNTERFACTUAL = re.compile(
    r"^\W*(?:\w+,?\s+){0,2}if\s+(?!(?:I|we|you|one)\b)[^.?]{0,120}?\b(?:were|was|had)\b[^.?]{0,120}?\b(?:would|could|might)\b|"
    r"^[^.?,]{0,40}\bwould\b[^.?]{0,80}?\bif\s+(?!(?:I|we|you|one)\b)[^.?]{0,80}?\b(?:were|was|had)\b|"
    r"^\W*(?:had|were)\s[^.?]{0,120}?\bwould\b|^\W*(?:如果|假如|倘若|要是)[^.?]{0,60}会",
    re.IGNORECASE,
)
_CONDITIONS = ("would", "could", "might", "会")


def without_imagined(text: str) -> str:
    """Remove hypothetical sentences near the end.

    >>> without_imagined("It is red. If the lamp were on, it would be green.")
    'It is red.'
    """
    if not any(word in text for word in _CONDITIONS):
        return text
    for sentence in sentences(text)[-_NEAR_THE_END:]:
        if len(sentence) <= PAYLOAD_LENGTH and _COUNTERFACTUAL.search(sentence):
            text = text.replace(sentence, "").strip()
    return text


def concludes(sentence: str) -> bool:
    """Whether a sentence begins with "therefore", "so" or the like."""
    return bool(_THEREFORE.match(sentence) or _SO.match(sentence))


_SENTENCE_END = re.compile(r"(?<=[!?])\s+|(?<=[^\W\d_][.])\s+|(?<=[\d)\]}\"'*$%°][.])\s+|(?<=[\u3040-\u9fff][.])|\n+")
_ENDS_WITH_LABEL = re.compile(r"(?:^|[\s:(*\u4e00-\u9fff])[A-Z]\.$")
_LABEL_ONLY = re.compile(r"^\W*[A-Za-z]\.$")
_ABBREVIATED = re.compile(r"\b(?:e\.\s?g|i\.\s?e)\.$", re.IGNORECASE)
_LONGEST_END = 6
"""Characters of "e. g." and of what stands before it."""
_FEW_WORDS = 6
_FEW_CHARACTERS = 80
"""Chinese has no spaces between words."""


LONGEST_SENTENCE = 4000
"""In characters. A longer sentence is a loop of a model: it concludes nothing, and would take minutes to read."""


def sentences(text: str) -> list[str]:
    """Split a text into sentences. A label such as "B." stays with the text after it.

    >>> sentences("The sea is 3.5 m deep. Is it? So: B. blue")
    ['The sea is 3.5 m deep.', 'Is it?', 'So: B. blue']
    """
    return [*_sentences(text)]


@lru_cache(maxsize=64)
def _sentences(text: str) -> tuple[str, ...]:
    """Split a text. Cached, because the readers ask several times about the same text."""
    found: list[str] = []
    for piece in _SENTENCE_END.split(text):
        if not piece or not piece.strip():
            continue
        end = found[-1][-_LONGEST_END:] if found else ""  # the whole would be searched once for each piece
        if end[-2:-1].isalpha() and (
            _LABEL_ONLY.match(found[-1]) or _ENDS_WITH_LABEL.search(end) or _ABBREVIATED.search(end)
        ):
            found[-1] += f" {piece.strip()}"
        else:
            found.append(piece.strip())
    return tuple(found)


def is_complete(text: str) -> bool:
    """Whether a text seems complete: it ends like a sentence, or is too short to be one.

    >>> is_complete("It is red."), is_complete("To find the colour of the car, we look at the")
    (True, False)
    """
    return text.rstrip(" *_`$\"')]}")[-1:] in ".!?%°" or (
        len(text.split()) <= _FEW_WORDS and len(text) <= _FEW_CHARACTERS
    )
