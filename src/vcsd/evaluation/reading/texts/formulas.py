"""Tells the parts of formulas from answers: in "B+C", "f(2)" and "x > 2" neither B nor 2 is chosen.

A label may be followed by its option ("(B) -3", "B. 1+2", "B - the red one"), so what stands after a label counts only
if it continues a formula.
"""

from __future__ import annotations

import re
from functools import lru_cache

_INFIX = (
    "+*/^=<>|&\u00d7\u00f7\u00b1\u2213\u00b7\u2022\u22c5\u2219\u2229\u222a\u2264\u2265\u2260\u2248\u2245\u221d"
    "\u2208\u2282\u2286\u22a5\u2225\u2192\u2190\u2194"
)
"""Signs between two terms. The minus sign is treated apart: it is also a dash."""
_COMMAND = (
    r"\\(?:cap|cup|cdot|times|div|pm|mp|to|rightarrow|leftarrow|leq?|geq?|neq?|lt|gt|approx|sim|cong|parallel|perp|in|subset\w*|"
    r"setminus|mid|circ|oplus|otimes|wedge|vee)(?![a-z])"
)
_FUNCTION = r"(?:sin|cos|tan|cot|sec|csc|log|ln|lg|exp|sqrt|lim|max|min|det|arc\w{3})"
_VARIABLE = r"(?:[b-zB-HJ-Z\u03b1-\u03c9](?![A-Za-z])(?!'[a-z])|[aAI](?![A-Za-z'])(?!\s+[a-z]{2}))"
_TERM = rf"(?:\d|[([{{\\$|√π∠△∞]|{_VARIABLE}|[A-Z]{{2,4}}\b|{_FUNCTION}\b)"
"""How a term begins: a number, a bracket, a root, a variable, a segment such as AB, a function."""
_SUBTRAHEND = rf"(?:\d|[\\√π∠△∞]|\((?:-?\d|[A-Za-z]\b)|{_VARIABLE}(?!\s+(?:is|are|was|has|looks|appears|seems)\b))"
"""The same after a minus sign, which may be a dash: B - NASA, B - (the left one)."""
_TAG = r"(?!</?[A-Za-z]+>|</?[A-Za-z]*$)"
_SPELLED = r"\s+(?:plus|minus|times|divided\s+by|multiplied\s+by|to\s+the\s+power)\s"
_DASH = "[-\u2013]"

_CONTINUES = re.compile(
    rf"""
    \s*{_TAG}[{re.escape(_INFIX)}]\s*[-+]?{_TERM}        # B + C, B/2, B = 3, B → C
  | \s*{_COMMAND}                                        # B \cap C
  | {_DASH}{_SUBTRAHEND} | \s+{_DASH}\s+{_SUBTRAHEND}(?!\d*\.?\d*\s+[a-z]{{3}})   # B-C, B - 2, but B - 3 apples
  | {_SPELLED}
    """,
    re.VERBOSE,
)
_ATTACHED = re.compile(
    rf"""
    \s*{_TAG}[{re.escape(_INFIX)}](?![-=]?>)(?!\s*[A-Za-z]{{2}}) # B +, but B => green
  | [_%°\u2032\u2033\u00b2\u00b3\u00b9\u2070-\u209fπ√]  # B_1, B%, B°, B²
  | \s*\\(?!text|mathrm|mathbf|quad|qquad|checkmark|newline|[\\,;!()\[\]\s]) # B \pi
  | \((?:-?[\d.]+|[A-Za-z])\s*[,)=+*/^-]                 # B(3, 4), B(x)
  | \s+[πθ√∠] | \s+[a-z]\b(?!\s+[a-z]{{2}})(?!'|\))      # B π r, B n
  | :\s?\d+:                                             # B:2:3
    """,
    re.VERBOSE,
)


def continues_formula(rest: str, *, is_closed: bool) -> bool:
    """Whether the text after a letter continues a formula; a closed label such as "(B)" may have a sign after it.

    >>> continues_formula("+C", is_closed=False), continues_formula(" - the red one", is_closed=False)
    (True, False)
    >>> continues_formula(" -3", is_closed=True), continues_formula("/2", is_closed=True)
    (False, True)
    """
    rest = _BOLD.sub("", rest)
    if is_closed:
        signed = _PREFIX.match(rest)
        return not signed and bool(_CONTINUES.match(rest)) and not _EQUALS.match(rest)
    return bool(_CONTINUES.match(rest) or _ATTACHED.match(rest))


