"""Reads a number from a text with reasoning.

A number counts if it is stated as the answer, is the result of an equation, stands alone on the last line, or is the
only number of the last sentence. Two numbers joined by "or", or several without a conclusion, are not an answer; nor is
a number of the question, of a refusal, or of an example.
Fractions, powers, percent, degrees, currency, units, thousands and number words are understood. The number is returned
as written (`2.50` stays); rounding is up to the comparison.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from vcsd.evaluation.reading.texts.formulas import is_factor
from vcsd.evaluation.reading.texts.given_numbers import limits, times_as_numbers, without_settings
from vcsd.evaluation.reading.texts.question_words import (
    NOTHING_ASKED,
    Place,
    QuestionWords,
)
from vcsd.evaluation.reading.texts.refusals import refuses
from vcsd.evaluation.reading.texts.statements import (
    LONGEST_SENTENCE,
    Reading,
    sentences,
    without_latex,
)

_UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_TEENS = ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_WORDS = {word: value for value, word in enumerate(_UNITS + _TEENS)} | _TENS
CHINESE = {word: value for value, word in enumerate("零一二三四五六七八九十")} | {"两": 2}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "万": 10**4, "亿": 10**8}

PLAIN_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"""
    (?<![A-Za-z0-9_.^√/]) (?<![A-Za-z]-) (?<!\d:) (?P<sign>(?<![\d)])-)?
    (?: (?:(?P<whole>\d{{1,3}})\ )?(?P<top>\d+)\s*/\s*(?P<bottom>[1-9]\d*)(?!\d|\.\d)
      | (?P<base>\d+)\s*\^\s*\{{?(?P<power>[1-9]\d?)\}}?
      | (?P<plain>{PLAIN_NUMBER})
        (?: \s*[\u00d7x*]\s*10\s*\^\s*\{{?(?P<tens>-?\d{{1,2}})\}}? | [eE](?P<e>[+-]?\d{{1,2}})(?!\w) )?
        (?: \s*(?P<scale>thousand|million|billion|万|亿) )?
    )
    (?![\d^]|:\d|\s*(?:[√π]|\\sqrt|\\pi))
    | (?P<word>\b(?:{"|".join(_TENS)})[-\s](?:{"|".join(_UNITS[1:10])})\b|\b(?:{"|".join(_WORDS)})\b)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_LONGEST = 40
"""The most characters of a number; anything longer is a loop of digits."""
_NO_COUNT = re.compile(
    r"\b(?:no|the|this|that|which|each|every|any|by|from|other|another|\w{2,8}est|larger|smaller|higher|lower|right|wrong|"
    r"correct|first|second|last|next|same|different)\Z",
    re.IGNORECASE,
)
_LONGEST_NO_COUNT = len("different")
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
    # Only the nearest word is examined: searching the whole text before every "one" takes minutes on a long answer.
    is_after_word = end < one.start() and _NO_COUNT.search(text[max(0, end - _LONGEST_NO_COUNT - 1) : end])
    return bool(is_after_word or _NO_COUNT_AFTER.match(text, one.end()))


def _value(found: re.Match[str]) -> str:
    if found["word"]:
        return str(sum(_WORDS[word] for word in re.split(r"[-\s]", _latin(found["word"]))))
    sign = found["sign"] or ""
    if found["top"]:
        return sign + _decimal(int(found["whole"] or 0) + Fraction(int(found["top"]), int(found["bottom"])))
    if found["base"]:
        return sign + str(int(found["base"]) ** int(found["power"]))
    plain = found["plain"].replace(",", "")
    plain = f"0{plain}" if plain.startswith(".") else plain
    tens = found["tens"] or found["e"]
    if tens or found["scale"]:
        scale = _SCALES[_latin(found["scale"])] if found["scale"] else 1
        return sign + _decimal(Fraction(plain) * Fraction(10) ** int(tens or 0) * scale)
    return sign + plain


def _latin(word: str) -> str:
    """Return a word as the tables have it. IGNORECASE takes the Turkish ı and İ for an i, and the long ſ for an s."""
    return word.lower().replace("\u0307", "").replace("\u0131", "i").replace("\u017f", "s")


