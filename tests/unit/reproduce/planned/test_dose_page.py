"""The page of doses applies the committed rules, on made-up results and cards."""

import json

import pytest

from made_up_runs import made_up
from vcsd.reproduce.planned.dose_page import dose_page, gain, gains_on_dev
from vcsd.reproduce.planned.planned_plots import draw_doses


def by_dose(points):
    """Acc 50 plus what a dose gains."""
    return lambda base, noise: 50.0 + points[base.partition("-dose-")[2] or "0.6"] + noise


GAINS = {"0": 0.2, "0.2": 3.0, "0.4": 12.0, "0.6": 30.0, "0.8": 40.0}


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "cards").mkdir()
    found = made_up(tmp_path, VCSD=by_dose(GAINS))
    for base in found.listed.bases:
        dose = base.partition("-dose-")[2] or "0.6"
        sway = {"greedy": {"mean": 50.0}, "contrast": {"mean": 50.0 + 0.9 * GAINS[dose]}}
        (tmp_path / "cards" / f"{base}.json").write_text(json.dumps({"measured": {"sway": sway}}))
    return found


def test_the_dose_of_the_papers_size_comes_from_the_cards(runs):
    assert [each.dose for each in gains_on_dev(runs)] == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert "It is dose **0.2**, with +2.70 points." in dose_page(runs)
    for base in runs.doses[0.2]:
        (runs.out / "cards" / f"{base}.json").unlink()
    page = dose_page(runs)
    assert "It is dose **0**" in page
    assert "Doses without a card, which may have been closer: 0.2." in page


def test_gains_are_means_over_the_bases_of_a_dose(runs):
    assert gain(runs, "VCSD", 0.6).num_bases == 5
    assert gain(runs, "VCSD", 0.4).num_bases == 3
    assert gain(runs, "VCSD", 0.4).mean == pytest.approx(12.0 + (0.4 - 0.4 + 0.1) / 3)


def test_the_null_world_comes_first_and_contradicts_us_only_if_all_bases_gain(runs, tmp_path):
    page = dose_page(runs)
    assert page.index("## The null world") < page.index("## The dose of the paper's size") < page.index("## Gain by")
    assert "0 of 3 bases gain more than one point" in page
    gained = made_up(tmp_path, VCSD=by_dose({**GAINS, "0": 5.0}))
    assert "which contradicts what we say about the world" in dose_page(gained)
    harmed = made_up(tmp_path, VCSD=by_dose({**GAINS, "0": -5.0}))
    assert "Training **lowers** qwen3_vl-small-11-dose-0, " in dose_page(harmed)


def test_missing_runs_are_named_and_leave_the_null_world_open(runs, tmp_path):
    some = made_up(tmp_path, without=("qwen3_vl-small-12-dose-0", "OPSD"), VCSD=by_dose(GAINS))
    page = dose_page(some)
    assert "**Missing**: base, contrast decoding, VCSD, sharpened 2 (qwen3_vl-small-12-dose-0); OPSD (" in page
    assert "2 of 3 bases are finished, so the question of the rules is open" in page
    assert "| missing |" in page


def test_the_picture_has_a_line_for_every_variant(runs):
    (axis,) = draw_doses(runs).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [
        *("VCSD", "sharpened 2", "contrast decoding", "OPSD")
    ]
    assert axis.get_ylim()[0] < 0 < axis.get_ylim()[1]
