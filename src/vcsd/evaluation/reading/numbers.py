"""Reads a number, or a list of numbers, from a text with reasoning.

A number counts if it is stated as the answer, is the result of an equation, stands alone on the last line, or is the
only number of the last sentence. Two numbers joined by "or", or several without a conclusion, are not an answer.
Fractions, powers, percent, degrees, currency, units, thousands and number words are understood. The number is returned
as written (`2.50` stays); rounding is up to the comparison.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from vcsd.evaluation.reading.statements import Reading, conclusions, is_complete, sentences, without_latex

_UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_TEENS = ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_WORDS = {word: value for value, word in enumerate(_UNITS + _TEENS)} | _TENS
_CHINESE = {word: value for value, word in enumerate("零一二三四五六七八九十")} | {"两": 2}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "万": 10**4, "亿": 10**8}

_PLAIN = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"""
    (?<![A-Za-z0-9_.^√]) (?<![A-Za-z]-) (?P<sign>(?<![\d)])-)?
    (?: (?P<top>\d+)\s*/\s*(?P<bottom>[1-9]\d*)(?!\d|\.\d)
      | (?P<base>\d+)\s*\^\s*\{{?(?P<power>\d{{1,2}})\}}?
      | (?P<plain>{_PLAIN})
        (?: \s*[\u00d7x*]\s*10\s*\^\s*\{{?(?P<tens>-?\d{{1,2}})\}}? | [eE](?P<e>[+-]?\d{{1,2}})(?!\w) )?
        (?: \s*(?P<scale>thousand|million|billion|万|亿) )?
    )
    (?![\d^]|\s*(?:[√π]|\\sqrt|\\pi))
    | (?P<word>\b(?:{"|".join(_TENS)})[-\s](?:{"|".join(_UNITS[1:10])})\b|\b(?:{"|".join(_WORDS)})\b)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_LONGEST = 40
"""The most characters of a number; anything longer is a loop of digits."""
_NO_COUNT = re.compile(r"\b(?:no|the|this|that|which|each|every|any|by|from|other|another)\Z", re.IGNORECASE)
_LONGEST_NO_COUNT = len("another")
_NO_COUNT_AFTER = re.compile(r"[\s-]+(?:of|another|by|side|way|hand|can|could|may|needs?)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Number:
    """A number in a text: its value as written, and its position."""

    value: str
    start: int
    end: int


def numbers(text: str) -> list[Number]:
    """Find the numbers in a text, in order.

    >>> [number.value for number in numbers("1,200 of twenty-one, 3/4, -2.50 and 1.2 × 10^3")]
    ['1200', '21', '0.75', '-2.50', '1200']
    """
    return [
        Number(_value(found), found.start(), found.end())
        for found in _NUMBER.finditer(text)
        if len(found[0]) <= _LONGEST and (found[0].lower() != "one" or not _is_pronoun(text, found))
    ]


def _is_pronoun(text: str, one: re.Match[str]) -> bool:
    """Whether "one" is not a count, as in the one, no one, one of, one can see."""
    end = one.start()
    while end and (text[end - 1].isspace() or text[end - 1] == "-"):
        end -= 1
    # Only the nearest word is looked at: searching the whole text before every "one" takes minutes on a long answer.
    is_after_word = end < one.start() and _NO_COUNT.search(text[max(0, end - _LONGEST_NO_COUNT - 1) : end])
    return bool(is_after_word or _NO_COUNT_AFTER.match(text, one.end()))


def _value(found: re.Match[str]) -> str:
    if found["word"]:
        return str(sum(_WORDS[word] for word in re.split(r"[-\s]", found["word"].lower())))
    sign = found["sign"] or ""
    if found["top"]:
        return sign + _decimal(Fraction(int(found["top"]), int(found["bottom"])))
    if found["base"]:
        return sign + str(int(found["base"]) ** int(found["power"]))
    plain = found["plain"].replace(",", "")
    plain = f"0{plain}" if plain.startswith(".") else plain
    tens = found["tens"] or found["e"]
    if tens or found["scale"]:
        scale = _SCALES[found["scale"].lower()] if found["scale"] else 1
        return sign + _decimal(Fraction(plain) * Fraction(10) ** int(tens or 0) * scale)
    return sign + plain


def _decimal(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else repr(float(value))


_LATEX = [
    (re.compile(r"(?:\\sqrt|√)\s*\{([^{}]*)\}"), r"√\1"),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]+)\}\s*\{([^{}]+)\}"), r"\1/\2"),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\degree"), "°"),
    (re.compile(r"\\times|\\cdot"), "\u00d7"),
    (re.compile(r"\\approx|\\sim"), "≈"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile(r"\\(?:left|right|quad|displaystyle)"), " "),
]