_BOLD = re.compile(r"\*\*|__")
_PREFIX = re.compile(r"\s+(?:[-+<>\u00b1\u2264\u2265|&]\S|\\(?!cap|cup|cdot|times|div|pm|to|leq?\b|geq?\b))")
"""A sign that begins an option: (B) -3, (C) <5."""
_EQUALS = re.compile(r"\s*=")

_OPERATED = re.compile(
    rf"""
    (?: (?<![=-])(?<!<)[+*/^<>_\u00d7\u00f7\u00b1\u2213\u00b7\u2022\u22c5\u2219\u2229\u222a\u2264\u2265\u2260\u221d√∠△|]
      | (?<![A-Za-z])[A-Za-z]\s*-\s | [)\]}}\d°]\s*-\s | (?:^|\bis)\s*-\s
      | \\(?!text|mathrm|mathbf|boxed|quad|qquad|therefore|implies|Rightarrow|left|right|approx|displaystyle)
        [A-Za-z]+\s?\{{?
      | \b(?:plus|minus|times|divided\s+by|multiplied\s+by|over)\s | \b{_FUNCTION}\s?
    ) \s*[([{{$]*\s* $
  | (?:(?<![A-Za-z])[A-Za-z]'?|\b{_FUNCTION}|[)\d])[([{{]\s*$         # f(2), 3(2)
  | \(\s*-?[\w.\s√π/]{{1,12}},\s*-?$                                  # (1, 2)
    """,
    re.VERBOSE,
)
_OPERATES = re.compile(
    rf"""
    [)\]}}$]*(?:
        \s*{_TAG}[{re.escape(_INFIX.replace("=", ""))}]\s*[-+]?{_TERM}
      | \s*{_COMMAND} | \s*\\(?:sqrt|pi|theta|alpha|beta|frac|angle|sin|cos|tan|log|ln)(?![a-z])
      | \s*[π√∠θ] | \s+pi\b | \s+{_FUNCTION}\b
      | \s+{_DASH}\s+{_SUBTRAHEND}(?!\d*\.?\d*\s+[a-z]{{3}})
      | {_SPELLED}
      | \((?:-?[\d.]+|[A-Za-z])\s*[)+*/^-]                           # 2(x+1)
      | \s+(?!(?:AM|PM|[KMGT][BWJ]|US|UK|TV)\b)[A-Z]{{2,3}}\b(?!\$)  # 2 AB
    )
    """,
    re.VERBOSE,
)
_NEAR = 40


def is_operand(text: str, start: int, end: int) -> bool:
    """Whether a number or a letter in a text is only a part of a formula.

    >>> is_operand("It is a/(2).", 9, 10), is_operand("It is (2).", 7, 8), is_operand("x = 2", 4, 5)
    (True, False, False)
    """
    before = text[max(0, start - _NEAR) : start]
    if _ARROW.search(before) or _TAGGED.search(before):
        return False
    return bool(_OPERATED.search(before) or _OPERATES.match(text, end))


def is_argument(text: str, start: int) -> bool:
    """Whether a letter stands in the brackets of a function, or after a sign that takes it: P(B), sin B, ∠B.

    >>> is_argument("It is P(B).", 8), is_argument("It is (B).", 7)
    (True, False)
    """
    return bool(_CALLED.search(text[max(0, start - _NEAR) : start]))


_CALLED = re.compile(
    rf"(?:(?<![A-Za-z])[A-Za-z]'?|\b{_FUNCTION})[([{{]\s*$|\b{_FUNCTION}\s*$|"
    r"[+\u00d7\u00f7\u00b1\u00b7√∠△⊙\u2229\u222a]\s*[([{{]?\s*$"
)
_ARROW = re.compile(r"(?:[=-]>|^\s*>)\s*$")
_TAGGED = re.compile(r"</?[A-Za-z]+>\s*$")
_VARIABLE_AFTER = re.compile(r"[A-Za-z\u03b1-\u03c9]{1,2}(?:\b|(?=_))|[A-Z]{2,}")
_UNIT = re.compile(
    r"(?:[\u03bc\u00b5][A-Za-z]|eV|Wh|dB|H|mm|cm|dm|km|m|kg|mg|g|ml|mL|l|L|s|ms|h|hr|in|ft|yd|mi|lb|oz|V|A|mA|W|kW|N|J|kJ|Pa|Hz|K|C|F|M|B|T|st|nd|rd|th|"
    r"am|pm|AM|PM|GB|MB|KB|TB|MW|GW|US|yr)\b"
)


