"""A reader of the world's pictures that knows nothing of its scenes: it looks at pixels and parses the question.

look(picture)              what lies in each cell: {(row, column): (colour, shape)}, counted from one
answer(question, things)   the right answer to a question's text, as a word
"""

import re
from functools import cache

import numpy as np

from vcsd.world.render import CELL, stamp
from vcsd.world.words import BACKGROUND, COLORS, RGB, SHAPES


@cache
def _stamps():
    """Every shape at every size and shift, as rows of unit length, and their shapes."""
    found = [
        (stamp(shape, radius, right, down).astype(float).ravel(), shape)
        for shape in range(len(SHAPES))
        for radius in range(5, 13)
        for right in range(-2, 3)
        for down in range(-2, 3)
    ]
    matrix = np.array([mask / np.linalg.norm(mask) for mask, _ in found])
    return matrix, np.array([shape for _, shape in found])


def look(picture):
    pixels = np.asarray(picture).astype(float)
    matrix, shapes = _stamps()
    things = {}
    for row in range(pixels.shape[0] // CELL):
        for column in range(pixels.shape[1] // CELL):
            cell = pixels[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL] - BACKGROUND
            away = np.linalg.norm(cell, axis=-1)
            if (away > 80).sum() < 10:
                continue
            shape = shapes[(matrix @ np.minimum(away, 150).ravel()).argmax()]
            color = np.median(cell[away > 0.7 * away.max()], axis=0) + BACKGROUND
            nearest = np.linalg.norm(np.array(RGB) - color, axis=1).argmin()
            things[row + 1, column + 1] = (COLORS[nearest], SHAPES[shape])
    return things


def answer(question, things):
    text, *lines = question.split("\n")
    options = {word: letter for letter, word in (line.split(". ") for line in lines)}
    color_of = {shape: color for color, shape in things.values()}
    place_of = {shape: place for place, (_, shape) in things.items()}
    colors = [color for color, _ in things.values()]
    for pattern, reply in _RULES:
        if found := re.fullmatch(pattern, text):
            said = reply(found.groups(), color_of, place_of, colors, options)
            return options.get(said, said)
    raise AssertionError(f"no rule reads {text!r}")


def _same(words, color_of, place_of, colors, options):
    (match,) = [shape for shape in color_of if color_of[shape] == color_of[words[0]] and shape != words[0]]
    return match


def _only(words, color_of, place_of, colors, options):
    (match,) = [shape for shape, color in color_of.items() if color == words[0]]
    return match


def _seen_from(words, color_of, place_of, colors, options):
    axis, names = (0, ("above", "below")) if "above" in options else (1, ("left", "right"))
    return names[place_of[words[0]][axis] > place_of[words[1]][axis]]


def _is_beside(words, color_of, place_of, colors, options):
    first, direction, second = words
    axis = 0 if direction in ("above", "below") else 1
    is_before = place_of[first][axis] < place_of[second][axis]
    assert place_of[first][axis] != place_of[second][axis]
    return "yes" if is_before == (direction in ("above", "left")) else "no"


_RULES = [
    (r"What color is the (\w+)\?", lambda w, c, p, n, o: c[w[0]]),
    (r"What shape is the (\w+) thing\?", _only),
    (r"Which thing has the same color as the (\w+)\?", _same),
    (r"Is the (\w+) (above|below) the (\w+)\?", _is_beside),
    (r"Is the (\w+) (left|right) of the (\w+)\?", _is_beside),
    (r"Is the (\w+) (\w+)\?", lambda w, c, p, n, o: "yes" if c[w[0]] == w[1] else "no"),
    (r"In which row is the (\w+)\?", lambda w, c, p, n, o: str(p[w[0]][0])),
    (r"Where is the (\w+), seen from the (\w+)\?", _seen_from),
    (r"How many (\w+) things are there\?", lambda w, c, p, n, o: str(n.count(w[0]))),
    (r"How many (\w+) and (\w+) things are there in all\?", lambda w, c, p, n, o: str(n.count(w[0]) + n.count(w[1]))),
    (r"How many more (\w+) than (\w+) things are there\?", lambda w, c, p, n, o: str(n.count(w[0]) - n.count(w[1]))),
]