def clean(text: str) -> str:
    r"""Replace LaTeX in numbers by plain signs.

    >>> clean(r"\frac{3}{4} \times 1{,}200^\circ")
    '3/4 × 1,200°'
    """
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    return without_latex(text).strip()


_LEAD = re.compile(
    r"(?:[\s:*_\"'`(\[{<≈~=$£€¥#>]|(?:about|approximately|approx\.?|roughly|around|exactly|only|just|equal\s+to|约为|约|大约)(?![a-z]))*",
    re.IGNORECASE,
)
_OR_ANOTHER = re.compile(r"[^\w.;]*(?:or|to|and|或|到|至|-|\u2013|,\s)\s*[$£€]?\d", re.IGNORECASE)
_OPERATOR = re.compile(r"[^\w.,;]*[+*/\u00d7\u00f7^=-]\s*[$£€(\d]")
_SPACED = re.compile(r"-?\d{1,3}(?: \d{3})+")


def read_boxed(payload: str) -> Reading:
    """Read the number in a box; `found` is None unless there is exactly one."""
    found = numbers(clean(payload).rpartition("=")[2])
    return Reading(found[0].value if len(found) == 1 else None, "boxed")


def read_stated(payload: str) -> Reading | None:
    """Read the number in a statement; `found` is None if it offers several."""
    text = clean(payload).replace("**", "")
    lead = text[_LEAD.match(text).end() :]  # type: ignore[union-attr]
    if lead.rstrip(".") in _CHINESE:
        return Reading(str(_CHINESE[lead.rstrip(".")]), "stated")
    found = numbers(lead)
    if found and found[0].start == 0:
        after = lead[found[0].end :]
        if _OR_ANOTHER.match(after):
            return Reading(None, "several numbers")
        if not _OPERATOR.match(after):
            return Reading(found[0].value, "stated")
    return _concluded((sentences(lead) or [""])[0])


def read_text(text: str) -> Reading | None:
    """Read the number that a text without a statement concludes with."""
    bold = _bold(clean(text))
    text = clean(text).replace("**", "")
    if _SPACED.fullmatch(text.rstrip(".")):
        return Reading(text.rstrip(".").replace(" ", ""), "only number")
    if text.rstrip(".") in _CHINESE:
        return Reading(str(_CHINESE[text.rstrip(".")]), "only number")
    if bold is not None:
        return Reading(bold, "bold")
    if all(_ITEM.match(line) for line in text.splitlines()[-2:]) and "\n" in text:
        return None
    ends = conclusions(text, has_ended=_has_ended(text))
    readings = [reading for sentence in ends if (reading := _concluded(sentence))]
    return readings[-1] if len({reading.found for reading in readings}) == 1 else None


_ITEM = re.compile(rf"^\s*(?:[-*•]|\d+[.)]\s|[^:=\n]{{1,40}}:\s*(?:{_PLAIN})\W*$)")
"""A line of a list. Its last item is no more likely to be the answer than its first."""
_BOLD = re.compile(r"\*\*[^\w*-]{0,4}(-?[\d.][^*\n]*|[A-Za-z]+)\*\*")


