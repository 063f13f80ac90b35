"""True questions about scenes, their answers, and the suites that they form.

    usual_*    the colour of a thing, asked by its name, in a scene where it has its usual colour
    unusual_*  the same where it has another colour: here the picture contradicts what the captions were skewed to
    place_*    the colour of such a thing, asked by its place: what the model sees if no name suggests a colour
    any_color  the colour of a thing that may have any
    row_*      the row of a thing with a usual row, in this row or in another
    presence, count, name   whether a thing is there, how many there are, and what is in a cell

A suite's questions depend only on the split, the suite and the number of the question. The splits `train`, `dev` and
`test` are drawn independently from the same distribution.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from vcsd.emoji.emoji_scenes import PlacedThing, Scene, draw_scene
from vcsd.emoji.things import CELLS, COLORS, NUMBERS, ROWS, THINGS, with_article

if TYPE_CHECKING:
    from collections.abc import Sequence

SceneSplit = Literal["train", "dev", "test"]

KEY_WORDS: dict[str, tuple[str, ...]] = {
    "color": tuple(COLORS),
    "row": ROWS,
    "presence": ("yes", "no"),
    "count": NUMBERS,
    "name": tuple(THINGS),
}
"""The words that can be an answer, by what is asked for."""

_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class SceneQuestion:
    """A question about a scene, its true answer as a sentence, and the word that decides: the key.

    `suggested` is the word that the usual world suggests, if there is one.
    """

    scene: Scene
    asks: str
    text: str
    sentence: str
    key: str
    suggested: str | None = None


def asked_for(suite: str) -> str:
    """Return what a suite asks for: a key of `KEY_WORDS`.

    >>> asked_for("unusual_prompted"), asked_for("row_usual"), asked_for("count")
    ('color', 'row', 'count')
    """
    first = suite.split("_")[0]
    return first if first in KEY_WORDS else "color"


def read_key(asks: str, text: str) -> str | None:
    """Return the word that an answer gives, or None; of several, the last, but of yes and no the first.

    >>> read_key("color", "The banana is blue."), read_key("presence", "No, there is no fox."), read_key("row", "Hm.")
    ('blue', 'no', None)
    """
    found = find_key(asks, text)
    return None if found is None else found.group()


def find_key(asks: str, text: str) -> re.Match[str] | None:
    """Return the place of that word in the text in small letters: a whole word, never a part of another.

    >>> find_key("presence", "I do not know. No.").start(), find_key("count", "A stone.")
    (15, None)
    """
    said = [match for match in _WORD.finditer(text.lower()) if match.group() in KEY_WORDS[asks]]
    return (said[0] if asks == "presence" else said[-1]) if said else None


def ask_color(scene: Scene, placed: PlacedThing) -> SceneQuestion:
    """Ask for a thing's colour by its name."""
    name, color = placed.thing.name, _color(placed)
    question, answer = f"What color is the {name}?", f"The {name} is {color}."
    return SceneQuestion(scene, "color", question, answer, color, placed.thing.usual)


def ask_color_at(scene: Scene, placed: PlacedThing) -> SceneQuestion:
    """Ask for a thing's colour by its place."""
    place, color = CELLS[placed.cell], _color(placed)
    question, answer = f"What color is the thing in the {place}?", f"The thing in the {place} is {color}."
    return SceneQuestion(scene, "color", question, answer, color, placed.thing.usual)


def ask_name(scene: Scene, placed: PlacedThing) -> SceneQuestion:
    """Ask what is in a cell."""
    place, name = CELLS[placed.cell], placed.thing.name
    answer = f"There is {with_article(name)} in the {place}."
    return SceneQuestion(scene, "name", f"What is in the {place}?", answer, name)


def ask_row(scene: Scene, placed: PlacedThing) -> SceneQuestion:
    """Ask for a thing's row."""
    name, usual = placed.thing.name, placed.thing.usual_row
    question = f"In which row is the {name}: top, middle or bottom?"
    suggested = None if usual is None else ROWS[usual]
    return SceneQuestion(scene, "row", question, f"The {name} is in the {placed.row} row.", placed.row, suggested)


