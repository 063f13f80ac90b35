"""Questions: what can be asked about a scene, what the picture says, what the prior would say, and how to answer.

A kind of question is three small functions over many scenes at once:

    ask        choose what to ask, and read the facts off the picture; it may recolour scenes so that there is an answer
    imagine    the same facts without the picture, drawn from the prior: canonical values, and mostly yes
    conclude   from facts to the final answer, whichever of the two they are

An answer is a sentence with the facts, then "The answer is ...": true if the facts are the picture's, swayed if they
are imagined.

Shape legend: N questions, K places for things, O options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from vcsd.world.scenes import Bools, Ints, Rng, Scenes
from vcsd.world.template import Slots, Template
from vcsd.world.words import LETTERS, NUM_COLORS, NUM_OPTIONS, NUM_SHAPES, WORDS, Language

if TYPE_CHECKING:
    from vcsd.evaluation.question import AnswerKind
    from vcsd.world.parameters import Parameters


@dataclass(frozen=True, eq=False)
class Asked:
    """Questions about scenes, and the facts that the pictures show. `keep_N` is False where nothing could be asked."""

    scenes: Scenes
    question: Slots
    facts: Slots
    keep_N: Bools

    def kept(self, limit: int) -> Asked:
        """The first questions that could be asked."""
        chosen = np.flatnonzero(self.keep_N)[:limit]
        return Asked(self.scenes[chosen], rows(self.question, chosen), rows(self.facts, chosen), self.keep_N[chosen])


def rows(slots: Slots, chosen: Ints) -> Slots:
    """Some of the sentences."""
    return {name: values[chosen] for name, values in slots.items()}


Ask: TypeAlias = Callable[[Rng, Scenes, float], Asked]
"""Random numbers, scenes and the share of questions whose answer is yes -> questions and facts."""
Imagine: TypeAlias = Callable[[Rng, Slots, int, "Parameters"], Slots]
"""Random numbers, questions, side of the picture, parameters -> facts of the prior."""
Conclude: TypeAlias = Callable[[Slots], Slots]
"""Question and facts together -> the final answer `a`."""


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
        """All that a reply's template needs."""
        known = {**question, **facts}
        return {**known, **self.conclude(known)}

    def answers(self, slots: Slots, language: Language = "english") -> list[str]:
        """The final answers as words."""
        words = WORDS[language][self.replies[language].slots["a"].word_class]
        return [words[index] for index in slots["a"]]


def replies(english: str, chinese: str) -> dict[Language, Template]:
    """The reply in both languages."""
    return {"english": Template(english), "chinese": Template(chinese, "chinese")}


def with_options(text: str, word_class: str, num: int = NUM_OPTIONS) -> Template:
    """A question with options below it, one a line."""
    options = (f"\n{letter}. {{o{i}:{word_class}}}" for i, letter in enumerate(LETTERS[:num]))
    return Template(text + "".join(options))


def option_slots(options_NO: Ints) -> dict[str, Ints]:
    """Options as slots o0, o1, ..."""
    return {f"o{i}": options_NO[:, i] for i in range(options_NO.shape[1])}


def options_of(slots: Slots) -> Ints:
    """The options of questions (N, O)."""
    return np.stack([values for name, values in sorted(slots.items()) if name[0] == "o" and name[1:].isdigit()], 1)


def letter_of(options_NO: Ints, value_N: Ints) -> Ints:
    """Which option says it."""
    is_it_NO = options_NO == value_N[:, None]
    assert is_it_NO.any(1).all(), "the answer is not among the options"
    return np.asarray(is_it_NO.argmax(1))


def draw_options(rng: Rng, total: int, musts: list[Ints], never: Ints | None = None) -> Ints:
    """Distinct values below `total` in random order (N, O), among them those that must be; -1 stands for no value."""
    num = len(musts[0])
    rank_NT = rng.random((num, total))
    each = np.arange(num)
    if never is not None:
        rank_NT[each, never] = 2.0
    for must in musts:
        is_value = must >= 0
        rank_NT[each[is_value], must[is_value]] -= 3.0
    options_NO = np.argsort(rank_NT, axis=1)[:, :NUM_OPTIONS]
    return np.asarray(rng.permuted(options_NO, axis=1))


def prior_option(rng: Rng, options_NO: Ints, canonical_N: Ints, share: float) -> Ints:
    """The canonical value with a probability of `share`, where there is one; else any option."""
    num, width = options_NO.shape
    other_N = options_NO[np.arange(num), rng.integers(width, size=num)]
    is_canonical = (rng.random(num) < share) & (canonical_N >= 0)
    return np.where(is_canonical, canonical_N, other_N)


def prior_value(rng: Rng, canonical_N: Ints, share: float, low: int, high: int) -> Ints:
    """The canonical value with a probability of `share`, else any from low to high."""
    num = len(canonical_N)
    return np.where(rng.random(num) < share, canonical_N, rng.integers(low, high + 1, size=num))


def pick(rng: Rng, scenes: Scenes) -> Ints:
    """One thing of every scene, by its place."""
    return (rng.random(len(scenes)) * scenes.count_N).astype(np.int64)


def at(values_NK: Ints, place_N: Ints) -> Ints:
    """The value of the chosen thing."""
    return np.asarray(values_NK[np.arange(len(place_N)), place_N])


def other_color(rng: Rng, color: Ints) -> Ints:
    """Any other colour."""
    return (color + rng.integers(1, NUM_COLORS, size=color.shape)) % NUM_COLORS


DESCRIBE = Template("Describe the picture.")


def description(side: int) -> Template:
    """Every cell of a picture in turn, one row a line: colour and shape, or "no thing".

    >>> description(3).text.splitlines()[0]
    '{c0:cell_color} {s0:cell_shape} {c1:cell_color} {s1:cell_shape} {c2:cell_color} {s2:cell_shape}'
    """
    cells = [f"{{c{i}:cell_color}} {{s{i}:cell_shape}}" for i in range(side**2)]
    return Template("\n".join(" ".join(cells[row * side : (row + 1) * side]) for row in range(side)))


def describe(scenes: Scenes) -> Slots:
    """The words of true descriptions."""
    num, cells = len(scenes), scenes.side**2
    color = np.full((num, cells), NUM_COLORS)
    shape = np.full((num, cells), NUM_SHAPES)
    n, k = np.nonzero(scenes.is_there_NK)
    cell = scenes.cell_NK[n, k]
    color[n, cell], shape[n, cell] = scenes.color_NK[n, k], scenes.shape_NK[n, k]
    return {f"c{i}": color[:, i] for i in range(cells)} | {f"s{i}": shape[:, i] for i in range(cells)}
