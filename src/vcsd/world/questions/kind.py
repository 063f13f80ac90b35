"""Kinds of questions: what can be asked about a scene, the facts of the picture, and the facts of the prior.

A kind of question is three small functions over many scenes at once:

    ask        choose what to ask, and read the facts off the scene; it may recolour scenes so that there is an answer
    imagine    draw the same facts from the prior instead: canonical values, and mostly yes
    conclude   derive the final answer from facts, true or imagined

An answer states the facts, then "The answer is ...". It is true if the facts come from the picture and swayed if they
are imagined.

Shape legend: N questions, K slots for things, O options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from vcsd.world.questions.template import Slots, Template
from vcsd.world.scenes import Bools, Ints, Rng, Scenes
from vcsd.world.words import LETTERS, NUM_COLORS, NUM_OPTIONS, NUM_SHAPES, WORDS, Language

if TYPE_CHECKING:
    from vcsd.types import AnswerKind
    from vcsd.world.parameters import Parameters


@dataclass(frozen=True, eq=False)
class AskedScenes:
    """Questions about scenes, with the true facts. `keep_N` is False where a scene allows no such question."""

    scenes: Scenes
    question: Slots
    facts: Slots
    keep_N: Bools

    def kept(self, limit: int) -> AskedScenes:
        """The first `limit` valid questions."""
        chosen = np.flatnonzero(self.keep_N)[:limit]
        question, facts = (
            {name: values[chosen] for name, values in slots.items()} for slots in (self.question, self.facts)
        )
        return AskedScenes(self.scenes[chosen], question, facts, self.keep_N[chosen])


Ask: TypeAlias = Callable[[Rng, Scenes, float], AskedScenes]
"""(random numbers, scenes, share of questions with the answer yes) -> questions and facts."""
Imagine: TypeAlias = Callable[[Rng, Slots, int, "Parameters"], Slots]
"""(random numbers, questions, side of the picture, parameters) -> facts drawn from the prior."""
Conclude: TypeAlias = Callable[[Slots], Slots]
"""Question and facts -> the final answer `a`."""


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of question. Its replies end with the slot `a`, the final answer."""

    name: str
    answer_kind: AnswerKind
    question: Template
    replies: Mapping[Language, Template]
    ask: Ask
    imagine: Imagine
    conclude: Conclude

    def reply_slots(self, question: Slots, facts: Slots) -> Slots:
        """All slots of a reply's template."""
        known = {**question, **facts}
        return {**known, **self.conclude(known)}

    def answers(self, slots: Slots, language: Language = "english") -> list[str]:
        """The final answers as words."""
        words = WORDS[language][self.replies[language].slots["a"].word_class]
        return [words[index] for index in slots["a"]]


def replies(english: str, chinese: str, answer: str) -> dict[Language, Template]:
    """The reply in both languages: the facts, then the final answer, a word of the class `answer`."""
    return {
        "english": Template(f"{english} The answer is {{a:{answer}}}."),
        "chinese": Template(f"{chinese} 答案 是 {{a:{answer}}} 。", "chinese"),
    }


def with_options(text: str, word_class: str, num: int = NUM_OPTIONS) -> Template:
    """A question followed by its options, one per line."""
    options = (f"\n{letter}. {{o{i}:{word_class}}}" for i, letter in enumerate(LETTERS[:num]))
    return Template(text + "".join(options))


def option_slots(options_NO: Ints) -> dict[str, Ints]:
    """Options as slots o0, o1, ..."""
    return {f"o{i}": options_NO[:, i] for i in range(options_NO.shape[1])}


def is_option(name: str) -> bool:
    """Whether a slot holds an option: o0, o1, ..."""
    return name[0] == "o" and name[1:].isdigit()


def options_of(slots: Slots) -> Ints:
    """The options of questions (N, O)."""
    return np.stack([values for name, values in sorted(slots.items()) if is_option(name)], 1)


