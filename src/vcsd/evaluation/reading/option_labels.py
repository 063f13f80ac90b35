"""Reads a letter at the beginning of a text as the label of an option, unless what follows contradicts it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcsd.evaluation.reading import numbers
from vcsd.evaluation.reading.option_words import mentions, patterns
from vcsd.evaluation.reading.texts.formulas import continues_formula, formula
from vcsd.evaluation.reading.texts.statements import PAYLOAD_LENGTH, Reading, sentences

if TYPE_CHECKING:
    from collections.abc import Mapping

TICKS = "✓✔✅☑"
_MARKS = " \t*_\"'`$([{<:-#>" + TICKS
_FILLER = re.compile(
    r"(?:most\s+likely|likely|probably|clearly|indeed|simply|definitely|actually|therefore|thus|hence|either|both|"
    r"the\s+letter|letter|the\s+option|option|choice|选项|选择|选)(?![a-z])[\s,:*(\"]*",
    re.IGNORECASE,
)
_LETTER = re.compile(r"([A-Za-z])(?!'?[A-Za-z0-9_])")
CLOSERS = re.compile(r"[)\]}*_\"'`$>]*")
_GOES_ON = re.compile(r"\s+(?:because|since|as|is|or|and|with|given|for|due|based|although|but|if|\()(?![a-z])")
_ANOTHER = re.compile(
    r"\s*(?:,\s*(?:and|or)\b|,|/|&|\band\b|\bor\b|和|或|与|或者|及)\s*(?:(?:maybe|perhaps|possibly|even|also|option)\s*)?"
    r"[*(\"]*([A-Z])(?![A-Za-z])"
)

_SEQUENCE = re.compile(
    r"\s*(?:[;:!]|-+>|\u2192|>)\s*[*(\"]*([A-Z])(?![A-Za-z])(?!\s+[a-z]{2})|\s+([A-Z])(?=\s+[A-Z]\b|\W*(?:$|\n))"
)
"""B; C, B -> C, B A C D: an order of labels chooses none of them."""
_LISTED = re.compile(
    r"(?:,|\bor\b|\band\b|[和与及或、])[\s}]*(?:\\quad\s*)?(?:\\text\{\s*)?(?:option\s+|选项\s*)?"
    r"(?:\(([A-Z])\)|([B-HJ-Z])(?=\s*\(|\s*[.,:;)]|\s*$|\s+(?:are|both)\b))"
)
NONE_OF = re.compile(r"[\s.:,*\"'-]*(?:none|neither)\b", re.IGNORECASE)


_REJECTED = re.compile(
    r"\b(?:is|are|was|can\s+be)\s+(?:wrong|incorrect|ruled\s+out|excluded|eliminated)\b|"
    r"\b(?:is|are|was)(?:\s+not|n't)\s+(?:the\s+|an?\s+)?(?:correct|right|best|valid|answer)\b|"
    r"\bcan(?:\s?not|'t)\s+be\s+(?:the\s+)?(?:correct|right|best|true|answer|it)\b|\b(?:seems?|looks?)\s+(?:wrong|incorrect|unlikely)\b|"
    r"\bdo(?:es)?(?:\s+not|n't)\s+(?:fit|match|work|apply|hold|seem)\b",
    re.IGNORECASE,
)


def lettered(text: str, options: Mapping[str, str]) -> Reading | None:
    """Read an option's letter at the beginning of a text."""
    lead = text.lstrip(_MARKS)
    while filler := _FILLER.match(lead):
        lead = lead[filler.end() :].lstrip(_MARKS)
    found = _LETTER.match(lead)
    if not found:
        return None
    letter, after = found[1], lead[found.end() :]
    if (prime := _PRIME.match(after)) and "'" not in text[: len(text) - len(lead)]:
        return _primed(letter + prime[0], options)
    return _label(text[: len(text) - len(lead)], letter, after, options)


def _label(before: str, letter: str, after: str, options: Mapping[str, str]) -> Reading | None:
    """Read a letter, given the text before and after it."""
    closing = CLOSERS.match(after)[0]  # type: ignore[index]
    rest = after[len(closing) :]
    is_closed = bool(set(closing) & set(")]}"))
    is_part = _is_part(before, after, rest, is_closed=is_closed)
    if is_part and not has_own(letter, rest, options):
        return Reading(None, "part of a formula") if letter in options else None
    if not _is_label(letter, rest, options, is_closed=is_closed):
        return None
    letter = letter.upper()
    if letter not in options:
        return None if letter == "I" else Reading(None, "letter")
    is_rejected = _is_rejected(letter, rest) or is_denied(letter, rest, options)
    if is_rejected and not _REJECTED.search(options[letter]):
        return None
    return Reading(None, "label in doubt") if _is_doubtful(letter, rest, options) else Reading(letter, "letter")


