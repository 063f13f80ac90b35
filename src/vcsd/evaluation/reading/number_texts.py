"""Reads the number that a text without a statement concludes with.

It is a number that stands alone, the only number in bold, or the number of the concluding sentence, unless the text
begins with a different one.
"""

from __future__ import annotations

import re

from vcsd.evaluation.reading.bold_numbers import bold_number
from vcsd.evaluation.reading.numbers import (
    CHINESE,
    HAN,
    IS,
    PLAIN_NUMBER,
    SIGN,
    SPACED,
    WORDS_OF_A_UNIT,
    clean,
    concluded,
    numbers,
    own_numbers,
)
from vcsd.evaluation.reading.texts.corrections import takes_back
from vcsd.evaluation.reading.texts.explanations import before_explanation, whole_and_parts
from vcsd.evaluation.reading.texts.question_words import (
    NOTHING_ASKED,
    QuestionWords,
    counts_everything,
    names_all_counted,
    repeats_question,
)
from vcsd.evaluation.reading.texts.refusals import refuses
from vcsd.evaluation.reading.texts.statements import Reading, concludes, conclusions, is_complete, sentences


def read_text(text: str, asked: QuestionWords = NOTHING_ASKED) -> Reading | None:
    """Read the number that a text without a statement concludes with, or that it explains afterwards."""
    is_broken = "\\" in text and len(_DOLLAR.findall(text)) % 2 == 1  # a formula that never ends
    whole = clean(text)
    answered = before_explanation(whole)
    reading = _read(answered, asked, is_broken=is_broken)
    if answered == whole or reading is None:
        return reading
    if direct := _direct(sentences(answered)[-1].replace("**", ""), asked):
        return reading if float(direct) == float(reading.found or 0) else None
    known = {number.value for number in [*numbers(answered), *numbers(asked.text)]}
    explained = {number.value for number in numbers(_LETTERS.sub("", whole[len(answered) :]))}  # not "the two lines"
    is_sure = explained <= known or (asked.text and repeats_question(sentences(answered)[-1], asked))
    return reading if reading.by == "bold" or (reading.by == "one number" and is_sure) else None


_LETTERS = re.compile(r"(?<![\w.])[A-Za-z]+(?![\w.]*\d)")


def _read(text: str, asked: QuestionWords, *, is_broken: bool) -> Reading | None:
    bold = bold_number(text, asked)
    text = own_numbers(text.replace("**", ""), asked)
    if alone := _alone(text.rstrip("."), asked):
        return alone if alone.found else None
    if bold is not None:
        direct = _direct(sentences(text)[-1], asked)
        return None if direct and float(direct) != float(bold) else Reading(bold, "bold")
    if len(text) <= _SHORT_ANSWER and [number.start for number in numbers(text)] == [0]:
        asked = NOTHING_ASKED  # "150" alone answers, even if the question names it
    ends = [] if _ends_with_list(text) else conclusions(text, has_ended=_has_ended(text) and not is_broken)
    readings = [reading for sentence in ends if not sentence.endswith("?") and (reading := concluded(sentence, asked))]
    if explained := _before_explanation(text, asked):
        return explained if all(reading.found == explained.found for reading in readings) else None
    if counts_everything(text, asked):
        return None
    return _agreed(text, ends, readings, asked) or _whole(text, asked)


def _whole(text: str, asked: QuestionWords) -> Reading | None:
    """Read a count that is followed by its parts: "There are two squares: one inside the other."."""
    pieces = sentences(text)
    whole, parts = whole_and_parts(pieces[0]) if len(pieces) == 1 else ("", "")
    counts, listed = numbers(whole), [number.value for number in numbers(parts)]
    if len(counts) != 1 or not listed or not names_all_counted(whole, asked):
        return None
    count = float(counts[0].value)
    is_sum = sum(map(float, listed)) == count or (set(listed) == {"1"} and len(listed) <= count)
    return Reading(counts[0].value, "whole of its parts") if is_sum else None


