"""Sentences with slots, which give text for people and arrays of token ids for pre-training.

"The {s:shape} is {c:color}." has a slot `s` of the word class `shape`. Every word of a class is one token. The token
includes the space before it if the word has letters, but not before a digit, as in Qwen's tokenizers. So filling slots
in an array of ids gives the same ids as tokenizing the filled text, which a test checks.
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
    """A slot for one word. `lead` is the space before it if the space is part of its token."""

    name: str
    word_class: str
    lead: str

    def words(self, language: Language) -> tuple[str, ...]:
        """The texts that can fill the slot."""
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
        return "".join(
            part if isinstance(part, str) else part.words(self.language)[int(slots[part.name][index])]
            for part in self.parts
        )

    def all_words(self) -> list[str]:
        """All literals and all words that can fill a slot: what a tokenizer must know."""
        return [
            text for part in self.parts for text in ((part,) if isinstance(part, str) else part.words(self.language))
        ]

    def encode(self, slots: Slots, num: int, encode: Encode) -> Ints:
        """Encode all sentences as token ids (N, length)."""
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
        has_letters = name and all(word.isalpha() for word in WORDS["english"][str(word_class)])
        lead = " " if has_letters and literal.endswith(" ") else ""
        if literal.removesuffix(lead):
            parts.append(literal.removesuffix(lead))
        if name:
            parts.append(Slot(name, str(word_class), lead))
    return parts
