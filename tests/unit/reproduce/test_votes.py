"""The majority of several answers, and the step that does best on dev."""

from types import SimpleNamespace

import pytest
import torch

from tiny_examples import example
from vcsd.reproduce import runners
from vcsd.reproduce.runners import BestStep, majority
from vcsd.types import Prediction, Question

QUESTION = Question(example(), "mixed", "option", "A", options={"A": "red", "B": "green"})


def said(*texts):
    return [Prediction(str(number), text, "end") for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "chosen"),
    [
        (("The answer is A.", "The answer is B.", "It is green. The answer is B."), 1),
        (("The answer is B.", "The answer is A."), 0),
        (("Who knows?", "No idea.", "The answer is A."), 2),
        (("Who knows?", "No idea."), 0),
    ],
)
def test_the_first_prediction_of_the_most_frequent_answer_is_chosen(texts, chosen):
    assert majority(QUESTION, said(*texts)).question_id == str(chosen)


def test_the_weights_of_the_best_step_are_kept_and_not_those_of_the_last(tmp_path, monkeypatch):
    accs = iter([50.0, 70.0, 60.0])
    monkeypatch.setattr(runners, "scores", lambda exam, found: {"acc": found, "scores": {}, "unresolved": 0})
    monkeypatch.setattr(runners, "base_model", lambda model: model)
    exam = SimpleNamespace(take=lambda model, *, name: next(accs))
    curve, model = BestStep(exam, 10, tmp_path / "metrics.jsonl"), torch.nn.Linear(1, 1, bias=False)
    for step in range(1, 31):
        with torch.no_grad():
            model.weight.fill_(step)
        curve.on_step_end(None, SimpleNamespace(global_step=step), None, model=model)
    assert curve.step == 20
    assert curve.weights["weight"].item() == 20.0
    assert [point["acc"] for point in curve.points] == [50.0, 70.0, 60.0]