def _decimal(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else repr(float(value))


_ANGLE = r"(?!100?\b)[1-9]\d\d?(?:\.\d+)?"
"""The degrees in 60^0, which nobody means as a power. 10^0 and 2^0 are ambiguous, unless an angle is named."""
_ABOUT_ANGLES = re.compile(r"∠|\bangles?\b|\bdegrees?\b|角", re.IGNORECASE)
_NAMED_ANGLE = re.compile(r"(?<![\d.^])(\d{1,3})\s*\^\s*0(?!\.?\d)(?!\s*[)$]*\s*[=+*/^\u00d7\u00f7])")
_LATEX = [
    (re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}(?=\s*\})"), r"\1"),  # the unit in \frac{\text{m}}{\text{s}}
    (re.compile(r"(?:\\sqrt|√)\s*\{([^{}]*)\}"), r"√\1"),
    (re.compile(r"(?<=\d)\s*\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\}"), r" \1/\2"),  # 2\frac{1}{2} is 2 1/2
    (re.compile(r"\\[dt]?frac\s*\{([^{}]+)\}\s*\{([^{}+(√-]+|√\d+)\}"), r"\1/\2"),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]+)\}\s*\{([^{}]+)\}"), r"\1/(\2)"),
    (re.compile(r"\^\s*\{?\s*(?:\\circ|[°\u2218\u00ba\u02da])\s*\}?|\\degrees?(?![a-z])"), "°"),
    (re.compile(r"(?<=\d)\s*\^\s*(?:\{\s*\\?(?:text|rm|mathrm)?\s*\{?\s*o\s*\}?\s*\}|o(?![a-z]))"), "°"),  # 60^o
    (
        re.compile(rf"(?<![\d.^])({_ANGLE})\s*\^\s*(?:\{{\s*0\s*\}}|0)(?!\.?\d)(?!\s*[\])}}$]*\s*[=+*/^\u00d7\u00f7])"),
        r"\1°",
    ),
    (re.compile(r"\^\s*\{\s*(-?\d+)\s*\}"), r"^\1"),
    (re.compile(r"\{~"), "{ "),
    (re.compile(r"(?<=\d[a-z])\{([a-z])\}"), r"\1"),  # 6c{m}^2
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
    if any(sign in text for sign in "\\{^"):
        for pattern, plain in _LATEX:
            text = pattern.sub(plain, text)
        text = _NAMED_ANGLE.sub(r"\1°", text) if "^" in text and _ABOUT_ANGLES.search(text) else text
    return without_latex(text).strip()


_LEAD = re.compile(
    r"(?:[\s:*_\"'`(\[{<≈~=$£€¥#>]|(?:about|approximately|approx\.?|roughly|around|exactly|only|just|equal\s+to|约为|约|大约)(?![a-z]))*",
    re.IGNORECASE,
)
_OR_ANOTHER = re.compile(
    r"[^\w.;]*(?:or|to|and|或|到|至|-|\u2013|,\s)\s*[$£€]?\d|"
    r"(?:\s+(?!because|since|as\b|is\b|are\b)[A-Za-z]+){1,3}\s+(?:and|or)\s+\d|"
    r"[\u4e00-\u9fff]{1,5}[和与或]\s*\d",
    re.IGNORECASE,
)
_RELATIVE = re.compile(r"%?\s*(?:of|times|(?:more|less|fewer|larger|smaller)\s+than)\s+[$£€]?\d")
"""50% of 8, 3 more than 4: not yet a value."""
_BOUND = re.compile(r"[<>\u2264\u2265]\s*$")
_EQUATIONS = re.compile(r"[A-Za-z]\w?\s*=\s*-?[\d.]+\s*(?:,|;|and)\s*[A-Za-z]\w?\s*=")
"""x = 3, y = 4"""
_WEIGHT = re.compile(r"\d\s?mg(?![A-Za-z}])")
"""2mg in a formula: a mass times g, not milligrams."""
_OPERATOR = re.compile(r"[^\w.,;]*[+*/\u00d7\u00f7^=-]\s*[$£€(\d]")
SPACED = re.compile(r"-?\d{1,3}(?: \d{3})+")


def read_boxed(payload: str) -> Reading:
    """Read the number in a box; `found` is None unless there is exactly one."""
    text, left = clean(payload).rpartition("=")[2], clean(payload).partition("=")[0]
    is_open = "=" in payload and _CURVE.search(left)
    found = [] if is_open or is_calculation(text) or _WEIGHT.search(payload) else numbers(text)
    found = [] if any(is_in_formula(text, number) for number in found) else found
    return Reading(found[0].value if len(found) == 1 else None, "boxed")


