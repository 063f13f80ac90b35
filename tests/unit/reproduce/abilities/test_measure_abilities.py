"""Abilities: a speaker that sees everything has them all, and one that says one thing has none."""

import pytest

from vcsd.bases.measure import last_answer
from vcsd.reproduce.abilities import measure_abilities as module
from vcsd.reproduce.abilities.confidence import calibration
from vcsd.reproduce.abilities.measure_abilities import NUM_SAMPLES, ability_examples, measure_abilities
from vcsd.types import message_texts
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.kinds import KINDS


class Oracle:
    """Answers truly, but under black it says what it says to everyone; warm, it is wrong in every second sample."""

    def __init__(self):
        self.asked = []

    def answers(self, examples, *, view="original", longest=None, temperature=0.0, seed=0):
        is_told = "[Reference answer]" in message_texts(examples[0].prompt[0])[0]
        self.asked.append((len(examples), view, is_told, temperature))
        if (view == "black" and not is_told) or (temperature and seed % 2):
            return ["The answer is nothing."] * len(examples)
        return [f"I see. The answer is {example.answer}." for example in examples]


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(module, "sight", lambda speaker, num, split, world: {"3": 50.0})
    oracle = Oracle()
    return oracle, measure_abilities(oracle, 4, "test", PARAMETERS)


def test_what_an_oracle_can_do(measured):
    oracle, found = measured
    total = 4 * len(KINDS)
    assert found["num_questions"] == total
    assert (found["right"], found["hint"], found["text_only"]) == (100.0, 100.0, 100.0)
    assert (found["black"], found["black_same"], found["sight"]) == (0.0, 0.0, {"3": 50.0})
    assert found["kinds"] == found["usual"] == dict.fromkeys(KINDS, 100.0)
    assert found["pass_at"]["1"] == 50.0
    assert found["pass_at"]["8"] == 100.0
    assert (found["distinct"], found["entropy"]) == (2.0, 1.0)
    assert (found["ece"], found["confidence_right"], found["confidence_wrong"]) == (50.0, 50.0, None)
    assert {name: len(texts) for name, texts in found["answers"].items()} == dict.fromkeys(KINDS, 4)
    greedy = [(total, "original", False, 0.0), (total, "black", False, 0.0)]
    told = [(total, "original", True, 0.0), (total, "black", True, 0.0)]
    samples = [(total // 2, "original", False, 1.0)] * NUM_SAMPLES
    assert found["unread"] == dict.fromkeys(("right", "hint", "text_only", "black", "usual", "sampled"), 0.0)
    assert oracle.asked == [*greedy, *samples, *told, (total, "original", False, 0.0)]


def test_answers_that_end_in_no_answer_are_unread(monkeypatch):
    monkeypatch.setattr(module, "sight", lambda speaker, num, split, world: {"3": 50.0})

    class Mumbling(Oracle):
        """Says nothing under black, and in every second sample."""

        def answers(self, examples, **how):
            texts = super().answers(examples, **how)
            return ["I see." if text == "The answer is nothing." else text for text in texts]

    found = measure_abilities(Mumbling(), 4, "test", PARAMETERS)["unread"]
    assert found == {"right": 0.0, "hint": 0.0, "text_only": 0.0, "black": 100.0, "usual": 0.0, "sampled": 50.0}


def test_the_kept_answers_belong_to_the_questions_of_the_page(measured):
    examples = ability_examples(4, "test", PARAMETERS)
    for k, (kind, texts) in enumerate(measured[1]["answers"].items()):
        own = examples[4 * k : 4 * k + 4]
        assert {example.category for example in own} == {kind}
        assert [last_answer(text) for text in texts] == [example.answer for example in own]


def test_skewed_questions_are_others_and_all_are_repeatable():
    one, two = (ability_examples(2, "test", PARAMETERS) for _ in range(2))
    assert all(a.images[0].tobytes() == b.images[0].tobytes() for a, b in zip(one, two, strict=True))
    skewed = ability_examples(2, "test", PARAMETERS, is_skewed=True)
    assert not any(a.images[0].tobytes() == b.images[0].tobytes() for a, b in zip(one, skewed, strict=True))


def test_calibration_by_hand():
    greedy = ["A", "A", "B", None]
    samples = [["A", "A"], ["A", "C"], ["B", "C"], [None, None]]
    found = calibration(greedy, samples, [True, False, True, False])
    # Confidence 1: one answer, right. 0.5: two answers, one right: no error. 0: one answer, wrong.
    assert (found.ece, found.confidence_right, found.confidence_wrong) == (0.0, 75.0, 25.0)
    sure_and_wrong = calibration(["A", "A"], [["A", "A"], ["A", "A"]], [False, False])
    assert (sure_and_wrong.ece, sure_and_wrong.confidence_right) == (100.0, None)
