"""Sentences with slots: one definition that people read as text and pre-training reads as token ids, many at a time.

"The {s:shape} is {c:color}." has a slot `s` of the word class `shape`. Every word of a class is one token, with the
space before it if it has letters: a digit leaves its space to the text before it, as Qwen's tokenizers split them. So
filling slots in an array of ids gives what the tokenizer would make of the filled text; a test holds it to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import TypeAlias

import numpy as np

from vcsd.world.scenes import Ints
from vcsd.world.words import WORDS, Language

Slots: TypeAlias = Mapping[str, Ints]
"""For every slot, an index into its class of words for each of N sentences."""

Encode: TypeAlias = Callable[[str], list[int]]
"""A tokenizer as a function from text to ids."""


@dataclass(frozen=True)
class Slot:
    """A place for one word. `lead` is the space before it, if there is one that is part of its token.

    >>> Slot("s", "shape", " ").words("english")[:2]
    (' circle', ' square')
    """

    name: str
    word_class: str
    lead: str

    def words(self, language: Language) -> tuple[str, ...]:
        """The texts that can stand here."""
        return tuple(self.lead + word for word in WORDS[language][self.word_class])


class Template:
    """A sentence with slots, in one language.

    >>> template = Template("The {s:shape} is {c:color}.")
    >>> template.fill({"s": np.array([0, 1]), "c": np.array([2, 3])}, 1)
    'The square is yellow.'
    """

    def __init__(self, text: str, language: Language = "english") -> None:
        self.text, self.language = text, language
        self.parts = tuple(_parse(text))

    @property
    def slots(self) -> dict[str, Slot]:
        """The slots by name."""
        return {part.name: part for part in self.parts if isinstance(part, Slot)}

    def fill(self, slots: Slots, index: int) -> str:
        """Sentence number `index`."""
        words = (
            part if isinstance(part, str) else part.words(self.language)[int(slots[part.name][index])]
            for part in self.parts
        )
        return "".join(words)

    def all_words(self) -> list[str]:
        """Every literal and every word that can stand in a slot: what a tokenizer must know."""
        return [
            text for part in self.parts for text in ((part,) if isinstance(part, str) else part.words(self.language))
        ]

    def encode(self, slots: Slots, num: int, encode: Encode) -> Ints:
        """All sentences as token ids (N, length)."""
        columns: list[Ints] = []
        for part in self.parts:
            if isinstance(part, str):
                columns += [np.full(num, token, dtype=np.int64) for token in encode(part)]
            else:
                ids = [encode(word) for word in part.words(self.language)]
                assert all(len(word) == 1 for word in ids), f"a word of the class {part.word_class} is several tokens"
                columns.append(np.array(ids, dtype=np.int64)[:, 0][slots[part.name]])
        return np.stack(columns, 1)


def _parse(text: str) -> list[str | Slot]:
    parts: list[str | Slot] = []
    for literal, name, word_class, _ in Formatter().parse(text):
        lead = " " if name and literal.endswith(" ") and _has_letters(str(word_class)) else ""
        if literal.removesuffix(lead):
            parts.append(literal.removesuffix(lead))
        if name:
            parts.append(Slot(name, str(word_class), lead))
    return parts


def _has_letters(word_class: str) -> bool:
    return all(word.isalpha() for word in WORDS["english"][word_class])