_PRIME = re.compile(r"(?:\s?\^\s?\{?\s?(?:\\prime\s?|')+\}?|['\u2032\u2033]+)(?!\w)")
"""B': another point than B."""


def _primed(point: str, options: Mapping[str, str]) -> Reading:
    """Read a letter with a prime: an option only if its words are just this."""
    same = [letter for letter, words in options.items() if _plain_primes(words) == _plain_primes(point)]
    return Reading(same[0] if len(same) == 1 else None, "letter with a prime")


def _plain_primes(words: str) -> str:
    return re.sub(r"[\s${}^.]", "", words.replace("\\prime", "'").replace("\u2032", "'").replace("\u2033", "''"))


def _is_rejected(letter: str, rest: str) -> bool:
    """Whether the words after a label reject it, not another one: "B. C is wrong" keeps B."""
    other = _ANOTHER_IS.match(rest)
    is_other = other is not None and other[1] != letter
    is_other = is_other or bool(_NEW_SUBJECT.match(rest))
    return not is_other and bool(_REJECTED.search(" ".join(rest.split()[:6])))


def is_denied(letter: str, rest: str, options: Mapping[str, str]) -> bool:
    """Whether the text after a label denies that it is right: "(B) The green one is not the correct choice".

    >>> is_denied("B", " The green one is not the correct choice.", {"A": "red", "B": "green"})
    True
    >>> is_denied("B", " Green, because red is not the correct choice.", {"A": "red", "B": "green"})
    False
    """
    pieces = sentences(rest[:PAYLOAD_LENGTH])[:2]
    about = pieces if len(pieces) > 1 and _SAME_SUBJECT.match(pieces[1]) else pieces[:1]
    text = " ".join(about)
    denial = _NOT_THE_CHOICE.search(text)
    if not denial or _OTHER_SUBJECT.search(text, 0, denial.start()):
        return False
    others = {of: words for of, words in options.items() if of != letter}
    labels = set(_BARE_LABEL.findall(text[: denial.start()])) & set(others)
    return not labels and not mentions(text[: denial.start()], others)


_NOT_THE_CHOICE = re.compile(
    r"(?:\b(?:can)?not|n't)\s+(?:be\s+)?(?:the\s+|an?\s+)?(?:correct|right|best|valid)\s+(?:answer|choice|option|one)\b|"
    r"\b(?:but|yet)\s+(?:it\s+is\s+|it's\s+|is\s+)?(?:not|isn't)\s+(?:correct|right)(?=\W*$|\.)",
    re.IGNORECASE,
)
_SAME_SUBJECT = re.compile(r"(?:but\s+)?(?:that|this|it)\b", re.IGNORECASE)
_OTHER_SUBJECT = re.compile(
    r"\b(?:because|since|while|whereas|others?|rest|remaining|first|second|third|last|any|none|if)\b", re.IGNORECASE
)
_BARE_LABEL = re.compile(r"(?<![A-Za-z'])(?:[B-H]|A(?!\s+(?!is\b|was\b)[a-z]))(?![A-Za-z'])")
"""A letter alone, but not the article in "A lawn"."""


_ANOTHER_IS = re.compile(
    r"[.!,;]?\s*(?:(?:and|but|since|because|as)\s+)?(?:option\s+)?\(?([A-Z])\)?\s*(?:is|was|can|could|does|seems)",
    re.IGNORECASE,
)


_NEW_STATEMENT = re.compile(r"[.!?]\s*(?:the\s+answer|答案)", re.IGNORECASE)
_NEW_SUBJECT = re.compile(r"[.!?]\s+(?:the\s+(?:answer|others?)|others?|it|this)\b", re.IGNORECASE)


def _is_part(before: str, after: str, rest: str, *, is_closed: bool) -> bool:
    """Whether a letter is only a part of a formula: -B, B*C, B + C; `rest` is what comes after quotes and brackets."""
    is_product = bool(TIMES.match(after))
    return before.endswith("-") or is_product or continues_formula(rest, is_closed=is_closed)


TIMES = re.compile(r"\*[A-Za-z0-9(]")


def has_own(letter: str, rest: str, options: Mapping[str, str]) -> bool:
    """Whether a label is followed by the words of its own option: "B = 3", "B (3)", "B - x + 1"."""
    own = dict(patterns(tuple(options.items()))).get(letter)
    words = rest.lstrip(" .:),*_=/>\u2192\u2013\u2014-")
    if own and (own.match(words) or own.match(words.lstrip("( ")) or own.match(rest.lstrip(" "))):
        return True
    values = [number.value for number in numbers.numbers(numbers.clean(options.get(letter, "")))]
    said = numbers.numbers(words)
    return bool(said) and said[0].start == 0 and [said[0].value] == values