def _bold(text: str) -> str | None:
    """Return the only number in bold, unless a new number comes after it.

    >>> _bold("so it is **7** apples."), _bold("**7** apples and 3 pears, so 10")
    ('7', None)
    """
    spans = [(span.end(), found[0].value) for span in _BOLD.finditer(text) if (found := numbers(span[1]))]
    if len({value for _, value in spans}) != 1:
        return None
    end, value = spans[-1]
    known = {number.value for number in numbers(text[:end].replace("**", ""))}
    return value if {number.value for number in numbers(text[end:])} <= known else None


def _has_ended(text: str) -> bool:
    """Whether a text is complete: it ends with punctuation, or with a number and at most one word as its unit."""
    if text.rstrip("*_`\"')]} ")[-1:] in (".", "!", "?"):
        return True
    found = numbers(text)
    if not found:
        return False
    return len(text[found[-1].end :].split()) <= 1 or (is_complete(text) and found[0].start == 0)


_ASIDE = re.compile(r"\([^()]*\)")
_NEGATED = re.compile(
    rf"\b(?:not|than|instead\s+of|above|below|at\s+least|at\s+most|over|under)\s+[$£€]?(?:{_PLAIN})%?", re.IGNORECASE
)
_REASON = re.compile(r"(?<=[\d%°]),?\s+(?:(?:because|since|as)\b.*|(?:which|so\s+that|where)\b\D*)$", re.IGNORECASE)
_IS = re.compile(
    r"(?:\b(?:is|are|was|were|be|equals|total\s+of|leaves|gives(?:\s+us)?)\b|[:≈]|是|为|等于|共有?)\s*[^\w\s]*\s*$",
    re.IGNORECASE,
)
_HAN = re.compile(r"[\u4e00-\u9fff]")


def _concluded(sentence: str) -> Reading | None:
    """Read a sentence's conclusion: the right side of its last equation, its only number, or its last one."""
    sentence = _REASON.sub("", _NEGATED.sub("", sentence))
    if "=" in sentence:
        right = sentence.rpartition("=")[2]
        right = right[_LEAD.match(right).end() :]  # type: ignore[union-attr]
        found = numbers(right)
        if len({number.value for number in found}) == 1 and found[0].start == 0:
            return Reading(found[0].value, "equation")
        return None
    clause = re.split(r";|,(?!\d)" if _HAN.search(sentence) else ";", _ASIDE.sub("", sentence))[-1]
    found = numbers(clause) or numbers(sentence)
    if len(found) > 1 and _OPERATOR.match(clause[found[-2].end :]):
        return None  # a calculation without its result
    if len({number.value for number in found}) == 1:
        return Reading(found[0].value, "one number")
    ends = found and _IS.search(clause[: found[-1].start]) and len(clause[found[-1].end :].split()) <= 2
    return Reading(found[-1].value, "last number") if ends else None


_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_ROUND = re.compile(r"\(([^()]*,[^()]*)\)")
_BETWEEN = re.compile(rf"\bbetween\s+({_PLAIN})\s+and\s+({_PLAIN})", re.IGNORECASE)


def read_list(text: str) -> Reading | None:
    """Read the last list of numbers in a text, in Python's notation."""
    text = clean(text.replace("\\[", "[").replace("\\]", "]"))
    for pattern, by in ((_BRACKETS, "list"), (_ROUND, "pair"), (_BETWEEN, "between")):
        found = pattern.findall(text)
        if found:
            last = found[-1]
            return _listed(last if isinstance(last, str) else ", ".join(last), by)
    return _listed(text.rstrip("."), "list") if "," in text else None


def _listed(inside: str, by: str) -> Reading | None:
    items = [item.strip() for item in inside.split(",")]
    if not all(re.fullmatch(r"-?(?:\d+(?:\.\d+)?|\.\d+)", item) for item in items):
        return None
    return Reading(str([float(item) if "." in item else int(item) for item in items]), by)
