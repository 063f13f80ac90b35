"""Questions about places: which row, and where one thing lies, seen from another, along rows or columns.

The prior: a shape's canonical row is one of the first three, and things lie above and left of each other in the order
of SHAPES.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import numpy as np

from vcsd.world.questions import Asked, Kind, at, pick, prior_value, replies, with_options
from vcsd.world.template import Slots, Template

if TYPE_CHECKING:
    from vcsd.world.parameters import Parameters
    from vcsd.world.scenes import Ints, Rng, Scenes

Axis = Literal["row", "column"]
_CANONICAL_ROWS = 3


def _ask_row(rng: Rng, scenes: Scenes, yes_share: float) -> Asked:
    thing = pick(rng, scenes)
    question = {"s": at(scenes.shape_NK, thing)}
    return Asked(scenes, question, {"r": at(scenes.row_NK, thing)}, np.ones(len(scenes), dtype=bool))


def _imagine_row(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    canonical = question["s"] % _CANONICAL_ROWS + 1
    return {"r": prior_value(rng, canonical, parameters.canonical_share, 1, side)}


class _Pairs:
    """Two things of a scene that differ along an axis, and how the prior would place them."""

    def __init__(self, axis: Axis) -> None:
        self.axis = axis

    def ask(self, rng: Rng, scenes: Scenes) -> Asked:
        """Choose two things; `is_first` says whether the first lies above, or left of, the second."""
        place_NK = scenes.row_NK if self.axis == "row" else scenes.column_NK
        pairs = np.array(list(itertools.permutations(range(place_NK.shape[1]), 2)))
        one, two = pairs[:, 0], pairs[:, 1]
        there = scenes.is_there_NK
        can_be = there[:, one] & there[:, two] & (place_NK[:, one] != place_NK[:, two])
        chosen = np.where(can_be, rng.random(can_be.shape), -1.0).argmax(1)
        first, second = one[chosen], two[chosen]
        question = {"s": at(scenes.shape_NK, first), "t": at(scenes.shape_NK, second)}
        facts = {"r": at(place_NK, first), "u": at(place_NK, second)}
        return Asked(scenes, question, facts, can_be.any(1))

    def ask_choice(self, rng: Rng, scenes: Scenes, yes_share: float) -> Asked:
        """With the two directions as options, in either order."""
        asked = self.ask(rng, scenes)
        swap = rng.integers(2, size=len(scenes))
        return Asked(scenes, {**asked.question, "o0": swap, "o1": 1 - swap}, asked.facts, asked.keep_N)

    def ask_is(self, rng: Rng, scenes: Scenes, yes_share: float) -> Asked:
        """Whether it is so."""
        asked = self.ask(rng, scenes)
        truth = (asked.facts["r"] > asked.facts["u"]).astype(np.int64)
        is_yes = rng.random(len(scenes)) < yes_share
        return Asked(scenes, {**asked.question, "d": np.where(is_yes, truth, 1 - truth)}, asked.facts, asked.keep_N)

    def imagine_choice(self, rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
        """The order of SHAPES, mostly."""
        is_usual = rng.random(len(question["s"])) < parameters.canonical_share
        return _places(rng, (question["s"] < question["t"]) == is_usual, side)

    def imagine_is(self, rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
        """As asked, mostly."""
        is_yes = rng.random(len(question["s"])) < parameters.yes_share
        return _places(rng, (question["d"] == 0) == is_yes, side)


def _places(rng: Rng, is_first: Ints, side: int) -> Slots:
    """Two different rows or columns in the given order."""
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


def _reply(axis: Axis, answer: str) -> dict[str, str]:
    chinese = {"row": "行", "column": "列"}[axis]
    return {
        "english": f"The {{s:shape}} is in {axis} {{r:number}} and the {{t:shape}} is in {axis} {{u:number}}. "
        f"The answer is {{a:{answer}}}.",
        "chinese": f"{{s:shape}} 在 {{r:number}} {chinese} 和 {{t:shape}} 在 {{u:number}} {chinese} 。 "
        f"答案 是 {{a:{answer}}} 。",
    }


_ROWS, _COLUMNS = _Pairs("row"), _Pairs("column")
_WHERE = "Where is the {s:shape}, seen from the {t:shape}?"

PLACE_KINDS = (
    Kind(
        "row",
        "integer",
        Template("In which row is the {s:shape}?"),
        replies(
            "The {s:shape} is in row {r:number}. The answer is {a:number}.",
            "{s:shape} 在 {r:number} 行 。 答案 是 {a:number} 。",
        ),
        _ask_row,
        _imagine_row,
        lambda known: {"a": known["r"]},
    ),
    Kind(
        "above_choice",
        "option",
        with_options(_WHERE, "vertical", 2),
        replies(**_reply("row", "letter")),
        _ROWS.ask_choice,
        _ROWS.imagine_choice,
        _conclude_choice,
    ),
    Kind(
        "beside_choice",
        "option",
        with_options(_WHERE, "horizontal", 2),
        replies(**_reply("column", "letter")),
        _COLUMNS.ask_choice,
        _COLUMNS.imagine_choice,
        _conclude_choice,
    ),
    Kind(
        "is_above",
        "yes_no",
        Template("Is the {s:shape} {d:vertical} the {t:shape}?"),
        replies(**_reply("row", "truth")),
        _ROWS.ask_is,
        _ROWS.imagine_is,
        _conclude_is,
    ),
    Kind(
        "is_beside",
        "yes_no",
        Template("Is the {s:shape} {d:horizontal} of the {t:shape}?"),
        replies(**_reply("column", "truth")),
        _COLUMNS.ask_is,
        _COLUMNS.imagine_is,
        _conclude_is,
    ),
)
