"""The picture of the pre-check: every base has two intervals, and the only line is the forecast's."""

import math
from pathlib import Path

import numpy as np
import pytest

from vcsd.inspect.precheck.calibration import BaseRuns, calibrated, expected_gain, unseen
from vcsd.reproduce.exam import SEVEN, world_questions
from vcsd.reproduce.experiments import NUM_QUESTIONS
from vcsd.reproduce.pages.precheck_picture import draw_precheck, gain_intervals, num_independent

RESULTS = Path(__file__).parents[4] / "docs" / "results"


def test_every_base_has_both_intervals_and_the_only_line_is_the_forecast():
    new = unseen().pairs
    figure = draw_precheck(RESULTS, list(new))
    for axis in figure.axes:
        bars = [each for each in axis.containers if type(each).__name__ == "ErrorbarContainer"]
        dots = sorted((float(x), float(y)) for bar in bars for x, y in zip(*bar.lines[0].get_data(), strict=True))
        assert np.array(dots) == pytest.approx(np.array(sorted([*calibrated().values(), *new.values()])), abs=1e-3)
        for bar in bars:
            assert bar.lines[0].get_linestyle() == "None", "a line joins the dots"
            across, up = bar.lines[2]
            assert len(across.get_segments()) == len(up.get_segments()) == len(bar.lines[0].get_xdata())
        (line,) = [line for line in axis.lines if line.get_linestyle() == "--"]
        for x, y in np.transpose(line.get_data()):
            assert y == pytest.approx(expected_gain(x).value, abs=1e-3)


def test_intervals_are_those_of_two_models_that_answer_different_questions():
    def cell(score):
        return {"scores": dict.fromkeys(SEVEN, score)}

    decoded, trained = gain_intervals(BaseRuns(cell(50.0), [cell(70.0), cell(90.0)], [cell(50.0)]))
    assert decoded.low == pytest.approx(-decoded.high)
    z, arms = 1.959964, []
    for suite in SEVEN:
        num = num_independent(suite)
        wilson = []
        for share in (0.5, 0.8):
            middle = (share + z * z / (2 * num)) / (1 + z * z / num)
            arm = z / (1 + z * z / num) * math.sqrt(share * (1 - share) / num + z * z / (4 * num * num))
            wilson.append((middle - arm, middle + arm))
        arms.append(math.hypot(0.8 - wilson[1][0], wilson[0][1] - 0.5))
    assert trained.low == pytest.approx(30 - 100 * math.sqrt(sum(arm**2 for arm in arms)) / 7, abs=1e-6)


def test_questions_about_one_picture_count_once():
    questions = world_questions(NUM_QUESTIONS)
    for suite in SEVEN:
        own = [question for question in questions if question.benchmark == suite]
        if SEVEN[suite].cluster == "set":
            clusters = {(question.groups["l2-category"], question.groups["set"]) for question in own}
        else:
            clusters = {question.groups["image"] for question in own}
        assert len(clusters) == num_independent(suite)