def ask_presence(scene: Scene, name: str) -> SceneQuestion:
    """Ask whether a thing is there."""
    is_there, named = scene.find(name) is not None, with_article(name)
    answer = f"Yes, there is {named}." if is_there else f"No, there is no {name}."
    return SceneQuestion(scene, "presence", f"Is there {named}?", answer, "yes" if is_there else "no")


def ask_count(scene: Scene) -> SceneQuestion:
    """Ask how many things there are."""
    number = NUMBERS[len(scene.things)]
    answer = "There is one thing." if number == "one" else f"There are {number} things."
    return SceneQuestion(scene, "count", "How many things are there?", answer, number)


def _color(placed: PlacedThing) -> str:
    assert placed.color is not None, f"nobody asks for the colour of {placed.thing.name}"
    return placed.color


QuestionDraw: TypeAlias = Callable[[random.Random], SceneQuestion]
"""Draws a question, with its scene."""


def _about(
    groups: Sequence[str], *, is_unusual: bool, ask: Callable[[Scene, PlacedThing], SceneQuestion]
) -> QuestionDraw:
    names = [thing.name for thing in THINGS.values() if thing.group in groups]

    def draw(rng: random.Random) -> SceneQuestion:
        name = rng.choice(names)
        scene = draw_scene(rng, must=[name], unusual=[name] if is_unusual else [])
        placed = scene.find(name)
        assert placed is not None
        return ask(scene, placed)

    return draw


def _draw_presence(rng: random.Random) -> SceneQuestion:
    scene = draw_scene(rng)
    shown = [placed.thing.name for placed in scene.things]
    return ask_presence(scene, rng.choice(shown if rng.random() < 0.5 else [n for n in THINGS if n not in shown]))


def _draw_name(rng: random.Random) -> SceneQuestion:
    scene = draw_scene(rng)
    return ask_name(scene, rng.choice(scene.things))


SUITES: dict[str, QuestionDraw] = {
    "usual_prompted": _about(["prompted"], is_unusual=False, ask=ask_color),
    "usual_unprompted": _about(["unprompted"], is_unusual=False, ask=ask_color),
    "usual_unnamed": _about(["unnamed"], is_unusual=False, ask=ask_color),
    "unusual_prompted": _about(["prompted"], is_unusual=True, ask=ask_color),
    "unusual_unprompted": _about(["unprompted"], is_unusual=True, ask=ask_color),
    "unusual_unnamed": _about(["unnamed"], is_unusual=True, ask=ask_color),
    "place_named": _about(["prompted", "unprompted"], is_unusual=True, ask=ask_color_at),
    "place_unnamed": _about(["unnamed"], is_unusual=True, ask=ask_color_at),
    "any_color": _about(["any"], is_unusual=False, ask=ask_color),
    "row_usual": _about(["high", "low"], is_unusual=False, ask=ask_row),
    "row_unusual": _about(["high", "low"], is_unusual=True, ask=ask_row),
    "presence": _draw_presence,
    "count": lambda rng: ask_count(draw_scene(rng)),
    "name": _draw_name,
}
"""How a question of each suite is drawn."""

PROMPT_SHARES = {
    "unusual_prompted": 0.35,
    "usual_prompted": 0.20,
    "any_color": 0.15,
    "presence": 0.10,
    "row_unusual": 0.08,
    "row_usual": 0.07,
    "count": 0.05,
}
"""What post-training prompts ask, with their shares. No prompt asks about the other suites."""


def draw_question(split: SceneSplit, suite: str, number: int) -> SceneQuestion:
    """Draw one question of a suite: always the same one for the same arguments."""
    return SUITES[suite](random.Random(f"emoji {split} {suite} {number}"))


def prompt_suites(num: int) -> list[str]:
    """Return the suite of each of `num` prompts, in a fixed random order."""
    return random.Random("emoji prompts").choices(list(PROMPT_SHARES), list(PROMPT_SHARES.values()), k=num)