def has_variable(text: str, end: int) -> bool:
    """Whether a letter that is not a unit is attached to a number that ends here: 2x, 2ab, but not 2cm.

    >>> has_variable("2x", 1), has_variable("2cm", 1)
    (True, False)
    """
    return bool(_VARIABLE_AFTER.match(text, end)) and not _UNIT.match(text, end)


_GREEK = (
    r"(?:[\u03b1-\u03bb\u03bd-\u03c9]|\\(?:alpha|beta|gamma|delta|(?:var)?epsilon|zeta|eta|(?:var)?theta|kappa|lambda|nu|xi|"
    r"pi|rho|sigma|tau|(?:var)?phi|chi|psi|omega|sin|cos|tan|cot|log|ln|exp|sqrt|vec|hat|[dt]?frac)(?![a-z]))"
)
"""A letter such as λ, or a command that continues a formula, but not \\mu, which begins a unit."""
_FACTOR_AFTER = re.compile(
    rf"""
    \s*{_GREEK}                                                                       # 3λ, 2\sin x
  | \s*/\s*(?:\(\s*\d*[A-Za-z\u03b1-\u03c9]|[A-Za-z\u03b1-\u03c9](?![A-Za-z])|\\)   # 6/(ml), 6/m
  | \s*(?:[\u00d7\u00b7\u22c5]|\*(?!\*))\s*(?:\d*{_VARIABLE}|\()                      # 3 times n
  | \s*\+\s*(?:\d*{_VARIABLE}|[√\\]) | \s*{_DASH}\s*\d*{_VARIABLE}(?!\s+[a-z]{{2}})  # 1 + k, 3 - x
  | \s?\(\s*\d*[A-Za-z\u03b1-\u03c9]\w?\s*[-+*/^]                                    # 2(a+b)
    """,
    re.VERBOSE,
)
_SPACED_VARIABLE = re.compile(
    r"\s+(?P<letter>[b-zB-HJ-Z])(?:_\w|(?!\.?[A-Za-z0-9']))(?=\s*(?:$|[.,;:)\]}}+/^=_-]|[a-z]\b))"
)
_FACTOR_BEFORE = re.compile(
    r"(?<![A-Za-z])[A-Za-z\u03b1-\u03c9]\s*[+\u00d7\u00b7\u22c5^-]\s*[({]?\s*$|[A-Za-z)]\s?/\s*\(?\s*$"
)


def is_factor(text: str, start: int, end: int) -> bool:
    """Whether a number is only a part of a product, fraction, power or sum with letters: 2f/d, 6/(ml), 5k + 1.

    >>> is_factor("2f/d", 0, 1), is_factor("6/(ml)", 0, 1), is_factor("5 m/s", 0, 1), is_factor("5 (cups)", 0, 1)
    (True, True, False, False)
    """
    if has_variable(text, end) or _FACTOR_AFTER.match(text, end):
        return True
    spaced = _SPACED_VARIABLE.match(text, end)
    if spaced and not _UNIT.match(text, spaced.start("letter")):
        return True
    return bool(_FACTOR_BEFORE.search(text[max(0, start - _NEAR) : start]))


_SAME_SIGNS = {
    "\\dfrac": "\\frac",
    "\\tfrac": "\\frac",
    "\\sqrt": "√",
    "\\pi": "π",
    "\\circ": "°",
    "^°": "°",
    "^{°}": "°",
}
_DECORATION = re.compile(r"\\(?:text|mathrm|left|right|,|;|!|\(|\)|\[|\])|[\s${}*]|\.$")


@lru_cache(maxsize=64)  # an answer is compared with each of its options, several times
def formula(text: str) -> str:
    r"""Remove the typesetting from a formula.

    >>> formula(r"$\dfrac{3\sqrt{5}}{2}$") == formula(r"\frac { 3√{5} } { 2 }")
    True
    """
    for latex, plain in _SAME_SIGNS.items():
        text = text.replace(latex, plain)
    return _DECORATION.sub("", text).casefold()
