"""Scenes: distinct shapes, free cells, balanced or skewed as asked, and a split that colours cannot change."""

import numpy as np
import pytest

from vcsd.world.parameters import PARAMETERS
from vcsd.world.scenes import draw_scenes


def draw(num=4000, side=3, **settings):
    return draw_scenes(np.random.default_rng(7), num, side, PARAMETERS, **{"split": "train", **settings})


def test_no_two_things_share_a_shape_or_a_cell():
    scenes = draw()
    for values in (scenes.shape_NK, scenes.cell_NK):
        ordered = np.sort(values, axis=1)
        assert (np.diff(ordered, axis=1) > 0).all()


def test_colours_are_uniform_or_canonical_as_asked():
    balanced, skewed = draw(), draw(canonical_share=0.65)
    assert (balanced.color_NK == balanced.shape_NK).mean() == pytest.approx(1 / 8, abs=0.02)
    assert (skewed.color_NK == skewed.shape_NK).mean() == pytest.approx(0.65 + 0.35 / 8, abs=0.02)


def test_colours_do_not_decide_the_split():
    scenes = draw(split="test")
    assert set(scenes.recolored((scenes.color_NK + 1) % 8).split_N()) == {"test"}


def test_places_that_are_not_taken_do_not_decide_the_split():
    scenes = draw(split="dev")
    hidden = np.where(scenes.is_there_NK, scenes.cell_NK, 0)
    moved = type(scenes)(scenes.side, scenes.count_N, hidden, *(getattr(scenes, n) for n in REST))
    assert set(moved.split_N()) == {"dev"}


REST = ("shape_NK", "color_NK", "radius_NK", "shift_NK2", "tint_NK3")


def test_splits_have_the_stated_shares():
    rng = np.random.default_rng(0)
    from vcsd.world.scenes import _draw

    names = _draw(rng, 20000, 4, PARAMETERS, 0.0).split_N()
    assert (names == "test").mean() == pytest.approx(2 / 16, abs=0.01)
    assert (names == "dev").mean() == pytest.approx(1 / 16, abs=0.01)


def test_rows_and_columns_count_from_one_at_the_top_left():
    scenes = draw(num=50)
    cell = (scenes.row_NK - 1) * 3 + scenes.column_NK - 1
    assert (cell == scenes.cell_NK).all()
    assert scenes.row_NK.min() == scenes.column_NK.min() == 1
    assert scenes.row_NK.max() == scenes.column_NK.max() == 3
