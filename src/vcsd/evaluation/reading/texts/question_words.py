"""Compares an answer with the question: numbers that only repeat it, and sentences that turn it into a statement.

"There are two people who are older than 30" answers "How many people are older than 30?" with 2: the 30 is from the
question. "Cyan has the largest area" answers "Does Cyan have the largest area?" with yes, without the word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.evaluation.reading.texts.refusals import refuses
from vcsd.evaluation.reading.texts.statements import sentences

if TYPE_CHECKING:
    from collections.abc import Callable

_HINT = re.compile(r"^.*?\bQuestion:\s*", re.DOTALL)
_CHOICES = re.compile(r"\n\s*(?:Choices|Options)\s*:.*$", re.DOTALL | re.IGNORECASE)
_MARKUP = re.compile(r"<[^<>]{0,60}>")
_INSTRUCTIONS = re.compile(r"(?:\n\s*[*\u2022-]\s+(?=[^\n]*\b(?:your?|answer\w*)\b)[^\n]*)+\s*$", re.IGNORECASE)
"""Items after a question that say how to answer: "* Your final answer must be an integer."."""


@dataclass(frozen=True)
class QuestionWords:
    """A question as a reader uses it: its own words, without hint and options."""

    text: str

    @classmethod
    def of(cls, prompt: str) -> QuestionWords:
        r"""Take the question from a prompt.

        >>> QuestionWords.of("Hint: answer with an integer, e.g., 1, 2.\nQuestion: How many?\nChoices:\n(A) 3").text
        'How many?'
        """
        own = _HINT.sub("", prompt, count=1) if "Question:" in prompt else prompt
        return cls(_MARKUP.sub(" ", _INSTRUCTIONS.sub("", _CHOICES.sub("", own))).strip())

    @property
    def imagines(self) -> bool:
        """Whether the question is hypothetical: "What would happen if ...?"."""
        return bool(_IMAGINES.search(self.text))

    @property
    def asks_for_wrong(self) -> bool:
        """Whether the question asks for what is wrong: "Which statement is false?"."""
        return bool(_ASKS_FOR_WRONG.search(self.text))


_ASKS_FOR_WRONG = re.compile(
    r"(?<!\bor\s)\b(?:incorrect|wrong|false(?!\s+or\b)|untrue|not\s+(?:true|correct|right|accurate))\b|(?<!还是)(?<!或)错误|不正确|有误|不对的|不恰当|不符合",
    re.IGNORECASE,
)
_IMAGINES = re.compile(r"\b(?:if|would|were|suppose|imagine)\b|如果|假如|假设|若", re.IGNORECASE)
NOTHING_ASKED = QuestionWords("")

_FILLER = re.compile(
    r"a|an|the|of|in|on|at|to|by|for|from|with|and|or|is|are|was|were|be|been|being|does|do|did|has|have|"
    r"had|will|would|can|could|should|may|might|must|that|this|these|those|there|here|it|its|than|as|if|"
    r"what|which|who|whom|how|many|much|most|likely|please|according|based|image|picture|figure|shown|"
    r"above|below|given|all|both|not|more|number|value|unit|answer|following",
    re.IGNORECASE,
)
"""Words that say little about what is asked; of a yes-or-no question, see `_GRAMMAR`."""
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*|\d+(?:\.\d+)?")


def _stem(word: str) -> str:
    word = word.lower().removesuffix("'s")
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def repeats_question(sentence: str, asked: QuestionWords) -> bool:
    """Whether a sentence has most words of the question, as a direct answer does.

    >>> repeats_question("The missing number in the row is 4.", QuestionWords("Which number is missing in the row?"))
    True
    """
    words = {_stem(word) for word in _WORD.findall(asked.text) if not _FILLER.fullmatch(word)}
    said = {_stem(word) for word in _WORD.findall(sentence)}
    return bool(words) and len(words & said) >= max(1.0, _MOST_WORDS * len(words))


_MOST_WORDS = 0.7
_SOURCE = r"(?:chart|graph|picture|image|figure|photo|plot|diagram|table|scene|drawing)"
_COUNTS = re.compile(
    rf"\W*(?:the|this)\s+(?:\w+\s+)?{_SOURCE}\s+(?:has|shows?|contains?|depicts?|displays?|includes?|consists\s+of)\b[^.]*\W*",
    re.IGNORECASE,
)
"""Not "There are 4 cups in the image.": this is how models answer."""
_HOW_MANY = re.compile(r"\bhow\s+many\s+\w+\b(?P<rest>[^?]*)", re.IGNORECASE)
_SEEN = re.compile(
    rf"{_SOURCE}|visible|shown|seen|see|you|find|identify|count|observe|spot|present|total|displayed|altogether|depicted|listed|different",
    re.IGNORECASE,
)


def counts_everything(text: str, asked: QuestionWords) -> bool:
    """Whether a text is one sentence that counts everything in a picture, though the question asks only for some of it.

    >>> counts_everything("The chart has 10 bars.", QuestionWords("How many bars are higher than 30?"))
    True
    """
    question = _HOW_MANY.search(asked.text)
    if not question or not _COUNTS.fullmatch(text):
        return False
    words = {_stem(word) for word in _WORD.findall(question["rest"]) if not _FILLER.fullmatch(word)}
    words = {word for word in words if len(word) > 1 and not _SEEN.fullmatch(word)}  # cup(s)
    return bool(words) and not words & {_stem(word) for word in _WORD.findall(text)}


def names_all_counted(text: str, asked: QuestionWords) -> bool:
    """Whether a text has every word that says what a question wants counted.

    >>> names_all_counted("There are 3 cars", QuestionWords("How many red cars are in the image?"))
    False
    """
    words = {_stem(word) for word in _WORD.findall(asked.text) if not _FILLER.fullmatch(word)}
    words = {word for word in words if len(word) > 1 and not _SEEN.fullmatch(word)}
    return bool(words and _ASKS_COUNT.search(asked.text)) and words <= {_stem(word) for word in _WORD.findall(text)}


_ASKS_COUNT = re.compile(r"\bhow\s+many\b|\bcount\b|\bnumber\s+of\b", re.IGNORECASE)
_BEFORE = re.compile(r"([A-Za-z]+|[=<>])[\s$(]*$")
_AFTER = re.compile(r"[\s-]*([A-Za-z]+|%)")
_PLAIN_WORDS = re.compile(
    r"is|are|was|were|be|the|a|an|of|equals|to|and|or|in|about|approximately",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Place:
    """A number in a text, and the words around it."""

    value: str
    before: str
    after: str

    @classmethod
    def of(cls, text: str, value: str, start: int, end: int) -> Place:
        """Find the words around a number."""
        before, after = _BEFORE.search(text[max(0, start - 30) : start]), _AFTER.match(text, end)
        return cls(value, before[1].lower() if before else "", _stem(after[1]) if after else "")

    def echoes(self, other: Place, *, is_asserted: bool) -> bool:
        """Whether this number repeats another one of the question; an asserted one ("is 4") only in the same phrase."""
        if self.value != other.value:
            return False
        if not is_asserted:
            return True
        same_before = self.before == other.before and not _PLAIN_WORDS.fullmatch(self.before)
        return bool((same_before and self.before) or (self.after and self.after == other.after))


_AUXILIARY = r"(?:is|are|was|were|does|do|did|has|have|had|can|could|will|would|should)"
_ASKS_WHETHER = re.compile(rf"(?:^|[,.:;]\s+|\)\s*){_AUXILIARY}\s+(?P<rest>[^?]*)\??", re.IGNORECASE)
_GRAMMAR = re.compile(
    r"a|an|the|of|in|on|at|to|by|for|from|with|is|are|was|were|be|been|being|does|do|did|has|have|had|"
    r"will|would|can|could|should|may|might|must|that|this|these|those|there|here|it|its|than|as|you|they|"
    r"them",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:not|never|neither|nor|no)\b|n't\b", re.IGNORECASE)
_DOUBT = re.compile(
    r"\b(?:if|whether|could|might|may|perhaps|possibl[ey]|depends?|assum\w+|suppose|unclear|cannot|determine\w*|asks?|"
    r"asking|but|however|although|though|while|whereas|unless|or|either|seem\s+to\s+be\s+both)\b|\?",
    re.IGNORECASE,
)


_QUALIFIED = re.compile(
    r"\b(?:hardly|barely|scarcely|almost|nearly|only|used\s+to|second|third|people|some|many|besides|except|said|supposed)\b",
    re.IGNORECASE,
)
"""Words before or among those of the question that change what is said: Aqua has the second smallest area."""
_TAKEN_BACK = re.compile(r"\b(?:but|however|except|apart\s+from|other\s+than|after|only|illusion)\b", re.IGNORECASE)
_SEEMS = re.compile(r"\b(?:looks?|appears?|seems?)\b", re.IGNORECASE)
_IN_FACT = re.compile(r"\b(?:but|however|although|though|illusion|actually|in\s+fact|same|equal)\b", re.IGNORECASE)
"""After something that only seems so."""


def says_whether(text: str, asked: QuestionWords) -> str | None:
    """Read Yes or No from sentences that repeat every word of a yes-or-no question in its order; None in any doubt.

    >>> question = QuestionWords("Is Web Green greater than Yellow?")
    >>> says_whether("Web Green is greater than Yellow.", question)
    'Yes'
    >>> says_whether("Web Green is not greater than Yellow.", question)
    'No'
    >>> says_whether("Yellow is greater than Web Green.", question) is None
    True
    """
    question = _ASKS_WHETHER.search(asked.text)
    if not question or _NEGATION.search(question["rest"]) or _HARD_TO_REPEAT.search(question["rest"]):
        return None
    words = [word for word in _WORD.findall(question["rest"]) if not _GRAMMAR.fullmatch(word)]
    num_words = sum(len(word) > 1 for word in words)
    if num_words < _FEWEST_WORDS:
        return None
    form = str.lower if num_words == _FEWEST_WORDS else _stem  # "odd functions" are not "an odd function"
    pieces = sentences(text)
    places = [*pieces[:1], *pieces[1:][-_LAST_SENTENCES:]]
    places = [place for place in places if not (_SEEMS.search(place) and _IN_FACT.search(_after(text, place)))]
    said = {reading for sentence in places if (reading := _polarity(sentence, [form(word) for word in words], form))}
    return said.pop() if len(said) == 1 else None


def _after(text: str, sentence: str) -> str:
    return text.partition(sentence)[2]


_HARD_TO_REPEAT = re.compile(r"\bor\b|[<>=]")
_FEWEST_WORDS = 2
_LAST_SENTENCES = 2
_GENERAL = re.compile(r"^\W*(?:for|to|an?)\b|\b(?:if|when|whether|unless)\b", re.IGNORECASE)
"""A general or conditional sentence, which states no fact."""


def _polarity(sentence: str, words: list[str], form: Callable[[str], str]) -> str | None:
    """Say whether a sentence that has the words in this order affirms or denies them."""
    place = end = 0
    for found in _WORD.finditer(sentence):
        if form(found[0]) == words[place]:
            place, end = place + 1, found.end()
            if place == len(words):
                break
    if (
        place < len(words)
        or sentence.endswith("?")
        or _DOUBT.search(sentence[:end])
        or _is_taken_back(sentence, end, words[-1], form)
        or any(form(found[0]) not in words for found in _QUALIFIED.finditer(sentence[:end]))
        or _GENERAL.search(sentence)
        or refuses(sentence[end:] if _ASKED_TO_BE_SEEN.fullmatch(words[-1]) else sentence)
    ):
        return None
    negations = len(_NEGATION.findall(sentence[:end]))
    return {0: "Yes", 1: "No"}.get(negations)


_ASKED_TO_BE_SEEN = re.compile(r"visible|shown|clear|present|mentioned|included|readable|legible", re.IGNORECASE)
"""The face is not visible: an answer to "Is the face visible?", not a refusal."""


def _is_taken_back(sentence: str, end: int, last_word: str, form: Callable[[str], str]) -> bool:
    """Whether the rest of a sentence limits what it says. After a denial, "but" goes on with something else."""
    limit = _TAKEN_BACK.search(sentence, end)
    if not limit:
        return False
    rest = sentence[limit.end() :]
    is_other = last_word not in {form(word) for word in _WORD.findall(rest)} and not _TAKEN_BACK.search(rest)
    is_denied = bool(_NEGATION.search(sentence[:end])) and not _ANYWAY.search(rest)
    return not (is_denied and is_other and limit[0].lower() == "but")


_ANYWAY = re.compile(
    r"\b(?:is|are|does|do|did|was|were|can|has|have)\s*[.!]?\s*$|\b(?:still|partly|partially|some|actually)\b",
    re.IGNORECASE,
)
"""The left cup is not red, but the right one is."""
