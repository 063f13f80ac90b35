"""The things in the scenes: emoji with English names, their colours, and what is usual about them.

prompted     have a usual colour, which captions mention; post-training prompts ask about them
unprompted   have a usual colour, which captions mention; no post-training prompt asks about them
unnamed      have a usual colour, which no caption mentions
any          have any colour
high, low    have a usual row: the top one or the bottom one

Captions are true. What is skewed is the world of pre-training: there a banana is always yellow, and the sun is always
in the top row.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal

Group = Literal["prompted", "unprompted", "unnamed", "any", "high", "low"]

COLORS = {
    "red": (225, 35, 40),
    "orange": (250, 140, 20),
    "yellow": (250, 215, 40),
    "green": (40, 170, 60),
    "blue": (40, 100, 240),
    "purple": (140, 60, 200),
    "pink": (255, 130, 190),
}
"""Colours by name, as red, green and blue."""

ROWS = ("top", "middle", "bottom")
CELLS = (
    *("top left", "top center", "top right"),
    *("middle left", "center", "middle right"),
    *("bottom left", "bottom center", "bottom right"),
)
NUMBERS = ("zero", "one", "two", "three", "four", "five")

_USUAL = {
    "prompted": "🍌yellow 🐤yellow 🍓red 🦞red 🥕orange 🦊orange 🥦green 🌵green 🍆purple 🐬blue 🐷pink",
    "unprompted": "🍋yellow 🍅red 🌹red 🎃orange 🐸green 🐊green 🥒green 🌊blue 💧blue 🦩pink 🧠pink",
    "unnamed": "🧀yellow 🌻yellow 🚕yellow 🐞red 🌶red 🏀orange 🍊orange 🌳green 🍐green 🍀green 🐳blue 👅pink",
}
_ANY = "❤🔴🟥📕🚗👕👗🧢🎈🎁👜👠🪑🛋🎒🧣🔑🖍🖊🔔🚪🎀🎸🧶👟👛🔷🪣🛵☂"
_HIGH, _LOW = "🌞🌙⭐☁🌈✈🚁🦅", "🦈🐙🦑🦐🐚🍄🐌🐢"

_SHORTER = {
    "fox face": "fox", "pig face": "pig", "frog face": "frog", "aubergine": "eggplant", "jack-o-lantern": "pumpkin",
    "droplet": "drop", "cheese wedge": "cheese", "lady beetle": "ladybug", "hot pepper": "chili",
    "basketball and hoop": "basketball", "automobile": "car", "t-shirt": "shirt", "wrapped present": "gift",
    "handbag": "bag", "couch and lamp": "couch", "school satchel": "backpack", "athletic shoe": "sneaker",
    "sun with face": "sun",
}  # fmt: skip
"""Everyday words for names of Unicode whose last word would not do."""


@dataclass(frozen=True)
class Thing:
    """A thing that can be drawn once in a scene. `usual` is its usual colour, if it has one."""

    name: str
    emoji: str
    group: Group
    usual: str | None = None

    @property
    def usual_row(self) -> int | None:
        """The row in which it usually is, if there is one."""
        return {"high": 0, "low": 2}.get(self.group)

    @property
    def has_color(self) -> bool:
        """Whether its colour can be asked about."""
        return self.usual is not None or self.group == "any"

    @property
    def is_named_with_color(self) -> bool:
        """Whether captions mention its colour."""
        return self.has_color and self.group != "unnamed"


def name_of(emoji: str) -> str:
    """Return the everyday name: the last word of its name in Unicode, or a shorter one.

    >>> name_of("🍌"), name_of("🐤"), name_of("🎃")
    ('banana', 'chick', 'pumpkin')
    """
    full = unicodedata.name(emoji).lower()
    return _SHORTER.get(full, full.split()[-1])


def with_article(name: str) -> str:
    """Put the indefinite article before a name.

    >>> with_article("eagle"), with_article("rose")
    ('an eagle', 'a rose')
    """
    return ("an " if name[0] in "aeiou" else "a ") + name


def _all_things() -> list[Thing]:
    colored: list[tuple[Group, str]] = [(group, _USUAL[group]) for group in ("prompted", "unprompted", "unnamed")]
    things = [Thing(name_of(each[0]), each[0], group, each[1:]) for group, text in colored for each in text.split()]
    plain: list[tuple[Group, str]] = [("any", _ANY), ("high", _HIGH), ("low", _LOW)]
    return things + [Thing(name_of(emoji), emoji, group) for group, emojis in plain for emoji in emojis]


THINGS: dict[str, Thing] = {thing.name: thing for thing in _all_things()}
"""All things by name. Their order is that of the sprites."""