def _is_doubtful(letter: str, rest: str, options: Mapping[str, str]) -> bool:
    """Whether the text after a label contradicts it: with another label, or with the words of another option."""
    if len(own := formula(options[letter])) > 1 and own == formula(rest.strip(" .:),")):
        return False
    first = "" if _NEW_STATEMENT.match(rest) else (sentences(rest[:PAYLOAD_LENGTH]) or [""])[0]
    ordered = None if has_own(letter, rest, options) else _SEQUENCE.match(rest)
    others = _ANOTHER.match(rest) or ordered or _LISTED.search(first)
    if others and others[others.lastindex or 1] in set(options) - {letter}:
        return True
    if _is_listed(letter, rest, options) or _begins_list(letter, rest, options) or _REPEATED.match(letter + rest):
        return True
    is_none = NONE_OF.match(rest) and not NONE_OF.match(options[letter])
    return bool(is_none) or names_another(rest, letter, options)


def says_another(after: str, letter: str, options: Mapping[str, str]) -> bool:
    """Whether the text after a letter says that the answer is another option's words: "A is correct: it is green"."""
    piece = " ".join(sentences(after[:PAYLOAD_LENGTH])[:2]).replace("的", "")
    options = {of: words.replace("的", "") for of, words in options.items()}  # 航班减少 is said as 航班的减少 too
    named = set(mentions(piece, options)) if piece else set()
    if not named or letter in named:
        return False
    places = [
        (of, found.start()) for of, pattern in patterns(tuple(options.items())) for found in pattern.finditer(piece)
    ]
    return any(of in named and _IS_BEFORE.search(piece[:start]) for of, start in places)


_IS_BEFORE = re.compile(
    r"(?:是|为|\b(?:is|are|was|were))\s*(?:(?:the|an?|really|indeed|in\s+fact)\s+)*$", re.IGNORECASE
)
_REPEATED = re.compile(r"([A-Z])(?:,\s*\1){2,}(?![A-Za-z])")
"""A, A, A: an answer to several questions, or a loop."""
_LABEL_IN_LIST = re.compile(r"(?<![A-Za-z])\(?([A-Z])[).:]\s+(?!(?:is|are|was|were|would|can|could|has|does)\b)")


def _begins_list(letter: str, rest: str, options: Mapping[str, str]) -> bool:
    """Whether a label begins a list of all options on one line, in whatever words: "A) one text B) another C) none"."""
    others = [one for one in options if one != letter]
    labels = _LABEL_IN_LIST.findall(rest.partition("\n")[0])
    return len(others) > 1 and [letter, *others] == list(options) and labels == others


_NEXT_LABEL = re.compile(r"[\s,;/&]*(?:and|or)?\s*\(?([A-Z])\b")


def _is_listed(letter: str, rest: str, options: Mapping[str, str]) -> bool:
    """Whether the option after a label is followed by the next one: "A. red B. green" lists them."""
    words = rest.lstrip(' .:),*_("-')
    own = dict(patterns(tuple(options.items()))).get(letter)
    end = own.match(words) if own else None
    following = _NEXT_LABEL.match(words, end.end()) if end else None
    return bool(following) and following[1] in set(options) - {letter}  # type: ignore[index]


_PHRASE_END = re.compile(r"\s(?=[a-z]{2})|[.,;](?:\s|$)|\n")


def names_another(rest: str, letter: str, options: Mapping[str, str]) -> bool:
    """Whether the text after a label begins with the words of another option, such as "C. 3.5" for D's 3.5."""
    words = re.sub(r"^-\s+", "", rest.lstrip(' .:),*_("'))
    own = formula(options[letter])
    if own and formula(_PHRASE_END.split(words)[0]) == own:
        return False
    first = [(found.end(), of) for of, pattern in patterns(tuple(options.items())) if (found := pattern.match(words))]
    longest = max(first, default=(0, letter))[0]
    return bool(first) and letter not in [of for end, of in first if end == longest]


_ATTACHED = re.compile(r"[A-Za-z0-9]")


def _is_label(letter: str, rest: str, options: Mapping[str, str], *, is_closed: bool) -> bool:
    """Whether a letter at the beginning is a label, not an article or the first letter of a word."""
    if rest.lstrip()[:1] == "=" and not is_closed:
        return False
    if not rest.strip() or is_closed or (rest[0] in ".:)" and not _ATTACHED.match(rest, 1)):
        return True
    if letter.islower():
        return rest[0] in "},"
    if rest[0] != " ":
        return rest[0] in ",;!?-/&(\n" or not rest[0].isascii()
    words = options.get(letter, "").casefold()
    names_option = bool(words) and rest.strip().casefold().startswith(words.rstrip("."))
    return letter not in "AI" or names_option or bool(_GOES_ON.match(rest)) or not rest.lstrip()[0].islower()