def is_calculation(text: str) -> bool:
    """Whether a text is a formula and not its value: 4 - 4√3, 180° - α.

    >>> is_calculation("3^2014 - 2"), is_calculation("150 cm^2"), is_calculation("-2")
    (True, False, False)
    """
    plain = [*_NUMBER.finditer(text)]
    whole = plain[0] if len(plain) == 1 and (plain[0]["power"] or plain[0]["tens"]) else None
    rest = text.replace(whole[0], "") if whole else text
    return bool(_CALCULATES.search(_UNIT_POWER.sub("", rest)))


def read_stated(payload: str, asked: QuestionWords = NOTHING_ASKED) -> Reading | None:
    """Read the number in a statement; `found` is None if it offers several."""
    text = own_numbers(clean(payload).replace("**", ""), asked)
    opening = _LEAD.match(text)[0]  # type: ignore[index]
    lead = text[len(opening) :]
    if lead.rstrip(".") in CHINESE:
        return Reading(str(CHINESE[lead.rstrip(".")]), "stated")
    if _WHETHER.match(lead):
        return Reading(None, "yes or no")
    if leading := _leading(lead, is_bound=bool(_BOUND.search(opening))):
        return leading
    if _EQUATIONS.match(lead):
        return Reading(None, "several numbers")
    first = (sentences(lead) or [""])[0]
    if refuses(f"it is {first}") or (_VARIABLE.search(first) and "=" not in first):
        return Reading(None, "no number")
    reading = concluded(first)
    own = concluded(first, asked) if reading and asked.text and not _AS_ASKED.search(first) else reading
    is_own = reading is None or (own is not None and own.found == reading.found)
    return reading if is_own else Reading(None, "repeats the question")


_AS_ASKED = re.compile(r"\\boxed|\ball\b", re.IGNORECASE)
"""All 5 of them: here a number of the question answers it."""


def _leading(lead: str, *, is_bound: bool) -> Reading | None:
    """Read the number that a statement begins with; `found` is None if it is only one of several, or no value."""
    found = numbers(lead)
    if not found or found[0].start > 0:
        return None
    after = lead[found[0].end :]
    is_sum = _OPERATOR.match(after) and "=" in (sentences(lead) or [""])[0]
    if _OR_ANOTHER.match(after) and not is_sum:
        return Reading(None, "several numbers")
    is_bound = is_bound and not after.startswith(">")
    if is_bound or (_RELATIVE.match(after) and not is_sum) or is_in_formula(lead, found[0]):
        return Reading(None, "no number")
    return None if _OPERATOR.match(after) else Reading(found[0].value, "stated")


_REFERENCE = re.compile(
    r"\b(row|column|step|figure|fig|table|option|choice|question|problem|part|line|page|section|equation|method|item)"
    r"\.?\s+(?:no\.?\s*)?\d+\b|\b(?:\d+|two|three|four|five|six)\s+(steps)\b|(第)\s*\d+|(?<!\d)\d+\s*(步)",
    re.IGNORECASE,
)


def own_numbers(text: str, asked: QuestionWords) -> str:
    """Remove references such as "Figure 3" and "in 2 steps" from a text, unless the question is about them."""
    if not asked.text:
        return text
    text, question = times_as_numbers(text, asked), asked.text.casefold()

    def is_asked(found: re.Match[str]) -> bool:
        return next(word for word in found.groups() if word).casefold().removesuffix("s") in question

    return _REFERENCE.sub(lambda found: found[0] if is_asked(found) else "it", text)


SIGN = re.compile(r"[=≈:]\s*[$£€(]*\s*$")


