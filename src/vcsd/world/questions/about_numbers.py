"""Questions about numbers: how many things have one colour, or either of two, or how many more have one than another.

Scenes are recoloured so that all answers are equally frequent. The prior: there are two of everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vcsd.world.questions.kind import AskedScenes, Kind, other_color, prior_value, replies
from vcsd.world.questions.template import Slots, Template
from vcsd.world.words import NUM_COLORS

if TYPE_CHECKING:
    from vcsd.world.parameters import Parameters
    from vcsd.world.scenes import Bools, Ints, Rng, Scenes

CANONICAL_NUMBER = 2
_MOST = 3
"""The largest number of things of one colour in a question."""


def _with_counts(rng: Rng, scenes: Scenes, colors: list[Ints], numbers: list[Ints]) -> tuple[Scenes, Bools]:
    """Recolour scenes to have these numbers of things of these colours; also return which scenes have enough things."""
    order_NK = np.where(scenes.is_there_NK, rng.random(scenes.color_NK.shape), 2.0)
    rank_NK = np.argsort(np.argsort(order_NK, axis=1), axis=1)
    color_NK = scenes.color_NK.copy()
    for _ in range(4):  # remove the colours in question first; each round leaves about a quarter of them
        is_asked = np.any([color_NK == color[:, None] for color in colors], axis=0)
        color_NK = np.where(is_asked, rng.integers(NUM_COLORS, size=color_NK.shape), color_NK)
    start = np.zeros(len(scenes), dtype=np.int64)
    for color, number in zip(colors, numbers, strict=True):
        is_chosen = (rank_NK >= start[:, None]) & (rank_NK < (start + number)[:, None])
        color_NK = np.where(is_chosen, color[:, None], color_NK)
        start = start + number
    counts = [((color_NK == color[:, None]) & scenes.is_there_NK).sum(1) for color in colors]
    is_right = [count == number for count, number in zip(counts, numbers, strict=True)]
    keep_N = np.all([scenes.count_N > _MOST - 1, start <= scenes.count_N, *is_right], axis=0)
    return scenes.recolored(color_NK), keep_N


def _ask_count(rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    color = rng.integers(NUM_COLORS, size=len(scenes))
    number = rng.integers(_MOST + 1, size=len(scenes))
    scenes, keep = _with_counts(rng, scenes, [color], [number])
    return AskedScenes(scenes, {"c": color}, {"n": number}, keep)


def _imagine_count(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    return {"n": _usual(rng, question, parameters, _MOST)}


def _usual(rng: Rng, question: Slots, parameters: Parameters, most: int) -> Ints:
    canonical = np.full(len(question["c"]), CANONICAL_NUMBER)
    return prior_value(rng, canonical, parameters.canonical_share, 0, most)


def _ask_sum(rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    color = rng.integers(NUM_COLORS, size=len(scenes))
    other = other_color(rng, color)
    most = _MOST - 1
    total = rng.integers(2 * most + 1, size=len(scenes))
    first = rng.integers(np.maximum(0, total - most), np.minimum(most, total) + 1)
    scenes, keep = _with_counts(rng, scenes, [color, other], [first, total - first])
    facts = {"n": first, "m": total - first}
    return AskedScenes(scenes, {"c": color, "d": other}, facts, keep & (scenes.count_N > _MOST))


def _imagine_sum(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    return {name: _usual(rng, question, parameters, _MOST - 1) for name in ("n", "m")}


def _ask_more(rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    color = rng.integers(NUM_COLORS, size=len(scenes))
    other = other_color(rng, color)
    more, second = rng.integers(_MOST, size=len(scenes)), rng.integers(2, size=len(scenes))
    scenes, keep = _with_counts(rng, scenes, [color, other], [more + second, second])
    facts = {"n": more + second, "m": second}
    return AskedScenes(scenes, {"c": color, "d": other}, facts, keep & (scenes.count_N > _MOST))


def _imagine_more(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    first = _usual(rng, question, parameters, _MOST)
    second = rng.integers(2, size=len(first))
    return {"n": np.maximum(first, second), "m": second}


_BOTH = replies(
    "There are {n:number} {c:color} and {m:number} {d:color} things.",
    "有 {n:number} {c:color} 和 {m:number} {d:color} 东西 。",
    "number",
)

NUMBER_KINDS = (
    Kind(
        "count",
        "integer",
        Template("How many {c:color} things are there?"),
        replies("There are {n:number} {c:color} things.", "有 {n:number} {c:color} 东西 。", "number"),
        _ask_count,
        _imagine_count,
        lambda known: {"a": known["n"]},
    ),
    Kind(
        "sum",
        "integer",
        Template("How many {c:color} and {d:color} things are there in all?"),
        _BOTH,
        _ask_sum,
        _imagine_sum,
        lambda known: {"a": known["n"] + known["m"]},
    ),
    Kind(
        "more",
        "integer",
        Template("How many more {c:color} than {d:color} things are there?"),
        _BOTH,
        _ask_more,
        _imagine_more,
        lambda known: {"a": known["n"] - known["m"]},
    ),
)
