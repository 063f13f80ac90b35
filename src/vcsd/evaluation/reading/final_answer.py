"""`final`: reads the answer from a text with reasoning, without a model and deterministically.

    drop the thinking -> take the last valid statement ("the answer is", a box, a tag) -> else the end of the text

It favours precision: a doubtful answer is not guessed but left unresolved, which is counted and scored as wrong.
`tests/golden/final_answers.jsonl` holds texts with the answers that a careful person reads from them. It was written
before this reader, which must be right on 99% of those it resolves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from vcsd.evaluation.reading import number_lists, number_texts, numbers, options, yes_no
from vcsd.evaluation.reading.option_labels import says_another
from vcsd.evaluation.reading.texts.corrections import (
    decides,
    is_about_a_part,
    is_alone,
    is_corrected,
    is_taken_back,
    takes_back,
)
from vcsd.evaluation.reading.texts.formulas import formula
from vcsd.evaluation.reading.texts.further_questions import before_other_options, first_reply, reply_to_repeated
from vcsd.evaluation.reading.texts.question_words import NOTHING_ASKED, QuestionWords
from vcsd.evaluation.reading.texts.statements import (
    Reading,
    Statement,
    concludes,
    conclusions,
    only_exemplifies,
    plain_signs,
    sentences,
    spoken,
    statements,
    without_imagined,
)

if TYPE_CHECKING:
    from vcsd.types import AnswerKind

READER = 10
"""The version of the rules, increased whenever an answer is read differently, so that results can name their rules.

2: a declaration in Chinese may contain spaces, as in 答案 是 B.
3: refusals, doubts, examples, further questions and numbers of the question are not answers; yes and no may be stated
   by repeating the question; 选项为C, True and False, ticks, and formulas alone are read.
4: Mixed numbers are read, and a part of a formula is neither a number nor an option; a letter that later statements
   contradict, numbers of a text that breaks off, and questions that are only repeated are not answers; "So B.",
   B选项正确, options in LaTeX with units, and first sentences that repeat the question are read.
5: A letter or a number of a formula is not chosen, whatever its spelling; examples, conditions, quoted instructions and
   beliefs of others do not override an answer; refusals in contractions, references such as "step 3", bounds, and
   qualified statements are not answers; words of options count on both sides of an equation, "corresponds to choice
   (B)", options repeated as a whole, "isn't true", 说法正确 and more ticks are read.
6: A number in a formula with letters (2f/d, 5k + 1), a letter with a prime, an example, an answer that is only
   reported, "yes, if ...", what would be, praise of one option in a text that breaks off at the next, another value for
   the same left side, and answers to further questions within a line are not answers; <CONCLUSION>, "Assistant:" and
   "Figure B" are read.
7: Options that are judged one by one choose none if several are called right, or the text breaks off before the next;
   an option that is called wrong is chosen only if the question asks for it; different answers in one text without a
   word of correction, text that is only an example, the answers to further questions after a repeated one, and a
   count of everything are not answers; degrees written as a power, an option on a line of its own after a colon, a
   value before its explanation, and "True" on a line of its own are read.
8: "There are 4 cups in the image." is read again; several options joined by 和, "5 is not prime" and sentences of more
   than 4,000 characters are not answers.
9: [答案]: B and 【答案】B are read; a list of all options on one line is not an answer, in whatever words.
10: Limits and settings of the question ("above 0.65", V=20), numbers of an explanation after the answer, bold numbers
   that repeat the question, and options that a picture shows though the question asks what it does not show are not
   answers; "twice", a count before its parts, **t = 0.6**, "does not contain a sink", 故选D at the end, a letter
   after the value in a box, "not visible" and Yesyesyes are read.
