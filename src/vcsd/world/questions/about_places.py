"""Questions about places: the row of a thing, and where one thing is relative to another, along rows or columns.

The prior: a shape's canonical row is one of the first three, and of two things, the one that comes first in SHAPES is
above and to the left of the other.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from vcsd.world.questions.kind import AskedScenes, Kind, at, pick, prior_value, replies, with_options
from vcsd.world.questions.template import Slots, Template

if TYPE_CHECKING:
    from vcsd.world.parameters import Parameters
    from vcsd.world.scenes import Ints, Rng, Scenes
    from vcsd.world.words import Language

Axis = Literal["row", "column"]
_CANONICAL_ROWS = 3


def _ask_row(rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    thing = pick(rng, scenes)
    question = {"s": at(scenes.shape_NK, thing)}
    return AskedScenes(scenes, question, {"r": at(scenes.row_NK, thing)}, np.ones(len(scenes), dtype=bool))


def _imagine_row(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    canonical = question["s"] % _CANONICAL_ROWS + 1
    return {"r": prior_value(rng, canonical, parameters.canonical_share, 1, side)}


def _ask_pair(axis: Axis, rng: Rng, scenes: Scenes) -> AskedScenes:
    """Choose two things in different rows or columns."""
    place_NK = scenes.row_NK if axis == "row" else scenes.column_NK
    pairs = np.array(list(itertools.permutations(range(place_NK.shape[1]), 2)))
    one, two = pairs[:, 0], pairs[:, 1]
    there = scenes.is_there_NK
    can_be = there[:, one] & there[:, two] & (place_NK[:, one] != place_NK[:, two])
    chosen = np.where(can_be, rng.random(can_be.shape), -1.0).argmax(1)
    first, second = one[chosen], two[chosen]
    question = {"s": at(scenes.shape_NK, first), "t": at(scenes.shape_NK, second)}
    facts = {"r": at(place_NK, first), "u": at(place_NK, second)}
    return AskedScenes(scenes, question, facts, can_be.any(1))


def _ask_choice(axis: Axis, rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    """Ask with the two directions as options, in either order."""
    asked = _ask_pair(axis, rng, scenes)
    swap = rng.integers(2, size=len(scenes))
    return replace(asked, question={**asked.question, "o0": swap, "o1": 1 - swap})


def _imagine_choice(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    """Mostly the order of SHAPES."""
    is_usual = rng.random(len(question["s"])) < parameters.canonical_share
    return _places(rng, (question["s"] < question["t"]) == is_usual, side)


def _ask_is(axis: Axis, rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    """Ask whether the first thing is in a direction from the second."""
    asked = _ask_pair(axis, rng, scenes)
    truth = _direction(asked.facts)
    is_yes = rng.random(len(scenes)) < yes_share
    return replace(asked, question={**asked.question, "d": np.where(is_yes, truth, 1 - truth)})


def _imagine_is(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    """Mostly as the question suggests."""
    is_yes = rng.random(len(question["s"])) < parameters.yes_share
    return _places(rng, (question["d"] == 0) == is_yes, side)


def _places(rng: Rng, is_first: Ints, side: int) -> Slots:
    """Draw two different rows or columns; the first is the smaller where `is_first`."""
    num = len(is_first)
    low = rng.integers(1, side, size=num)
    high = low + 1 + (rng.random(num) * (side - low)).astype(np.int64)
    return {"r": np.where(is_first, low, high), "u": np.where(is_first, high, low)}


def _direction(known: Slots) -> Ints:
    """0 for above or left, 1 for below or right."""
    return (known["r"] > known["u"]).astype(np.int64)


def _conclude_choice(known: Slots) -> Slots:
    return {"a": (known["o0"] != _direction(known)).astype(np.int64)}


def _conclude_is(known: Slots) -> Slots:
    return {"a": (known["d"] == _direction(known)).astype(np.int64)}


def _replies(axis: Axis, answer: str) -> dict[Language, Template]:
    chinese = {"row": "行", "column": "列"}[axis]
    return replies(
        f"The {{s:shape}} is in {axis} {{r:number}} and the {{t:shape}} is in {axis} {{u:number}}.",
        f"{{s:shape}} 在 {{r:number}} {chinese} 和 {{t:shape}} 在 {{u:number}} {chinese} 。",
        answer,
    )


_WHERE = "Where is the {s:shape}, seen from the {t:shape}?"

PLACE_KINDS = (
    Kind(
        "row",
        "integer",
        Template("In which row is the {s:shape}?"),
        replies("The {s:shape} is in row {r:number}.", "{s:shape} 在 {r:number} 行 。", "number"),
        _ask_row,
        _imagine_row,
        lambda known: {"a": known["r"]},
    ),
    Kind(
        "above_choice",
        "option",
        with_options(_WHERE, "vertical", 2),
        _replies("row", "letter"),
        partial(_ask_choice, "row"),
        _imagine_choice,
        _conclude_choice,
    ),
    Kind(
        "beside_choice",
        "option",
        with_options(_WHERE, "horizontal", 2),
        _replies("column", "letter"),
        partial(_ask_choice, "column"),
        _imagine_choice,
        _conclude_choice,
    ),
    Kind(
        "is_above",
        "yes_no",
        Template("Is the {s:shape} {d:vertical} the {t:shape}?"),
        _replies("row", "truth"),
        partial(_ask_is, "row"),
        _imagine_is,
        _conclude_is,
    ),
    Kind(
        "is_beside",
        "yes_no",
        Template("Is the {s:shape} {d:horizontal} of the {t:shape}?"),
        _replies("column", "truth"),
        partial(_ask_is, "column"),
        _imagine_is,
        _conclude_is,
    ),
)
