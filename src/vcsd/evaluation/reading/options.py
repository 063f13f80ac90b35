"""Reads the chosen option from a text with reasoning.

A letter counts if it is stated as the answer, or stands alone on the first or last line. An option's words count if
they are stated as the answer, or are the only option in the last sentence. "A" before a word is an article, a letter
after "not" is not chosen, and two letters joined by "or" or "and" choose nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcsd.evaluation.reading import numbers, yes_no
from vcsd.evaluation.reading.absences import affirms_presence, asks_for_absent, read_absent
from vcsd.evaluation.reading.option_labels import CLOSERS, NONE_OF, TICKS, TIMES, has_own, lettered, names_another
from vcsd.evaluation.reading.option_words import ends_with_option, mentions
from vcsd.evaluation.reading.texts.formulas import continues_formula, formula, has_variable, is_argument, is_operand
from vcsd.evaluation.reading.texts.judgements import called_wrong, goes_on_with_another, judgements, rivals
from vcsd.evaluation.reading.texts.question_words import NOTHING_ASKED, QuestionWords, repeats_question
from vcsd.evaluation.reading.texts.refusals import refuses
from vcsd.evaluation.reading.texts.statements import (
    LONGEST_SENTENCE,
    Reading,
    concludes,
    conclusions,
    is_complete,
    sentences,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_stated(payload: str, options: Mapping[str, str], asked: QuestionWords = NOTHING_ASKED) -> Reading | None:
    """Read the option in a statement; `found` is None if it names several or an unknown one."""
    text = numbers.clean(payload)
    if (letters := _polar(options)) and (said := yes_no.read_stated(payload, asked)):
        return Reading(letters.get(said.found or ""), "words")
    if reading := _typed(payload, options) or lettered(text, options) or _set_alike(payload, options):
        return reading
    if "\\" in text or "/(" in text:  # a formula that is not an option, though it may contain the signs of one
        return None
    reading = _worded(text, options) or _valued(text, options)
    return reading or (Reading(None, "none of them") if NONE_OF.match(text) else None)


def _typed(payload: str, options: Mapping[str, str]) -> Reading | None:
    """Find the option that a statement repeats as a whole: "A > B > C", "both A and B"."""
    first = (sentences(payload) or [""])[0]
    said = {typed for typed in (formula(payload), formula(first)) if len(re.findall(r"\w", typed)) > 1}
    alike = [letter for letter, words in options.items() if formula(words) in said]
    return Reading(alike[0], "words") if len({options[letter] for letter in alike}) == 1 else None


def _worded(text: str, options: Mapping[str, str]) -> Reading | None:
    """Read an option's words in the first sentence of a text."""
    first = [] if _polar(options) else sentences(text)[:1]
    named = mentions(first[0], options) if first else []
    if not named:
        return None
    return Reading(named[0], "words") if len(named) == 1 else Reading(None, "several options")


def _set_alike(payload: str, options: Mapping[str, str]) -> Reading | None:
    """Find the option with the same formula as a statement, or as the right side of its last equation."""
    right = formula(payload.rpartition("=")[2])
    said = {formula(payload), "" if "=" in payload and len(right) == 1 and right.isalpha() else right} - {""}
    alike = [letter for letter, words in options.items() if formula(words) in said]
    return Reading(alike[0], "formula") if len({options[letter] for letter in alike}) == 1 else None


def _valued(text: str, options: Mapping[str, str]) -> Reading | None:
    """Find the option with the number in a statement, even without the option's unit."""
    found = numbers.numbers(text)
    said = {number.value for number in found}
    if len(said) != 1 or numbers.is_calculation(text) or any(_is_factor(text, number) for number in found):
        return None
    values = [numbers.numbers(numbers.clean(words)) for words in options.values()]
    equal = [letter for letter, value in zip(options, values, strict=True) if said == {one.value for one in value}]
    return Reading(equal[0], "value") if len(equal) == 1 and all(len(value) == 1 for value in values) else None


