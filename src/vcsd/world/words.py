"""The words of the world, in English and in a second script.

A class of words is a list; a thing's shape or colour is an index into it. A shape and its canonical colour have the
same index. Both languages list the same meanings in the same order.
"""

from __future__ import annotations

from typing import Literal

Language = Literal["english", "chinese"]

SHAPES = ("circle", "square", "triangle", "cross", "diamond", "ring")
COLORS = ("red", "green", "blue", "yellow", "purple", "cyan", "orange", "white")
LETTERS = ("A", "B", "C", "D")
NUM_SHAPES, NUM_COLORS, NUM_OPTIONS = len(SHAPES), len(COLORS), len(LETTERS)

RGB = (
    *((225, 45, 45), (45, 200, 60), (55, 80, 240), (230, 225, 50)),
    *((165, 55, 205), (55, 215, 215), (240, 140, 30), (232, 232, 232)),
)
BACKGROUND = 32
"""Dark grey, out of 255: a black picture must differ from a picture of an empty scene."""

_NUMBERS = tuple(str(number) for number in range(10))

WORDS: dict[Language, dict[str, tuple[str, ...]]] = {
    "english": {
        "shape": SHAPES,
        "color": COLORS,
        "letter": LETTERS,
        "number": _NUMBERS,
        "truth": ("no", "yes"),
        "vertical": ("above", "below"),
        "horizontal": ("left", "right"),
        "cell_color": (*COLORS, "no"),
        "cell_shape": (*SHAPES, "thing"),
    },
    "chinese": {
        "shape": ("圆形", "方形", "三角", "十字", "菱形", "圆环"),
        "color": ("红色", "绿色", "蓝色", "黄色", "紫色", "青色", "橙色", "白色"),
        "letter": LETTERS,
        "number": _NUMBERS,
        "truth": ("不对", "对"),
        "vertical": ("上面", "下面"),
        "horizontal": ("左边", "右边"),
    },
}
"""The words of each class, by language."""