_ASIDE = re.compile(r"(?<!/)\((?!\s*\d*[a-z]\w?\s*[-+*/^])[^()]*\)")
_NEGATED = re.compile(
    r"(?:(?:\b(?:not|than|instead\s+of|above|below|at\s+least|at\s+most|over|under|can(?:not|'t)\s+be)|n't)\s+|"
    r"[<>\u2264\u2265]\s*|"
    rf"(?:不是|并非|不到|至少|至多|最多|大于|小于|超过|少于|多于)\s*)[$£€]?(?:{PLAIN_NUMBER})%?",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"(?<=[\d%°]),?\s+(?:(?:because|since|as)\b.*|(?:which|so\s+that|where)\b\D*)$"
    r"|(?<=[\w%°]),\s+(?:with|as|since|because|indicating|based\s+on|rounded(?!.*\bis\b))\b.*$",
    re.IGNORECASE,
)
_EXPLAINED = re.compile(
    rf"(?P<kept>\b(?:is|are|was|were)\s+[$£€]?(?:{PLAIN_NUMBER})%?(?:\s+\w+){{0,2}}),\s+which\s+"
    r"(?!is\b|are\b|was\b|equal|give|mean|make|leave|result|add|bring|total|correspond)[a-z]+\b[^,;=]*$",
    re.IGNORECASE,
)
"""It was 87, which occurred at 84%: the clause after the number says more about it."""
_OR_EQUALS = re.compile(r"=.*\b(?:or|and)\s+[A-Za-z∠][^=,;\d]*$")
"""x = 3 or x = 4, a = 1 and b = 2: which one is meant is not said."""
_CURVE = re.compile(
    r"(?:(?<![A-Za-z])[a-z]|\))\s*(?:\^\s*\{?\d\}?|[\u00b2\u00b3])\s*[+-]\s*\(?\s*\d*[a-z](?![A-Za-z])"
    r"[\s\w+()^\u00b2\u00b3*{}./\\-]{0,40}$"
)
"""x^2 + y^2 = 9: an equation that is not solved."""
_OPERAND = re.compile(
    r"(?:[A-Za-z)}]\s+-|(?<=[\dπ)}])\s?\+|\w\s\+\s|[\w)}°]\s*[\u00d7\u00f7*]|\b(?:minus|plus|divided\s+by|half\s+of|twice|double|root\s+of|third\s+of|quarter\s+of))\s*$"
)
"""The total minus 15: a number that something is calculated with."""
_UNIT_POWER = re.compile(r"(?<=[A-Za-z])\s?\^[23]\b")
_CALCULATES = re.compile(
    r"[√π^+\u00d7\u00f7*]|/\s*\(|(?<=[\d°)}])\s*-\s*(?:[A-Za-z\u03b1-\u03c9]\b|[\d(√\\])|"
    r"\b[A-Za-z\u03b1-\u03c9]\s*-\s*\d"
)
_CALL = re.compile(r"\b[A-Za-z]'?\(\s*-?\d+(?:\.\d+)?\s*\)")
"""f(4): the argument of a function."""
_GIVEN = rf"[A-Za-z]\w?\s*=\s*-?(?:{PLAIN_NUMBER})"
_AT = re.compile(rf"\b(?:at|when|if|for|where|with|given)\s+{_GIVEN}(?:\s*(?:,|and)\s*{_GIVEN})*", re.IGNORECASE)
"""At x = 2: where a value is taken."""
_OVER = re.compile(r"π\s*/\s*\d+")
_PAIR = re.compile(r"\b(?:and|by)\b", re.IGNORECASE)
_YEAR = re.compile(r"\b(?:after|before|since|until|in|during|year)\s+(?:the\s+year\s+)?[12]\d{3}\b", re.IGNORECASE)
_ASKS_YEAR = re.compile(r"\s*(?:in\s+)?(?:which|what)\s+year\b", re.IGNORECASE)
_VARIABLE = re.compile(r"(?<![A-Za-z0-9])[a-z]\s*[/+*^-]|[/+*^-]\s*\(?[a-z](?![A-Za-z])")
_WHETHER = re.compile(r"(?:yes|no)\b\s*[,.;]", re.IGNORECASE)
IS = re.compile(
    r"(?:\b(?:is|are|was|were|be|equals|total\s+of|leaves|gives(?:\s+us)?)\b|[:≈]|是|为|等于|共有?)\s*[^\w\s]*\s*$",
    re.IGNORECASE,
)
HAN = re.compile(r"[\u4e00-\u9fff]")
_IS_NOT = re.compile(r"\s*(?:(?:is|are|was|were)(?:\s+not|n't)\b|不是|并非)", re.IGNORECASE)
"""5 is not prime: a sentence about a number, not a value."""


def concluded(sentence: str, asked: QuestionWords = NOTHING_ASKED) -> Reading | None:
    """Read a sentence's conclusion: the right side of its last equation, its only number, or its last one."""
    return _concluded(sentence, asked) if len(sentence) <= LONGEST_SENTENCE else None