def _ends_with_list(text: str) -> bool:
    lines = text.splitlines()[-2:]
    lefts = {left[1] for line in lines if (left := _LEFT.match(line))}
    return (len(lines) > 1 and all(map(_ITEM.match, lines)) and not _FINAL.search(lines[-1])) or len(lefts) > 1


def _agreed(text: str, ends: list[str], readings: list[Reading], asked: QuestionWords) -> Reading | None:
    """Return the last reading of the concluding sentences, unless the text begins with another answer."""
    direct = _direct(text, asked)
    if not readings:
        is_open = direct and not any(refuses(said) or _differs(said, direct) for said in sentences(text)[1:])
        is_open = is_open and not refuses(text) and not any(map(_HOWEVER.match, sentences(text)[1:_FIRST_SENTENCES]))
        return Reading(direct, "direct answer") if is_open else None
    if direct and not any(map(concludes, ends)) and float(direct) != float(readings[-1].found or 0):
        return None
    if len({float(reading.found or 0) for reading in readings}) > 1 or _opens_otherwise(text, readings[-1]):
        return None
    return readings[-1]


def _before_explanation(text: str, asked: QuestionWords) -> Reading | None:
    """Read a first line that is followed by a heading "Explanation:", even if the explanation breaks off."""
    said = _EXPLAINED_LATER.match(text)
    if not said or len(sentences(said["answer"])) > 1 or refuses(said["answer"]):
        return None
    reading = concluded(said["answer"], asked)
    return reading and Reading(reading.found, "before the explanation")


_EXPLAINED_LATER = re.compile(
    r"(?P<answer>[^\n:]{1,100}?)[^\S\n]*\n\s*+[*#\u3010]{0,4}(?:解析|解释|解答|解|说明|理由|分析|Explanation|Reasoning|Solution|"
    r"(?:Here(?:'s|\s+is)\s+(?:the|a|my)\s+)?(?:detailed\s+)?breakdown)[*\u3011]{0,3}\s*:",
    re.IGNORECASE,
)


def _opens_otherwise(text: str, reading: Reading) -> bool:
    """Whether a text begins with a value, and ends with another one of the same thing, without a word of correction."""
    lines = [line for line in text.splitlines() if line.strip()]
    left = _LEFT.match(lines[0]) if len(lines) > 1 else None
    opening = concluded(lines[0]) if left and len(lines[0]) <= _SHORT_LINE else None
    if left and opening is not None and opening.found != reading.found:
        return f"{_TYPESET.sub('', left[1])}=" in _TYPESET.sub("", lines[-1])
    pieces = sentences(text)
    subject = _subject(pieces[0])
    if len(pieces) < _FIRST_SENTENCES or not subject or _subject(pieces[-1]) != subject or takes_back(text):
        return False
    if len(pieces[-1][numbers(pieces[-1])[0].end :].split()) > WORDS_OF_A_UNIT:
        return False
    first = concluded(pieces[0])
    return first is not None and first.found != reading.found


def _subject(sentence: str) -> str:
    """Return the subject before the only number of a sentence: "the angle is"; "" if there is none."""
    found = numbers(sentence)
    subject = _CONNECTS.sub("", sentence[: found[0].start]).strip(" *$").lower() if len(found) == 1 else ""
    return "" if _NAMES_NOTHING.fullmatch(subject) else subject


_CONNECTS = re.compile(r"^(?:(?:so|therefore|thus|hence|finally|then|because)\b|所以|因此|故|即|[\s,])+", re.IGNORECASE)
_NAMES_NOTHING = re.compile(
    r"\W*(?:(?:there|it|this|that|they|we|he|she|x|y)\b.*|\w{0,2}\W*)", re.IGNORECASE | re.DOTALL
)
_TYPESET = re.compile(r"[\s\\$]")
_ONLY_DIGITS = re.compile(r"[-\d.,;:/\s]+")
"""1 3 5: a row of numbers is not one of them."""
_TWICE = re.compile(rf"(-?(?=[\d.,]{{4,}},)(?:{PLAIN_NUMBER})), \1")
"""36.475, 36.475: two short numbers may be equal by chance."""
_ASKS_FOR_SEVERAL = re.compile(r"\b(?:and|both|each|respectively|two|list|pairs?|values|numbers)\b|[;,]", re.IGNORECASE)


