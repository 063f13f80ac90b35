"""Finds sentences that do not answer: refusals, requests for more information, and "none of the options".

A number or an option in such a sentence is not an answer: "I am unable to determine the age gap between the two people"
does not say 2. A statement ("the answer is ...") after a refusal still counts.
"""

from __future__ import annotations

import re

_LEARN = (
    r"(?:determine|tell|say|choose|select|pick|identify|know|answer|state|provide|give|find|calculate|compute|conclude|"
    r"decide|infer|judge|see|view|analy[sz]e|estimate|predict|measure|solve|figure\s+out|make|assess|specify|verify|"
    r"ascertain|confirm|help|assist|process|interpret|read)"
)
_KNOWN = (
    r"(?:determined|answered|known|found|calculated|computed|inferred|solved|identified|established|concluded|given|"
    r"provided|measured|decided|estimated)"
)
_SOURCE = (
    r"(?:information|context|data|details?|image|images|figure|diagram|picture|graph|chart|table|text|question|problem|"
    r"function|values?|options?|clues?|measurements?|accuracies|ages?)"
)
_LACKING = (
    r"(?:given|provided|specified|known|stated|defined|included|mentioned|clear|shown|visible|readable|legible|"
    r"labell?ed)"
)
_REFUSES = re.compile(
    rf"""
    (?:(?:\bnot|n't)\s+(?:possible|able|feasible|appropriate)|\b(?:impossible|unable|difficult|hard|challenging))\s+
        (?:for\s+\w+\s+)?to\s+(?:\w+ly\s+)?(?:{_LEARN}|guess)\b
  | (?:\b(?:insufficient|no)|(?:\bnot|n't)\s+(?:enough|sufficient))\s+(?:\w+\s+){{0,3}}?
        (?:information|context|data|details?|evidence)\b
  | \b(?:can\s?not|can't|could\s+not|couldn't|unable\s+to)\s+(?:\w+\s+){{0,2}}?
        (?:{_LEARN}|be\s+(?:\w+ly\s+)?{_KNOWN})\b
  | \b(?:won't|will\s+not)\s+be\s+able\b | \bno\s+(?:way\s+(?:to|of)|idea|clue)\b | \bno\s+one\s+knows\b
  | \b(?:does|do|did)(?:\s+not|n't)\s+(?:\w+ly\s+)?
        (?:provide|specify|mention|give|include|contain|indicate|reveal)\b
  | \b{_SOURCE}\s+(?:does|do|did)(?:\s+not|n't)\s+(?:\w+ly\s+)?(?:show|state|say|tell|display|list)\b
  | \b(?:I|we)\s+(?:do|did)(?:\s+not|n't)\s+(?:\w+ly\s+)?(?:see|know)\b
  | \bfails?\s+to\s+(?:show|provide|give|specify|mention)\b
  | \b(?:does|do|did)(?:\s+not|n't)\s+have\s+(?:\w+\s+){{0,3}}?
        (?:information|context|data|details?|access|values?)\b
  | \bwithout\s+(?:\w+(?:'s)?\s+){{0,5}}?{_SOURCE}\b
  | \bI(?:\s+am|'m)\s+(?:sorry|unable|just\s+an?)\b | ^\W*(?:sorry|unfortunately)\b | \bI\s+apologi[sz]e\b
  | \bI\s+doubt\b | \b(?:not\s+(?:\w+\s+)?(?:sure|certain)|unsure|uncertain)\b
  | \bI\s+refuse\b | \bI(?:'d|\s+would)?\s+(?:prefer|rather)\s+not\b | \bneither\s+confirm\b
  | \bnot\s+something\s+(?:I|we)\s+can\b | \bnot\s+applicable\b(?!\s+to\b)
  | \bas\s+an\s+AI\b | \bI(?:'m|\s+am)\s+an\s+AI\b | \bno\s+information\b
  | (?:\b(?:is|are|remains?)|'s)\s+(?:undefined|unknown|unclear|incomplete|missing\s+(?:the|some)|indeterminate|
        undetermined|unanswerable|unreadable|illegible|too\s+(?:blurry|blurred|dark|unclear))\b
  | \b(?:not|in|un)\s?determinable\b | \b(?:answer|it|this|result)\s+depends\b
  | \b(?:more|additional|further)\s+(?:information|context|data|details)\b[^.]{{0,20}}\b(?:needed|required|necessary)\b
  | \b(?:need|require)s?\s+(?:more|additional|further)\s+(?:information|context|data|details)\b
  | \bwould\s+(?:need\s+to\s+know|require)\b | \b(?:I|we|you)\s+lack\b
  | \b(?:is|are|was|were)(?:\s+not|n't)\s+(?:\w+ly\s+)?{_LACKING}\b
  | \bhaven't\s+provided\b | \bno\s+(?:image|diagram|figure|picture)\s+(?:is|was|has\s+been)\b
  | 无法 | 没有(?:足够|提供|给出|显示|说明|标明|标出) | 未(?:给出|提供|说明|标明|显示) | 未知(?!数|量)
  | 不能(?:确定|判断|给出)
  | 难以(?:确定|判断) | 不(?:知道|清楚|确定|明确) | 看不(?:清|到|出) | 更多的?信息 | 对不起 | 抱歉 | 信息不足
    """,
    re.VERBOSE | re.IGNORECASE,
)
_FAILS_OPTIONS = re.compile(
    rf"""
    \bnone\s+of\s+(?:the|these|those)\b[^.]{{0,30}}\b(?:options?|choices?|answers?|above|is|are|match)\b
  | (?:\bnot|n't)\s+(?:one\s+of|among|in|listed|available|included|an?|any\s+of)\b[^.]{{0,30}}\b(?:options?|choices?)\b
  | \bno\s+(?:\w+\s+)?(?:option|choice)s?\s+(?:says?|fits?|match(?:es)?|is|are|shows?|gives?|for|with|corresponds?)\b
  | \b(?:options?|choices?|result)\b[^.]{{0,30}}(?:\bnot|n't)\s+(?:\w+\s+)?
        (?:available|contain|match|include|listed|present|given)
  | \b(?:mistake|error|typo|discrepancy)\s+in\s+the\s+(?:\w+\s+)?(?:choices?|answers?|{_SOURCE})\b
  | \b(?:option|choice)s?\s+(?:\w+\s+)?(?:is|are)\s+(?:also\s+)?not\s+available\b
  | 选项.{{0,12}}没有 | 不在.{{0,4}}选项 | 没有.{{0,8}}选项
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ASKS = re.compile(
    r"^\W*(?:please|kindly|could\s+you|can\s+you|would\s+you|i\s+would\s+need|i\s+suggest|i\s+recommend|"
    r"if\s+you\s+(?:can|could|have|provide|give)|to\s+obtain\b|you\s+(?:would|'d|will)\s+need|请|您|如果您)",
    re.IGNORECASE,
)
_ALTHOUGH = re.compile(r",?\s*\b(?:al|even\s+)?though\b", re.IGNORECASE)
_TURNS = re.compile(r"[,;]\s*(?:but|however|yet|though|nevertheless)\b|\bbut\b|但是?|不过", re.IGNORECASE)


def refuses(sentence: str) -> bool:
    """Whether a sentence says that the question cannot be answered, or that no option fits.

    >>> refuses("It is impossible to determine the value of f(4)."), refuses("The value of f(4) is 2.")
    (True, False)
    """
    return bool(_REFUSES.search(sentence) or _FAILS_OPTIONS.search(sentence))


def asks_for_more(sentence: str) -> bool:
    """Whether a sentence asks for information instead of giving some.

    >>> asks_for_more("Please provide the ages of the two people.")
    True
    """
    return bool(_ASKS.match(sentence))


def after_refusal(sentence: str) -> str:
    """Return the part of a sentence that may answer: after a refusal and "but", before "although", or "".

    >>> after_refusal("It is hard to tell, but there seem to be 5 cups.")
    'there seem to be 5 cups.'
    """
    found = _REFUSES.search(sentence) or _FAILS_OPTIONS.search(sentence)
    if not found:
        return sentence
    if aside := _ALTHOUGH.search(sentence, 1, found.start()):
        return sentence[: aside.start()]
    turn = _TURNS.search(sentence, found.end())
    rest = sentence[turn.end() :].strip(" ,") if turn else ""
    return "" if refuses(rest) else rest