"""

UNRESOLVED = Reading(None, "unresolved")

_WORDS_OF_A_STATEMENT = 5
"""Two different statements with at most this many words between them contradict each other."""

_HAN_OF_A_STATEMENT = 12
"""The same in Chinese, which has no spaces."""
_HAN = re.compile(r"[\u4e00-\u9fff]")

_PROGRAM = re.compile(r"^[^\S\n]*(?:def \w+\(|import \w+$|from \w+ import |print\()", re.MULTILINE)
"""A program is not an answer: its output is not in the text."""
_FENCED = re.compile(r"```.*?(?:```|$)", re.DOTALL)

Reader = Callable[[str], Reading | None]


def read_answer(text: str, kind: AnswerKind, choices: Mapping[str, str] | None = None, asked: str = "") -> Reading:
    """Read the answer from a text, and name the rule; `found` is None unless exactly one answer can be read.

    `asked` is the question. It shows which numbers only repeat it, and which sentences answer by repeating it.

    >>> colours = {"A": "red", "B": "green"}
    >>> read_answer("It looks red (A), but the lamp is green. So the answer is **B**.", "option", colours).found
    'B'
    >>> read_answer("3 + 4 = 7, so there are 7 cups.", "integer").found
    '7'
    >>> read_answer("It could be A or B.", "option", colours).found is None
    True
    >>> read_answer("The cup is red.", "yes_no", asked="Is the cup red?").found
    'Yes'
    """
    said = spoken(text) or ""
    if "```" in said:
        said = _FENCED.sub(lambda block: "" if _PROGRAM.search(block[0]) else block[0], said).strip()
    if not said or _PROGRAM.search(said) or only_exemplifies(said):
        return UNRESOLVED
    question = QuestionWords.of(asked) if asked else NOTHING_ASKED
    options = {letter: plain_signs(words) for letter, words in (choices or {}).items()}
    said = before_other_options(said, options) if kind == "option" else said
    repeated = reply_to_repeated(said, question.text)
    if repeated is not None:
        return _read(repeated, kind, options, question) if repeated else UNRESOLVED
    if not said:
        return UNRESOLVED
    reply, ends = first_reply(said, question.text)
    reading = _read(reply, kind, options, question)
    if ends == "whole" or (ends == "part" and reading.found is not None):
        return reading
    whole = _read(said, kind, options, question)
    is_open = ends == "part" or (ends == "unclear" and None in (reading.found, whole.found))
    return whole if is_open or reading.found == whole.found else Reading(None, "several questions")


def _read(said: str, kind: AnswerKind, choices: Mapping[str, str], asked: QuestionWords) -> Reading:
    of_statement, of_text = _readers(kind, choices, asked)
    everything = statements(said)
    found = [one for one in everything if not one.is_void and (asked.imagines or not one.is_imagined)]
    counted = [one for one in found if kind == "option" or one.form != "chosen"]
    stated = _stated(said, counted, of_statement, choices)
    if stated is None:
        ends_imagining = len(found) < len(everything) and everything[0].start >= said.rfind(sentences(said)[-1])
        rest = said if asked.imagines else without_imagined(said)
        return (None if ends_imagining or not rest else of_text(rest)) or UNRESOLVED
    if _opens_otherwise(said, kind, choices, asked, stated):
        return Reading(None, "two answers")
    if kind in ("integer", "float") and _is_taken_back(said, *stated):
        return Reading(None, "contradiction")
    if kind in ("integer", "float") and _is_preamble(*stated):
        concluded = of_text(said)
        is_agreed = concluded is not None and concluded.found == stated[1].found
        return stated[1] if is_agreed else Reading(None, "contradiction")
    return stated[1]


def _opens_otherwise(
    said: str,
    kind: AnswerKind,
    choices: Mapping[str, str],
    asked: QuestionWords,
    stated: tuple[Statement, Reading],
) -> bool:
    """Whether a text opens with an answer, and states another one later without a word of correction."""
    statement, reading = stated
    if reading.found is None or statement.start == 0 or decides(said, statement):
        return False
    first: Reading | None = None
    if kind == "option":
        first = options.opening(said, choices)
    elif kind == "yes_no":
        first = yes_no.read_stated(said, asked)
    return first is not None and _is_other(first, reading, choices) and not takes_back(said)


def _is_taken_back(said: str, statement: Statement, reading: Reading) -> bool:
    """Whether a "therefore" at the end, even an unfinished one, gives another number than the statement before it."""
    if statement.form != "declared" or reading.found is None:
        return False
    ends = [sentence for sentence in conclusions(said[statement.start :] + ".", has_ended=True) if concludes(sentence)]
    later = {found.found for end in ends if (found := numbers.read_stated(end))} - {None}
    return bool(later) and reading.found not in later


def _is_preamble(statement: Statement, reading: Reading) -> bool:
    """Whether a number only occurs in a sentence about the answer, and others come later: "It takes 2 steps. So 7."."""
    if statement.form != "declared" or reading.by not in ("one number", "last number"):
        return False
    later = " ".join(sentences(statement.payload)[1:])
    return any(number.value != reading.found for number in numbers.numbers(later))


def _readers(
    kind: AnswerKind, choices: Mapping[str, str], asked: QuestionWords
) -> tuple[Callable[[Statement], Reading | None], Reader]:
    if kind == "option":
        read_text = partial(options.read_text, options=choices, asked=asked)
        return partial(_option_stated, choices=choices, asked=asked), read_text
    if kind == "yes_no":
        return _strict(partial(yes_no.read_stated, asked=asked)), partial(yes_no.read_text, asked=asked)
    if kind in ("integer", "float"):
        return partial(_number_stated, asked=asked), partial(number_texts.read_text, asked=asked)
    if kind == "list":
        return _strict(number_lists.read_list), number_lists.read_list
    return _text_stated, lambda text: Reading(text, "text")


def _strict(read: Reader) -> Callable[[Statement], Reading | None]:
    """Make a reader of statements from one of texts. A box or tag with content is the answer even if unreadable."""

    def of(statement: Statement) -> Reading | None:
        reading = read(statement.payload)
        if reading is None and statement.form in ("boxed", "tag") and statement.payload:
            return Reading(None, statement.form)
        return reading and Reading(reading.found, f"{statement.form}, {reading.by}")

    return of


def _option_stated(statement: Statement, choices: Mapping[str, str], asked: QuestionWords) -> Reading | None:
    if statement.is_verdict and asked.asks_for_wrong:
        return None
    reading = _strict(partial(options.read_stated, options=choices, asked=asked))(statement)
    if reading and reading.found and says_another(statement.after, reading.found, choices):
        return Reading(None, "words of another option")
    return reading


def _number_stated(statement: Statement, asked: QuestionWords) -> Reading | None:
    if statement.form != "declared":
        return numbers.read_boxed(statement.payload) if statement.payload else None
    return numbers.read_stated(statement.payload, asked)


def _text_stated(statement: Statement) -> Reading | None:
    return Reading(statement.payload, statement.form) if statement.payload else None


def _overrides(earlier: Reading, later: Reading) -> bool:
    """Whether a letter was declared and a later statement gives the words or the value of another option."""
    is_letter = earlier.by == "declared, letter" and earlier.found is not None
    return is_letter and later.by in _WITHOUT_LETTER and later.found not in (None, earlier.found)


_WITHOUT_LETTER = ("declared, words", "declared, formula", "declared, value")


def _stated(
    text: str, found: list[Statement], read: Callable[[Statement], Reading | None], choices: Mapping[str, str]
) -> tuple[Statement, Reading] | None:
    """Read the last readable statement, unless an earlier one contradicts it. Firm statements outweigh weak ones."""
    firm = [statement for statement in found if not statement.is_weak]
    counted = firm if len(firm) < len(found) and any(map(read, firm)) else found
    readable = ((statement, reading) for statement in counted if (reading := read(statement)) is not None)
    last = next(readable, None)
    if last is None:
        return None
    nearest = True
    for statement, reading in readable:
        if nearest and (_overrides(reading, last[1]) or _is_beside(text, statement, reading, last)):
            if _is_value_of_letter(statement, reading, last, choices):
                continue
            return (statement, Reading(None, "contradiction"))
        nearest = False
        is_settled = is_corrected(text, statement, last[0]) or (
            statement.form == "boxed" and reading.found == last[1].found
        )
        if is_settled:
            return last  # earlier statements do not hold, or led to this box
        if not _is_plain(statement, reading, choices) or is_about_a_part(text, statement):
            continue
        if _is_other(reading, last[1], choices):
            is_decided = decides(text, last[0]) or (statement.form == "chosen" and is_alone(text, last[0]))
            return last if is_decided else (statement, Reading(None, "two answers"))
    return last


def _is_beside(text: str, statement: Statement, reading: Reading, last: tuple[Statement, Reading]) -> bool:
    """Whether a statement with another answer stands right before the last one."""
    if reading.found == last[1].found or statement.start == last[0].start:
        return False
    between = text[statement.start : last[0].start]
    is_near = len(between.split()) <= _WORDS_OF_A_STATEMENT and len(_HAN.findall(between)) <= _HAN_OF_A_STATEMENT
    return is_near and not is_taken_back(text, statement, last[0])


def _is_value_of_letter(
    statement: Statement, reading: Reading, last: tuple[Statement, Reading], choices: Mapping[str, str]
) -> bool:
    """Whether a box holds a number, and the letter stated after it is an option whose words are not known."""
    is_value = statement.form == "boxed" and reading.found is None and _VALUE.fullmatch(statement.payload) is not None
    is_letter = last[1].by == "declared, letter" and _ONLY_LETTER.fullmatch(last[0].payload) is not None
    return is_value and is_letter and not any(choices.values())


_VALUE = re.compile(r"-?\d+(?:\.\d+)?")
_ONLY_LETTER = re.compile(r"\W*[A-H]\W*")


def _is_plain(statement: Statement, reading: Reading, choices: Mapping[str, str]) -> bool:
    """Whether a statement begins with its answer: a letter, a number, or the words of an option."""
    if _ENUMERATED.match(statement.payload):
        return False
    if reading.by.endswith(("letter", "stated")) or statement.form in ("boxed", "tag"):
        return True
    clause, words = _CLAUSE_END.split(statement.payload)[0], choices.get(reading.found or "", "")
    is_short = len(clause.split()) <= len(words.split()) + 2
    return reading.by.endswith("words") and is_short and formula(words) in formula(clause)


_ENUMERATED = re.compile(r"1[.)]\s+\W*[A-Za-z\u4e00-\u9fff]|[-\u2022]\s")
"""Matches "Here is how I arrived at the answer: 1. I counted ...": a list that explains, and does not begin with it."""
_CLAUSE_END = re.compile(r"[.,;:(\n]")


def _is_other(reading: Reading, last: Reading, choices: Mapping[str, str]) -> bool:
    """Whether two readings are different answers; numbers that only differ by rounding are not."""
    if reading.found is None or last.found is None or reading.found == last.found:
        return False
    words = [formula(choices.get(one, "")) for one in (reading.found, last.found)]
    if words[0] and words[0] == words[1]:
        return False
    try:
        earlier, later = float(reading.found), float(last.found)
    except ValueError:
        return True
    is_rounded = math.isclose(earlier, later, rel_tol=_ROUNDING) or (later.is_integer() and abs(earlier - later) < 1)
    return not (is_rounded or any(math.isclose(earlier, later * scale) for scale in _SCALES))


_ROUNDING = 0.01
_SCALES = (1000, 1e6, 1e9, 0.01, 100)
"""131.3 thousand, then 131.3: the same number without its unit."""