def letter_of(options_NO: Ints, value_N: Ints) -> Ints:
    """The index of the option with this value."""
    is_it_NO = options_NO == value_N[:, None]
    assert is_it_NO.any(1).all(), "the answer is not among the options"
    return np.asarray(is_it_NO.argmax(1))


def draw_options(rng: Rng, total: int, musts: list[Ints], never: Ints | None = None) -> Ints:
    """Draw distinct options below `total` in random order (N, O). They include `musts`, except for values of -1."""
    num = len(musts[0])
    rank_NT = rng.random((num, total))
    index = np.arange(num)
    if never is not None:
        rank_NT[index, never] = 2.0
    for must in musts:
        is_value = must >= 0
        rank_NT[index[is_value], must[is_value]] -= 3.0
    options_NO = np.argsort(rank_NT, axis=1)[:, :NUM_OPTIONS]
    return np.asarray(rng.permuted(options_NO, axis=1))


def prior_option(rng: Rng, options_NO: Ints, canonical_N: Ints, share: float) -> Ints:
    """Draw the canonical value, if there is one, with probability `share`; otherwise a random option."""
    num, width = options_NO.shape
    other_N = options_NO[np.arange(num), rng.integers(width, size=num)]
    is_canonical = (rng.random(num) < share) & (canonical_N >= 0)
    return np.where(is_canonical, canonical_N, other_N)


def prior_value(rng: Rng, canonical_N: Ints, share: float, low: int, high: int) -> Ints:
    """Draw the canonical value with probability `share`; otherwise a random value from low to high."""
    num = len(canonical_N)
    return np.where(rng.random(num) < share, canonical_N, rng.integers(low, high + 1, size=num))


def pick(rng: Rng, scenes: Scenes) -> Ints:
    """Choose a thing of every scene and return its slot."""
    return (rng.random(len(scenes)) * scenes.count_N).astype(np.int64)


def at(values_NK: Ints, thing_N: Ints) -> Ints:
    """The value of the chosen thing of each scene."""
    return np.asarray(values_NK[np.arange(len(thing_N)), thing_N])


def other_color(rng: Rng, color: Ints) -> Ints:
    """Draw a different colour."""
    return (color + rng.integers(1, NUM_COLORS, size=color.shape)) % NUM_COLORS


DESCRIBE = Template("Describe the picture.")


def description(side: int, prefix: str = "") -> Template:
    """The description of a picture, cell by cell with one line per row: colour and shape, or "no thing".

    >>> description(3).text.splitlines()[0]
    '{c0:cell_color} {s0:cell_shape} {c1:cell_color} {s1:cell_shape} {c2:cell_color} {s2:cell_shape}'
    """
    cells = [f"{{{prefix}c{i}:cell_color}} {{{prefix}s{i}:cell_shape}}" for i in range(side**2)]
    return Template("\n".join(" ".join(cells[row * side : (row + 1) * side]) for row in range(side)))


def describe(scenes: Scenes) -> Slots:
    """The slots of true descriptions."""
    num, cells = len(scenes), scenes.side**2
    color = np.full((num, cells), NUM_COLORS)
    shape = np.full((num, cells), NUM_SHAPES)
    n, k = np.nonzero(scenes.is_there_NK)
    cell = scenes.cell_NK[n, k]
    color[n, cell], shape[n, cell] = scenes.color_NK[n, k], scenes.shape_NK[n, k]
    return {f"c{i}": color[:, i] for i in range(cells)} | {f"s{i}": shape[:, i] for i in range(cells)}


def reasoned(kind: Kind, side: int) -> Template:
    """A reply that describes the whole picture before it answers. `described` fills the description."""
    return Template(f"{description(side, _CELL).text}\n{kind.replies['english'].text}")


def described(scenes: Scenes) -> Slots:
    """The slots of the description in a reasoned reply, under names that no question uses."""
    return {f"{_CELL}{name}": values for name, values in describe(scenes).items()}


_CELL = "cell_"
