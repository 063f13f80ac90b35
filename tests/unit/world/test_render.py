"""The renderer draws the things of a scene and nothing else."""

import numpy as np
import pytest

import world_reader
from vcsd.world.parameters import PARAMETERS
from vcsd.world.render import CELL, draw_picture, stamp
from vcsd.world.scenes import draw_scenes
from vcsd.world.words import BACKGROUND, COLORS, RGB, SHAPES


@pytest.mark.parametrize("side", PARAMETERS.sides)
def test_a_reader_of_the_pixels_finds_the_things_of_the_scene(side):
    scenes = draw_scenes(np.random.default_rng(side), 60, side, PARAMETERS, split="train")
    for i in range(60):
        said = {
            (int(scenes.row_NK[i, k]), int(scenes.column_NK[i, k])): (
                COLORS[scenes.color_NK[i, k]],
                SHAPES[scenes.shape_NK[i, k]],
            )
            for k in range(scenes.count_N[i])
        }
        assert world_reader.look(draw_picture(scenes, i, PARAMETERS, 1)) == said


def test_an_empty_cell_is_background_and_noise():
    scenes = draw_scenes(np.random.default_rng(0), 1, 3, PARAMETERS, split="train")
    pixels = np.asarray(draw_picture(scenes, 0, PARAMETERS, 1)).astype(float)
    taken = set(scenes.cell_NK[0, : scenes.count_N[0]].tolist())
    row, column = divmod(next(cell for cell in range(9) if cell not in taken), 3)
    empty = pixels[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
    assert empty.mean() == pytest.approx(BACKGROUND, abs=1)
    assert empty.std() == pytest.approx(PARAMETERS.noise, rel=0.1)


def test_the_middle_of_a_circle_has_its_colour():
    scenes = draw_scenes(np.random.default_rng(3), 200, 3, PARAMETERS, split="train")
    quiet = PARAMETERS.changed(["noise=0"])
    for i in range(200):
        if scenes.shape_NK[i, 0] != SHAPES.index("circle"):
            continue
        picture = np.asarray(draw_picture(scenes, i, quiet, 0))
        row, column = divmod(int(scenes.cell_NK[i, 0]), 3)
        right, down = scenes.shift_NK2[i, 0]
        middle = picture[row * CELL + 16 + down, column * CELL + 16 + right]
        wanted = (np.array(RGB[scenes.color_NK[i, 0]]) + scenes.tint_NK3[i, 0]).clip(0, 255)
        assert middle.tolist() == wanted.tolist()
        return
    raise AssertionError("no circle was drawn")


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_a_shape_stays_in_its_cell_and_moves_as_told(shape):
    radius, shift = max(PARAMETERS.largest_radius), PARAMETERS.shift
    middle, moved = stamp(shape, radius, 0, 0), stamp(shape, radius, shift, -shift)
    assert middle.max() == 255
    for edge in (middle[0], middle[-1], middle[:, 0], middle[:, -1]):
        assert edge.max() == 0
    assert (np.roll(middle, (shift, -shift), axis=(1, 0)) == moved).all()