def _alone(text: str, asked: QuestionWords) -> Reading | None:
    """Read a text that is only a number, or the same long number twice; `found` is None for a row of numbers."""
    twice = _TWICE.fullmatch(text)
    if twice and asked.text and not _ASKS_FOR_SEVERAL.search(asked.text):
        return Reading(twice[1].replace(",", ""), "only number")
    if SPACED.fullmatch(text):
        return Reading(text.replace(" ", ""), "only number")
    if text in CHINESE:
        return Reading(str(CHINESE[text]), "only number")
    return Reading(None, "several numbers") if _ONLY_DIGITS.fullmatch(text) and len(numbers(text)) != 1 else None


def _differs(sentence: str, value: str) -> bool:
    """Whether a sentence concludes with something other than this value."""
    reading = concluded(sentence) if concludes(sentence) else None
    return concludes(sentence) and (reading is None or reading.found != value)


_HOWEVER = re.compile(r"\W*however\b", re.IGNORECASE)
_DOLLAR = re.compile(r"(?<!\\)\$")
_FIRST_SENTENCES = 3
_SHORT_ANSWER = 12
"""Characters of a number that is the whole answer, with its unit."""
_ASSERTED = re.compile(
    r"\b(?:is|are|was|were|be|equals?|total\s+of)\b[^,;]*\d|\b(?:there|it)\s+(?:is|are)\b", re.IGNORECASE
)


def _direct(text: str, asked: QuestionWords) -> str | None:
    """Return the number of a first sentence that repeats the question and says what it asks for."""
    if not asked.text:
        return None
    for sentence in sentences(text)[:_FIRST_SENTENCES]:
        reading = concluded(sentence, asked) if repeats_question(sentence, asked) else None
        if reading and reading.by != "equation" and _ASSERTED.search(sentence):
            return reading.found
    return None


_ITEM = re.compile(rf"^\s*(?:[-*•]|\d+[.)]\s|\(?[a-h]\)|[^:=\n]{{1,40}}:\s*[$£€]?(?:{PLAIN_NUMBER})\W*\w*\W*$)")
"""A line of a list. Its last item is no more likely to be the answer than its first."""
_FINAL = re.compile(r"\b(?:final|therefore|thus|hence|total)\b", re.IGNORECASE)
_LEFT = re.compile(r"^\W*([^=\n]{1,20}?)\s*=")


def _has_ended(text: str) -> bool:
    """Whether a text is complete: it ends with punctuation, or with a number and at most one word as its unit."""
    if text.rstrip("*_`\"')]} ")[-1:] in (".", "!", "?"):
        return True
    found = numbers(text)
    if not found:
        return False
    line = text.splitlines()[-1]
    before, after = text[: found[-1].start], text[found[-1].end :]
    is_short = len(line) <= _SHORT_LINE and (not HAN.search(line) or len(found) == 1)
    is_one = not HAN.search(line) or (len(text) <= _ONE_SENTENCE and len(sentences(text)) == 1)
    is_short = is_short or bool(is_one and (IS.search(before) or SIGN.search(before)))
    is_last = len(after.split()) <= 1 and len(after) <= _SHORT_UNIT and not re.search(r"[,;]", after)
    return (is_short and is_last) or (is_complete(text) and found[0].start == 0)


_SHORT_UNIT = 20
_ONE_SENTENCE = 80
"""A longer text in Chinese that ends with a number was cut off more often than not."""
_SHORT_LINE = 40
"""A longer line that ends with a number and no full stop may have been cut off in the middle of a number."""
