"""Questions about colours: the colour of a thing, with and without options; matching things; yes or no.

The prior: each shape has a canonical colour (the one with the same index) and a canonical partner of the same colour.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vcsd.world.questions.kind import (
    AskedScenes,
    Kind,
    at,
    draw_options,
    letter_of,
    option_slots,
    options_of,
    other_color,
    pick,
    prior_option,
    prior_value,
    replies,
    with_options,
)
from vcsd.world.questions.template import Slots, Template
from vcsd.world.words import NUM_COLORS, NUM_SHAPES

if TYPE_CHECKING:
    from vcsd.world.parameters import Parameters
    from vcsd.world.scenes import Ints, Rng, Scenes


def _all(scenes: Scenes) -> np.ndarray:
    return np.ones(len(scenes), dtype=bool)


def _ask_color(rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    thing = pick(rng, scenes)
    return AskedScenes(scenes, {"s": at(scenes.shape_NK, thing)}, {"c": at(scenes.color_NK, thing)}, _all(scenes))


def _imagine_color(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    return {"c": prior_value(rng, question["s"], parameters.canonical_share, 0, NUM_COLORS - 1)}


def _ask_color_choice(rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    asked = _ask_color(rng, scenes, yes_share)
    shape, color = asked.question["s"], asked.facts["c"]
    return replace(asked, question={"s": shape, **option_slots(draw_options(rng, NUM_COLORS, [color, shape]))})


def _imagine_color_choice(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    return {"c": prior_option(rng, options_of(question), question["s"], parameters.canonical_share)}


def _ask_shape_choice(rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    thing = pick(rng, scenes)
    shape, color = at(scenes.shape_NK, thing), at(scenes.color_NK, thing)
    scenes = scenes.recolored(_only(rng, scenes, [thing], color))
    options = draw_options(rng, NUM_SHAPES, [shape, _shape_of(color)])
    return AskedScenes(scenes, {"c": color, **option_slots(options)}, {"s": shape}, _all(scenes))


def _imagine_shape_choice(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    canonical = _shape_of(question["c"])
    return {"s": prior_option(rng, options_of(question), canonical, parameters.canonical_share)}


def _shape_of(color: Ints) -> Ints:
    """The shape with this canonical colour, or -1."""
    return np.where(color < NUM_SHAPES, color, -1)


def _only(rng: Rng, scenes: Scenes, things: list[Ints], color_N: Ints) -> Ints:
    """Recolour so that the given things, and only they, have `color_N`."""
    color_NK = np.where(scenes.color_NK == color_N[:, None], other_color(rng, scenes.color_NK), scenes.color_NK)
    for thing in things:
        color_NK[np.arange(len(scenes)), thing] = color_N
    return color_NK


def partner(shape: Ints) -> Ints:
    """The shape that has the same colour according to the prior."""
    return (shape + NUM_SHAPES // 2) % NUM_SHAPES


def _ask_same(rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    first = pick(rng, scenes)
    step = 1 + (rng.random(len(scenes)) * (scenes.count_N - 1)).astype(np.int64)
    second = (first + step) % scenes.count_N
    color = at(scenes.color_NK, first)
    scenes = scenes.recolored(_only(rng, scenes, [first, second], color))
    one, two = at(scenes.shape_NK, first), at(scenes.shape_NK, second)
    options = draw_options(rng, NUM_SHAPES, [two, partner(one)], never=one)
    return AskedScenes(scenes, {"s": one, **option_slots(options)}, {"c": color, "t": two}, _all(scenes))


def _imagine_same(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    share, shape = parameters.canonical_share, question["s"]
    color = prior_value(rng, shape, share, 0, NUM_COLORS - 1)
    return {"c": color, "t": prior_option(rng, options_of(question), partner(shape), share)}


def _ask_is_color(rng: Rng, scenes: Scenes, yes_share: float) -> AskedScenes:
    thing = pick(rng, scenes)
    color = at(scenes.color_NK, thing)
    is_yes = rng.random(len(scenes)) < yes_share
    asked = np.where(is_yes, color, other_color(rng, color))
    return AskedScenes(scenes, {"s": at(scenes.shape_NK, thing), "q": asked}, {"c": color}, _all(scenes))


def _imagine_is_color(rng: Rng, question: Slots, side: int, parameters: Parameters) -> Slots:
    asked = question["q"]
    is_yes = rng.random(len(asked)) < parameters.yes_share
    return {"c": np.where(is_yes, asked, other_color(rng, asked))}


COLOR_KINDS = (
    Kind(
        "color",
        "text",
        Template("What color is the {s:shape}?"),
        replies("The {s:shape} is {c:color}.", "{s:shape} 是 {c:color} 。", "color"),
        _ask_color,
        _imagine_color,
        lambda known: {"a": known["c"]},
    ),
    Kind(
        "color_choice",
        "option",
        with_options("What color is the {s:shape}?", "color"),
        replies("The {s:shape} is {c:color}.", "{s:shape} 是 {c:color} 。", "letter"),
        _ask_color_choice,
        _imagine_color_choice,
        lambda known: {"a": letter_of(options_of(known), known["c"])},
    ),
    Kind(
        "shape_choice",
        "option",
        with_options("What shape is the {c:color} thing?", "shape"),
        replies("The {c:color} thing is a {s:shape}.", "{c:color} 东西 是 {s:shape} 。", "letter"),
        _ask_shape_choice,
        _imagine_shape_choice,
        lambda known: {"a": letter_of(options_of(known), known["s"])},
    ),
    Kind(
        "same",
        "option",
        with_options("Which thing has the same color as the {s:shape}?", "shape"),
        replies(
            "The {s:shape} is {c:color} as is the {t:shape}.", "{s:shape} 是 {c:color} 和 {t:shape} 一样 。", "letter"
        ),
        _ask_same,
        _imagine_same,
        lambda known: {"a": letter_of(options_of(known), known["t"])},
    ),
    Kind(
        "is_color",
        "yes_no",
        Template("Is the {s:shape} {q:color}?"),
        replies("The {s:shape} is {c:color}.", "{s:shape} 是 {c:color} 。", "truth"),
        _ask_is_color,
        _imagine_is_color,
        lambda known: {"a": (known["c"] == known["q"]).astype(np.int64)},
    ),
)