def _concluded(sentence: str, asked: QuestionWords) -> Reading | None:
    sentence = _EXPLAINED.sub(r"\g<kept>", _CALL.sub("f", _OVER.sub("π", _NEGATED.sub("", sentence))))
    sentence = _REASON.sub("", sentence)
    elsewhere = _AT.sub("there", sentence)
    sentence = without_settings(elsewhere if numbers(elsewhere) else sentence, asked)
    if "=" in sentence:
        left, _, right = sentence.rpartition("=")
        if _OR_EQUALS.search(left) or _CURVE.search(left.partition("=")[0]):
            return None
        if not _LATER_IS.search(right):
            return _equals(right)
        sentence = right[right.rindex(_LATER_IS.findall(right)[-1]) :]
    clause = re.split(r";|,(?!\d)" if HAN.search(sentence) else ";", _ASIDE.sub("", sentence))[-1]
    clause = clause if numbers(clause) else sentence
    found = _values(clause, _own(clause, asked))
    if none := _NONE.search(sentence):
        is_asked = asked.text and re.search(rf"\bhow\s+many\b.*\b{re.escape(none[1])}", asked.text, re.IGNORECASE)
        return Reading("0", "none") if is_asked and not found else None
    if len(found) > 1 and _OPERATOR.match(clause[found[-2].end :]):
        return None  # a calculation without its result
    if len({number.value for number in found}) == 1:
        is_pair = len(found) > 1 and _PAIR.search(clause[found[0].end : found[-1].start])
        is_operand = _OPERAND.search(clause[: found[0].start])
        is_denied = found[0].start == 0 and _IS_NOT.match(clause, found[0].end)
        return None if is_pair or is_operand or is_denied else Reading(found[0].value, "one number")
    said = [number for number in found if IS.search(clause[: number.start])]
    ends = len({number.value for number in said}) == 1 and said[-1] is found[-1]
    ends = ends and len(clause[found[-1].end :].split()) <= WORDS_OF_A_UNIT
    return Reading(found[-1].value, "last number") if ends else None


_NONE = re.compile(r"\bthere\s+(?:is|are|was|were|would\s+be|will\s+be)\s+no\s+(?:\w+\s+)?(\w{3,})", re.IGNORECASE)
_LATER_IS = re.compile(r"\b(?:is|equals)\b")
WORDS_OF_A_UNIT = 2


def _equals(right: str) -> Reading | None:
    """Read the right side of an equation: the number at its beginning, if it is the only one."""
    right = right[_LEAD.match(right).end() :]  # type: ignore[union-attr]
    found = numbers(right)
    is_single = len({number.value for number in found}) == 1 and found[0].start == 0
    return Reading(found[0].value, "equation") if is_single and not is_in_formula(right, found[0]) else None


def _values(clause: str, found: list[Number]) -> list[Number]:
    """Return the numbers that are not part of a formula with letters; an empty list if the last one is."""
    if found and is_in_formula(clause, found[-1]):
        return []
    return [number for number in found if not is_in_formula(clause, number)]


def is_in_formula(text: str, number: Number) -> bool:
    """Whether a number is only a part of a formula with letters."""
    return is_factor(text, number.start, number.end)


def _own(clause: str, asked: QuestionWords) -> list[Number]:
    """Return the numbers of a clause, without dates and without numbers that repeat the question."""
    found = numbers(clause)
    if not re.search(r"\b(?:year|when)\b", asked.text, re.IGNORECASE):
        dates = {date.end() for date in _YEAR.finditer(clause)}
        dated = [number for number in found if number.end not in dates]
        found = dated if dated or asked.text else found
    if not asked.text:
        return found
    if _ASKS_YEAR.match(asked.text):
        return [number for number in found if re.fullmatch(r"[12]\d{3}", number.value)]
    given = limits(asked)
    return [number for number in found if number.value not in given and not is_echo(clause, number, asked)]


def is_echo(clause: str, number: Number, asked: QuestionWords) -> bool:
    """Whether a number in a clause only repeats the question."""
    before = clause[: number.start]
    is_asserted = bool(IS.search(before) or SIGN.search(before) or not re.search(r"\w", before))
    is_asserted = is_asserted or bool(_TIMES_AFTER.match(clause, number.end))
    place = Place.of(clause, number.value, number.start, number.end)
    return any(place.echoes(other, is_asserted=is_asserted) for other in _places(asked.text))


@lru_cache(maxsize=64)
def _places(question: str) -> tuple[Place, ...]:
    return tuple(Place.of(question, number.value, number.start, number.end) for number in numbers(question))


_TIMES_AFTER = re.compile(r"\s+times\b(?!\s+(?:as|the|more|larger|greater)\b)")
"""The two lines meet 2 times: the second number is not that of the question."""
