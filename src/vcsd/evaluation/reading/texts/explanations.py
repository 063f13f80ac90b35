"""Finds what explains an answer after it is given: "This is evident from ...", and the parts of a count.

The numbers of an explanation are those of ticks, axes and other places in a chart. They are not the answer.
"""

from __future__ import annotations

import re

from vcsd.evaluation.reading.texts.statements import sentences

_EXPLAINS = re.compile(
    r"^\W*(?:this|that)\s+(?:(?:value|number|count|result|answer|point|estimate|information|observation)\s+)?"
    r"(?:is|was|can\s+be|has\s+been)\s+(?:\w+ly\s+)?"
    r"(?:evident|because|where|when|based|shown|indicated|visible|seen|clear|marked|labell?ed|read|determined|supported|"
    r"inferred|observed|represented|reflected|derived|written|found|identified|confirmed|grounded|estimated|highlighted|"
    r"depicted|displayed)\b",
    re.IGNORECASE,
)
_CONCLUDES_WITHIN = re.compile(
    r"\b(?:so|therefore|thus|hence|making|meaning|giving|giv(?:es|ing)|which\s+is)\b", re.IGNORECASE
)
_MOST_EXPLANATIONS = 3


def before_explanation(text: str) -> str:
    """Remove the sentences at the end that say where an answer can be seen.

    >>> before_explanation("It peaks at **2 hours**. This is evident from the point at hour 2, above that at hour 8.")
    'It peaks at **2 hours**.'
    """
    for _ in range(_MOST_EXPLANATIONS):
        pieces = sentences(text)
        if len(pieces) < 2 or not _EXPLAINS.match(pieces[-1]) or _CONCLUDES_WITHIN.search(pieces[-1]):
            return text
        text = text[: text.rfind(pieces[-1])].rstrip()
    return text


_PARTS = re.compile(r":\s+|,\s+(?=(?:one|with|including)\b)")
_NO_PARTS = re.compile(r"\b(?:but|not|or|however|although|except|only|if)\b|n't\b|=", re.IGNORECASE)


def whole_and_parts(sentence: str) -> tuple[str, str]:
    """Split "There are two squares: one inside the other." into the count and its parts; the parts may be "".

    >>> whole_and_parts("The image contains 2 squares, one inside the other.")
    ('The image contains 2 squares', 'one inside the other.')
    """
    split = _PARTS.search(sentence)
    if not split or _NO_PARTS.search(sentence):
        return sentence, ""
    return sentence[: split.start()], sentence[split.end() :]