def _is_factor(text: str, number: numbers.Number) -> bool:
    return has_variable(text, number.end) or is_operand(text, number.start, number.end)


_BOLD = re.compile(r"\*\*(.+?)\*\*")
_ALONE = re.compile(r"^[\s*_#(\[\"'`>]*(?:(?i:option|choice)\s*\(?)?[A-Za-z][*_)\]\"'`]*\s*(?:[.:)!]|$)")
_ALONE_AT_FIRST = re.compile(_ALONE.pattern[:-1] + r"|[,;]|\s+(?:and|or)\b|[-\u2013\u2014/]\s*[A-Za-z]{2})")
"""A label, or a label and words. At the end of a text, a letter and a comma are not a label."""
_CUE = re.compile(
    r"(?:(?i:\b(?:it's|it\ is|is|say|likely|(?:must|should|would)\ be|leaves)\b|应为)"
    r"\s*:?\s*[*(\"]*([A-Z])(?![A-Za-z0-9'_])"
    r"(?![*)\"]*\s+(?!because|since|as|although|but)[a-z])"
    r"|(?i:\b(?:option|choice)\b|选择?|选项|故选)\s*:?\s*[*(\"]*([A-Z])(?![A-Za-z0-9'_])"
    r"|\(([A-Z])\))"
)
_IN_BRACKETS = 3
_FAVOURS = re.compile(
    r"\b(?:most|best|better|closest|closer|likely|correct|match(?:es)?|corresponds?|appropriate|same|therefore|thus)\b",
    re.IGNORECASE,
)
_DISFAVOURS = re.compile(r"\b(?:least|less|lacks?|not|on\s+the\s+other\s+hand|different|differs)\b|n't", re.IGNORECASE)
_NOT_CHOSEN = re.compile(
    r"(?:\b(?:not|nor|neither|eliminate|exclude|rule\s+out|than|of|in|with|(?<!corresponds\s)(?<!corresponding\s)to|from)|n't)\s+(?:(?:the|option|choice|\w+\s+image)\s+)*$",
    re.IGNORECASE,
)
_CONTRAST = re.compile(
    r"\b(?:while|whereas|if|compared|rather\s+than|unlike|instead\s+of|as\s+opposed|as\s+it\s+matches)\b.*$", re.DOTALL
)
_CANNOT = re.compile(r"^\W*the\s+others?\b|\bon\s+the\s+other\s+hand\b|\bcannot\s+(?:be|determine)", re.IGNORECASE)
_WRONG = re.compile(r"[*)\"]*\s+(?:is|are|was|does|can)\s*(?:n't|not|wrong|incorrect|false|ruled)")
_NOT_CHOSEN_HAN = re.compile(r"(?:不|别|勿|非|排除|除了?)(?:应该?|能|会|可以?)?$")
_WRONG_HAN = re.compile(r"[)*\s]*(?:选项|项)?\s*(?:是|为|就)?\s*(?:不(?!同)|错|有误|被?排除)")
_LABEL_LINE = re.compile(
    r"(?:^|[.;!?]\s)(?:[^\S\n]|[*_#(\[>-])*(?:(?i:option|choice)\s*\(?)?([A-Z])[*_)\]]*\s*(?:[.:)]|$)", re.MULTILINE
)


