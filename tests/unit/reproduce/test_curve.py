"""When the questions are asked during training: every few steps, and when the guard would have stopped."""

import json
from types import SimpleNamespace

import pytest

from vcsd.reproduce import runners
from vcsd.reproduce.runners import Curve


class FakeExam:
    """Every exam is one point worse than the one before."""

    def __init__(self):
        self.asked = []

    def take(self, model, *, name):
        self.asked.append(name)
        return 100.0 - len(self.asked)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A run of some steps; the guard's word on a step is written after others have heard that it ended."""
    monkeypatch.setattr(runners, "scores", lambda exam, found: {"acc": found, "scores": {}, "unresolved": 0})
    monkeypatch.setattr(runners, "base_model", lambda model: model)

    def run(every, words):
        metrics = tmp_path / "metrics.jsonl"
        curve = Curve(FakeExam(), every, metrics)
        with metrics.open("w") as file:
            for step, word in enumerate(words, 1):
                curve.on_step_begin(None, SimpleNamespace(global_step=step - 1), None, model=object())
                curve.on_step_end(None, SimpleNamespace(global_step=step), None, model=object())
                file.write(json.dumps({"step": step, **({"guard": word} if word else {})}) + "\n")
                file.flush()
        return curve

    return run


def test_a_run_is_asked_every_few_steps(course):
    curve = course(2, ["", "warn", "warn", ""])
    assert [point["step"] for point in curve.points] == [2, 4]
    assert curve.acc_at_stop is None


def test_and_once_more_where_the_guard_first_says_stop(course):
    curve = course(4, ["", "", "stop", "stop", "stop"])
    assert curve.exam.asked == ["step 3", "step 4"]
    assert curve.acc_at_stop == 99.0
    assert [(point["step"], point["acc"]) for point in curve.points] == [(4, 98.0)]


def test_a_stop_at_a_point_of_the_curve_is_asked_once(course):
    curve = course(2, ["", "stop", "stop"])
    assert curve.exam.asked == ["step 2"]
    assert curve.acc_at_stop == curve.points[0]["acc"] == 99.0


def test_a_run_without_a_curve_is_asked_at_the_end_alone(course):
    assert course(None, ["", "stop"]).exam.asked == []
