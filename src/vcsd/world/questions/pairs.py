"""Sets of two pictures and two questions for the hallucination suite: each question is true of one picture only.

A model that answers from the prior gives the same answer for both pictures, and gets at most half of a set right. The
two pictures of a set differ in one thing's colour, or in two things that have swapped places.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from vcsd.world.questions.kind import AskedScenes, at, other_color, pick
from vcsd.world.questions.kinds import KINDS
from vcsd.world.scenes import Rng, Scenes, Split, draw_scenes

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcsd.world.parameters import Parameters

Sets: TypeAlias = list[tuple[int, int, AskedScenes]]
"""(figure, question, scenes) for each of the four questions of a set; the scenes are those of all sets."""


def color_pairs(rng: Rng, num: int, parameters: Parameters, split: Split) -> Sets:
    """The same thing in two colours, with a question about each colour."""
    scenes = draw_scenes(rng, num, 3, parameters, split=split)
    thing = pick(rng, scenes)
    colors = [at(scenes.color_NK, thing)]
    colors.append(other_color(rng, colors[0]))
    shape, keep = at(scenes.shape_NK, thing), np.ones(num, dtype=bool)
    sets: Sets = []
    for figure, shown in enumerate(colors):
        color_NK = scenes.color_NK.copy()
        color_NK[np.arange(num), thing] = shown
        for number, asked in enumerate(colors):
            question = {"s": shape, "q": asked}
            sets.append((figure, number, AskedScenes(scenes.recolored(color_NK), question, {"c": shown}, keep)))
    return sets


def place_pairs(rng: Rng, num: int, parameters: Parameters, split: Split) -> Sets:
    """Two things, then the same things swapped, with a question about each order."""
    asked, swapped = _swappable(rng, num, parameters, split)
    row, other = asked.facts["r"], asked.facts["u"]
    sets: Sets = []
    for figure, scenes in enumerate((asked.scenes, swapped)):
        facts = {"r": row, "u": other} if figure == 0 else {"r": other, "u": row}
        for number in range(2):
            question = {"s": asked.question["s"], "t": asked.question["t"], "d": np.full(num, number)}
            sets.append((figure, number, AskedScenes(scenes, question, facts, asked.keep_N)))
    return sets


def _swappable(rng: Rng, num: int, parameters: Parameters, split: Split) -> tuple[AskedScenes, Scenes]:
    """Questions about two things in different rows, and the scenes with the two swapped, all of the same split."""
    many = 24 * num + 64
    asked = KINDS["is_above"].ask(rng, draw_scenes(rng, many, 3, parameters, split=split), 0.5)
    scenes = asked.scenes
    is_first = scenes.shape_NK == asked.question["s"][:, None]
    is_second = scenes.shape_NK == asked.question["t"][:, None]
    first, second = is_first.argmax(1), is_second.argmax(1)
    cell_NK = scenes.cell_NK.copy()
    index = np.arange(many)
    cell_NK[index, first], cell_NK[index, second] = scenes.cell_NK[index, second], scenes.cell_NK[index, first]
    swapped = replace(scenes, cell_NK=cell_NK)
    chosen = np.flatnonzero(asked.keep_N & (swapped.split_N() == split))[:num]
    assert len(chosen) == num, "too few scenes have both orders in the split"
    both = AskedScenes(asked.scenes, asked.question, asked.facts, np.isin(index, chosen)).kept(num)
    return both, swapped[chosen]


PAIRS: dict[str, tuple[str, Callable[[Rng, int, Parameters, Split], Sets]]] = {
    "VD_color": ("is_color", color_pairs),
    "VS_place": ("is_above", place_pairs),
}
"""The suite's subcategories: the kind of question, and the function that draws the sets."""