def read_text(text: str, options: Mapping[str, str], asked: QuestionWords = NOTHING_ASKED) -> Reading | None:
    """Read the option that a text without a valid statement chooses."""
    typed = formula(text)
    whole = [letter for letter, words in options.items() if typed and formula(words) == typed]
    if len({options[letter] for letter in whole}) == 1:
        return Reading(whole[0], "whole text")
    alone = _set_alike(text, options) if len(text) <= _SHORT_FORMULA and "\n" not in text else None
    text = numbers.clean(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    labels = {label.upper() for label in _LABEL_LINE.findall(text)} | _small_labels(lines)
    ticks = _TICKED.finditer(text.replace("\\checkmark", "✓"))
    ticked = {found[1] or found[2] for found in ticks} & set(options)
    if len(ticked) == 1:
        return Reading(ticked.pop(), "tick")
    if not lines or (len(labels) > 1 and all(_LABEL_LINE.match(line) or line.endswith(":") for line in lines)):
        return None  # a list of options chooses none
    letters = _polar(options)
    if letters and (said := yes_no.read_text(text)):
        return Reading(letters.get(said.found or ""), f"words, {said.by}")
    reading = alone or (None if _is_other_line(lines, asked) else _labelled(text, lines, labels, options))
    reading = reading or _after_colon(lines, options, asked)
    reading = reading or _called_wrong(text, options, asked) or read_absent(text, options, asked)
    reading = reading or _concluded(text, options, asked)
    return reading or _by_question(text, options, asked) or _pictured(text, options, asked)


def _is_other_line(lines: list[str], asked: QuestionWords) -> bool:
    """Whether the last line is called right although the question asks for the wrong one, or the reverse."""
    if asked.asks_for_wrong:
        return bool(_CALLED_RIGHT.search(lines[-1]))
    return len(lines) > 1 and lines[-2].endswith(":") and bool(_WRONG_HEAD.search(lines[-2]))


_WRONG_HEAD = re.compile(r"\b(?:wrong|incorrect|false|untrue|worst)\b|错误|不正确|有误", re.IGNORECASE)
_CALLED_RIGHT = re.compile(r"正确的?\W*$|\b(?:is|are)\s+(?:correct|right|true)\W*$")


def opening(text: str, options: Mapping[str, str]) -> Reading | None:
    """Read the label that stands alone on the first of several lines, if no other line has one; else Yes or No."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if letters := _polar(options):
        said = yes_no.read_stated(text)
        return said and Reading(letters.get(said.found or ""), "opening")
    labels = {label.upper() for label in _LABEL_LINE.findall(text)} & set(options)
    label = _ONLY_LINE.fullmatch(lines[0])
    if len(lines) < 2 or len(labels) != 1 or not label or label[1] not in options:
        return None
    is_own = not label[2] or formula(label[2]) == formula(options[label[1]])
    return Reading(label[1], "opening") if is_own else None


_ONLY_LINE = re.compile(r"[*(]*([A-H])[).:*]*\s*(.*?)[*\s]*")


def _by_question(text: str, options: Mapping[str, str], asked: QuestionWords) -> Reading | None:
    """Read an option from a sentence that repeats the question."""
    if direct := _direct(text, options, asked):
        return Reading(direct, "direct answer")
    letters = _polar(options)
    if letters and (repeated := yes_no.read_text(text, asked)):
        return Reading(letters.get(repeated.found or ""), f"words, {repeated.by}")
    return None


_PICTURE = re.compile(
    r"(?i:\b(?:figure|image|picture|diagram|shape|drawing|graph|panel|box|tile|pattern))\s+[*(\"]*([A-H])\b(?!'\w)|"
    r"图\s*([A-H])(?![A-Za-z])"
)
_ONLY_LABEL = re.compile(
    r"\W*(?:(?:figure|image|picture|diagram|shape|box|option|graph|图)?\s*\(?([A-H])\)?)?\W*", re.IGNORECASE
)


def _pictured(text: str, options: Mapping[str, str], asked: QuestionWords) -> Reading | None:
    """Read "Figure B is the reflection", if the options are only labels of figures, from the concluding sentences."""
    labels = {letter: _ONLY_LABEL.fullmatch(words) for letter, words in options.items()}
    if not all(own and own[1] in (None, letter) for letter, own in labels.items()) or not is_complete(text):
        return None
    ends = [end for end in sentences(text)[-_LAST_SENTENCES:] if not refuses(end)]
    ends = [end for end in ends if concludes(end) or (asked.text and repeats_question(end, asked))]
    if any(_DISFAVOURS.search(end) or _CONTRAST.search(end) or end.endswith("?") for end in ends):
        return None
    named = {(found[1] or found[2]).upper() for end in ends for found in _PICTURE.finditer(end)}
    return Reading(named.pop(), "figure") if len(named) == 1 and named <= set(options) else None


_FIRST_SENTENCES = 2
_INTRODUCES = re.compile(
    r"^\W*(?:to|let|we|if|the\s+(?:question|problem|task))\b|\b(?:need|asks?|asking)\b", re.IGNORECASE
)


def _direct(text: str, options: Mapping[str, str], asked: QuestionWords) -> str | None:
    """Return the option of a first sentence that repeats the question, unless the text ends with another option."""
    pieces = sentences(text)
    if not asked.text or any(map(refuses, pieces)):
        return None
    echoed = set(mentions(asked.text, options))
    for place, sentence in enumerate(pieces[:_FIRST_SENTENCES]):
        chosen = _chosen(sentence, options, asked)
        if len(chosen) != 1 or chosen & echoed or _INTRODUCES.search(sentence) or not repeats_question(sentence, asked):
            continue
        later = {letter for end in pieces[place + 1 :][-_LAST_SENTENCES:] for letter in _chosen(end, options, asked)}
        return chosen.pop() if later <= chosen else None
    return None


_LAST_SENTENCES = 2
_SHORT_FORMULA = 80
_BARE = re.compile(
    r"(?:(?:^|[,;]\s)\W*(?i:so|thus|therefore|hence|by\s+elimination|probably|(?:most\s+)?likely|final|conclusion|selected|answer|option|choice|letter)"
    r"\b[\s,:]*(?:(?i:the\s+)?(?i:option|choice|answer|letter)\b\s*)?|^\W*(?:=>|→)\s*|^故选\s*:?\s*)"
    r"[(\"*]*([A-Z])[)\"*]*\W*$"
)
"""A label that ends a text after one word: "So B.", "Option B.", "C is wrong, so D.", 故选D."""
_SMALL_LABEL = re.compile(r"([a-h])[.)]\s")
_WORDS_AND_LABEL = re.compile(r"(?P<words>\S.*?)\s*\((?P<letter>[A-Z])\)\W*$")
_TICKED = re.compile(
    rf"(?<!not\s)(?:[{TICKS}]\ufe0f?|\[[xX]\])\s*[*(]*([A-Z])\b(?!\s+(?:is|are|was|has|does|can)\b)|"
    rf"^(?:[^\S\n]|[*(-])*([A-Z])\b[^\n]{{0,80}}?[{TICKS}]\ufe0f?[^\w\n]*$",
    re.MULTILINE | re.IGNORECASE,
)


def _small_labels(lines: list[str]) -> set[str]:
    """Return the labels of a list such as a., b., c., which orders parts and chooses nothing."""
    found = [label[1].upper() for line in lines if (label := _SMALL_LABEL.match(line))]
    return set(found) if len(set(found)) > 1 else set()


def _labelled(text: str, lines: list[str], labels: set[str], options: Mapping[str, str]) -> Reading | None:
    """Read a label that stands alone: on the last or first line, after an option's words, or in bold."""
    labels = labels & set(options)
    for line, place, pattern in ((lines[-1], "last line", _ALONE), (lines[0], "first line", _ALONE_AT_FIRST)):
        if len(labels) <= 1 and pattern.match(line) and (said := lettered(line, options)):
            return None if said.found in _rejected_beside(text, line) else Reading(said.found, place)
        named = _WORDS_AND_LABEL.fullmatch(line)
        if named and formula(options.get(named["letter"], "")) == formula(named["words"]):
            return Reading(named["letter"], place)
    if (bare := _BARE.search(sentences(text)[-1])) and bare[1] in options and not _begins_another(text, bare[1]):
        return Reading(bare[1], "last sentence")
    bold = {said.found for span in _BOLD.findall(text) if _ALONE.match(span) and (said := lettered(span, options))}
    bold.discard(None)
    return Reading(bold.pop(), "bold") if len(bold) == 1 else None


def _rejected_beside(text: str, line: str) -> set[str]:
    """Return the label of a last line that breaks off, if the text has called another option right."""
    right = {letter for one in judgements(text) if one.is_right for letter in one.letters}
    label = _OPTION.fullmatch(line)
    return {label[1] or label[2]} - right if right and label else set()


def _begins_another(text: str, letter: str) -> bool:
    """Whether a text breaks off with "Option B", after a sentence about another option."""
    others = {found[1] for found in _OPTION.finditer(text)} - {letter}
    return bool(others) and text[-1] not in ".!*)" and bool(_OPTION.match(sentences(text)[-1]))


_OPTION = re.compile(r"(?i:\boption|\bchoice)\s+[*(\"]*([A-H])\b|选项\s*([A-H])")


def _after_colon(lines: list[str], options: Mapping[str, str], asked: QuestionWords) -> Reading | None:
    """Read an option that stands on a line of its own after "... is:", if no other one follows."""
    labels = [(place, label) for place, line in enumerate(lines) if (label := _OWN_LINE.fullmatch(line))]
    if not labels or labels[-1][0] == 0:
        return None
    place, label = labels[-1]
    before, words = lines[place - 1], options.get(label[1], "")
    if not _OPENS_LINE.search(before) or _ONE_OF_SEVERAL.search(before) or not words:
        return None
    denied = before if asked.asks_for_wrong else sentences(before)[-1]
    is_asked = bool(_DENIES.search(denied)) == asked.asks_for_wrong or "答案" in before or "answer" in before.lower()
    return Reading(label[1], "line after a colon") if is_asked and formula(words) == formula(label[2]) else None


_OWN_LINE = re.compile(r"[*(]*([A-H])[).:*]+\s*(\S.*?)[*\s]*")
_OPENS_LINE = re.compile(r"(?:\b(?:is|are|be)|是|为|选)\s*\**:\**$", re.IGNORECASE)
_DENIES = re.compile(r"\b(?:not|wrong|incorrect|false|untrue|except|least|worst)\b|n't\b|不|错|除", re.IGNORECASE)


def _called_wrong(text: str, options: Mapping[str, str], asked: QuestionWords) -> Reading | None:
    """Read the only option that a text calls wrong and concludes with, if the question asks for the wrong one."""
    if not asked.asks_for_wrong:
        return None
    ends = conclusions(text, has_ended=is_complete(text))
    wrong = called_wrong(text) | {one[1] for one in _WRONG_IS.finditer(text)}
    concluded = ends and (_WRONG_IS.search(ends[-1]) or any(not one.is_right for one in judgements(ends[-1])))
    if len(wrong) != 1 or not wrong <= set(options) or not concluded or _IN_DOUBT.search(ends[-1]):
        return None
    return Reading(next(iter(wrong)), "called wrong")


_WRONG_IS = re.compile(
    r"(?:错误|不正确|有误|不对)的?(?:选项|叙述|说法|描述|表述|结论|一项)?\s*(?:应该|应)?(?:是|为)\s*:?\s*[*(]*([A-H])(?![A-Za-z])"
    r"(?![)*]*\s*(?:选项|项)?\s*(?:和|与|或|及|,\s*[A-H]))"
)
_IN_DOUBT = re.compile(r"\b(?:may|might|could|perhaps|possibly|if|whether)\b|可能|也许|如果|是否", re.IGNORECASE)


def _concluded(text: str, options: Mapping[str, str], asked: QuestionWords) -> Reading | None:
    """Read the conclusion of a text without label or statement: "B is correct", "I'd say B", or the last option."""
    ends = conclusions(text, has_ended=is_complete(text) or ends_with_option(text, options))
    if not ends and any(refuses(f"it is {words}") for words in options.values()):
        ends = sentences(text)[-1:]  # "cannot be determined" is one of the options
    ends = [sentence for sentence in ends if not _LABEL_LINE.match(sentence)]
    chosen = {letter for sentence in ends for letter in _chosen(sentence, options, asked)}
    if len(chosen) != 1 or (_lists(text, ends) and _named(text[: -len(ends[-1])], options) - chosen):
        return None
    (letter,) = chosen
    praised = [one for sentence in ends for one in judgements(sentence) if one.is_right]
    if praised and (letter in rivals(text) or (asked.asks_for_wrong and any(letter in one.letters for one in praised))):
        return None
    is_passing = goes_on_with_another(text, text.rfind(ends[-1]) + len(ends[-1]), letter)
    return None if is_passing else Reading(letter, "conclusion")


def _lists(text: str, ends: list[str]) -> bool:
    """Whether the last sentence only continues the ones before it: it has their first words, and prefers nothing."""
    before, last = sentences(text)[-2:-1], ends[-1]
    alike = bool(before) and _opening(before[0]) == _opening(last)
    return alike and not concludes(last) and not _FAVOURS.search(last)


def _opening(sentence: str) -> list[str]:
    """Return the first words of a sentence; in Chinese, which has no spaces, its first characters."""
    return [sentence[:_FIRST_CHARACTERS]] if _HAN.match(sentence) else sentence.split()[:2]


_FIRST_CHARACTERS = 5
_HAN = re.compile(r"[\u4e00-\u9fff]")


def _chosen(sentence: str, options: Mapping[str, str], asked: QuestionWords) -> set[str]:
    """Find the options that a concluding sentence names, by letter or by words. If the two disagree, return both."""
    if len(sentence) > LONGEST_SENTENCE or _CANNOT.search(sentence) or sentence.rstrip(" *_\"')").endswith("?"):
        return set()
    if _ONE_OF_SEVERAL.search(sentence) and not _ONE_OF_SEVERAL.search(asked.text):
        return set()
    if asks_for_absent(asked) and affirms_presence(sentence):
        return set()
    wrong = frozenset[str]().union(*(one.letters for one in judgements(sentence) if not one.is_right))
    other = _CONTRAST.search(sentence)
    sentence, aside = (sentence[: other.start()], sentence[other.start() :]) if other else (sentence, "")
    cued = set()
    for found in _CUE.finditer(sentence):
        at = found.lastindex or 0
        letter, before, after = found[at], sentence[: found.start(at)].rstrip(' (*"'), sentence[found.end() :]
        is_aside = at == _IN_BRACKETS or sentence[: found.start()].endswith("(")
        is_said = not is_aside or (_FAVOURS.search(sentence) and not _DISFAVOURS.search(sentence))
        is_said = is_said or (at == _IN_BRACKETS and letter in options and names_another(after, letter, options))
        is_denied = bool(_NOT_CHOSEN_HAN.search(sentence[: found.start()]) or _WRONG_HAN.match(after))
        is_denied = (
            is_denied
            or bool(_BREAKS_OFF.match(after))
            or letter in wrong
            or _is_wrong_one(sentence[: found.start(at)], asked)
        )
        if is_denied or _is_term(sentence, found.start(at), letter, options):
            continue
        if letter in options and is_said and not _WRONG.match(after) and not _NOT_CHOSEN.search(f"{before} "):
            cued |= {letter, *_joined(after, options), *_judged_with(letter, sentence)}
    named = _named(sentence, options)
    if named and not _FAVOURS.search(sentence):  # "left, while the other is right" prefers neither
        named |= _named(aside, options)
    return cued | named


_BREAKS_OFF = re.compile(r"[)*\"\s]*(?:选项|项)?\s*(?:是|为|is|are)\s*$")
_ONE_OF_SEVERAL = re.compile(
    r"\bone\s+of\s+(?:the|its|these|those|many|several)\s+(?:\w+\s+){0,2}(?:factor|reason|cause|purpose|example|way|element)s\b|"
    r"之一(?:是|为|就是)",
    re.IGNORECASE,
)
"""One of the reasons is the terrain: others may follow."""
_WRONG_ONE = re.compile(
    r"(?P<article>\b(?:an?|one|another|some|any)\s+)?(?:\w+\s+)?\b(?:wrong|incorrect|false|untrue|worst|invalid|least\s+\w+)\b"
    r"(?:(?!\b(?:so|therefore|thus|hence|leav\w+|but|and|because|since|as|than|if)\b)[^.,;:])*$",
    re.IGNORECASE,
)
"""The wrong option is ...: what follows is chosen only if the question asks for it."""


def _is_wrong_one(before: str, asked: QuestionWords) -> bool:
    wrong = _WRONG_ONE.search(before)
    if not wrong:
        return False
    is_asked = asked.asks_for_wrong or ("least" in wrong[0].lower() and "least" in asked.text.lower())
    return bool(wrong["article"]) or not is_asked


def _is_term(sentence: str, start: int, letter: str, options: Mapping[str, str]) -> bool:
    """Whether a letter in a sentence is only a part of a formula: the result is B+C, P(B) is 0.5."""
    after = sentence[start + 1 :]
    closing = CLOSERS.match(after)[0]  # type: ignore[index]
    rest, is_closed = after[len(closing) :], bool(set(closing) & set(")]}"))
    is_part = bool(TIMES.match(after)) or continues_formula(rest, is_closed=is_closed)
    return (is_part and not has_own(letter, rest, options)) or is_argument(sentence, start)


def _judged_with(letter: str, sentence: str) -> set[str]:
    """Return the letters that are called right together with this one: 选项A和B是正确的."""
    return {other for one in judgements(sentence) if letter in one.letters for other in one.letters}


def _joined(after: str, options: Mapping[str, str]) -> set[str]:
    """Return the next label of a list: "it is B, C.", "it is B / C."."""
    other = _JOINED.match(after)
    return {other[1]} & set(options) if other else set()


_JOINED = re.compile(
    r"[*)\"]*\s*(?:[,;:/&!\s和与或及]|-+>)\s*[*(\"]*([A-Z])(?=[*)\"]*\s*(?:[.,;!]|$|(?:and|or|[A-Z])\b))"
)


def _named(text: str, options: Mapping[str, str]) -> set[str]:
    """Find the options whose words a text names; values only on the right side of an equation, if there is one."""
    if _polar(options):
        return set()
    named = set(mentions(text, options))
    if "=" in text and not any("=" in words for words in options.values()):
        right = set(mentions(text.rpartition("=")[2], options))
        named = {letter for letter in named if letter in right or not _IS_VALUE.search(options[letter])}
    return named


_IS_VALUE = re.compile(r"[\d√π\\]|^\W*\w{0,2}\W*$")
"""An option that an equation may contain; the words of others count on both sides: "at t=2 larger than at t=5"."""
_POLAR = (
    {"yes", "no"},
    {"true", "false"},
    {"correct", "incorrect"},
    {"right", "wrong"},
    {"对", "错"},
    {"正确", "错误"},
)
_AFFIRMS = frozenset({"yes", "true", "correct", "right", "对", "正确"})


def _polar(options: Mapping[str, str]) -> dict[str, str]:
    """Return the letters of Yes and No if these, or True and False, are the only options; else nothing.

    >>> _polar({"A": "False.", "B": "True"})
    {'No': 'A', 'Yes': 'B'}
    """
    words = {letter: text.strip(" .").casefold() for letter, text in options.items()}
    if len(words) != 2 or set(words.values()) not in _POLAR:
        return {}
    return {"Yes" if text in _AFFIRMS else "No": letter for letter, text in words.items()}
