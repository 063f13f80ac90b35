"""Draw the picture of a scene. Pillow draws each shape once, as a stamp; pictures are composed of stamps.

A picture is a square of cells of 32 x 32 pixels on dark grey. Stamps are drawn large and shrunk, so edges are smooth.
`vcsd.bases.forward.Painter` does the same arithmetic with the same stamps for whole batches on a device.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from vcsd.world.words import BACKGROUND, RGB, SHAPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vcsd.world.parameters import Parameters
    from vcsd.world.scenes import Scenes

CELL = 32
"""Pixels on a side of a cell: two patches of 16, merged into one visual token."""

_OVERSAMPLING = 4


def draw_picture(scenes: Scenes, index: int, parameters: Parameters, noise_seed: int) -> Image.Image:
    """Draw one scene as an RGB image; its noise depends only on the seed and the index."""
    side = scenes.side
    pixels = np.full((side * CELL, side * CELL, 3), float(BACKGROUND))
    for k in range(int(scenes.count_N[index])):
        row, column = divmod(int(scenes.cell_NK[index, k]), side)
        mask = stamp(
            int(scenes.shape_NK[index, k]), int(scenes.radius_NK[index, k]), *scenes.shift_NK2[index, k].tolist()
        )
        color = np.array(RGB[int(scenes.color_NK[index, k])]) + scenes.tint_NK3[index, k]
        cell = pixels[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
        cell += (color.clip(0, 255) - BACKGROUND) * (mask[..., None] / 255.0)
    pixels = _blurred(pixels, parameters.blur)
    noise = np.random.default_rng([noise_seed, index]).standard_normal(pixels.shape)
    pixels = np.rint(pixels + parameters.noise * noise).clip(0, 255)
    return Image.fromarray(pixels.astype(np.uint8), "RGB")


def _blurred(pixels: NDArray[np.float64], blur: int) -> NDArray[np.float64]:
    """Average squares of pixels, each within one cell."""
    if blur == 1:
        return pixels
    num = len(pixels) // blur
    means = pixels.reshape(num, blur, num, blur, 3).mean((1, 3))
    return np.asarray(means.repeat(blur, 0).repeat(blur, 1))


@cache
def stamp(shape: int, radius: int, right: int, down: int) -> NDArray[np.uint8]:
    """How much of each pixel of a cell a shape covers (CELL, CELL), out of 255."""
    big = CELL * _OVERSAMPLING
    image = Image.new("L", (big, big))
    x, y = ((CELL / 2 + offset) * _OVERSAMPLING for offset in (right, down))
    _draw_shape(ImageDraw.Draw(image), SHAPES[shape], x, y, radius * _OVERSAMPLING)
    return np.asarray(image.resize((CELL, CELL), Image.Resampling.BOX))


def _draw_shape(draw: ImageDraw.ImageDraw, shape: str, x: float, y: float, r: float) -> None:
    if shape in ("circle", "ring"):
        draw.ellipse((x - r, y - r, x + r, y + r), fill=255)
        if shape == "ring":
            hole = 0.55 * r
            draw.ellipse((x - hole, y - hole, x + hole, y + hole), fill=0)
    elif shape == "cross":
        arm = 0.33 * r
        draw.rectangle((x - r, y - arm, x + r, y + arm), fill=255)
        draw.rectangle((x - arm, y - r, x + arm, y + r), fill=255)
    else:
        draw.polygon([(x + r * dx, y + r * dy) for dx, dy in _CORNERS[shape]], fill=255)


_CORNERS: dict[str, list[tuple[float, float]]] = {
    "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "triangle": [(0.0, -1.0), (1.0, 0.9), (-1.0, 0.9)],
    "diamond": [(0.0, -1.0), (0.8, 0.0), (0.0, 1.0), (-0.8, 0.0)],
}
