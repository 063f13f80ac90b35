"""The suites and the reader of final answers agree on what an answer is."""

import pytest

from vcsd.world.questions.suites import SUITES, build_suite

answers = pytest.importorskip("vcsd.evaluation.reading.final_answer")


@pytest.mark.parametrize("name", SUITES)
def test_golds_in_the_words_of_the_world_are_read_as_themselves(name):
    for question in build_suite(name, num=64):
        said = f"The circle is red. The answer is {question.example.answer}."
        assert answers.read_answer(said, question.kind, question.options).found == question.gold


@pytest.mark.parametrize("name", SUITES)
def test_any_other_answer_is_read_as_wrong(name):
    for question in build_suite(name, num=64):
        others = {"option": "ABCD", "yes_no": ("yes", "no"), "integer": "0123456789"}[question.kind]
        for other in set(others) - {question.example.answer}:
            found = answers.read_answer(f"The answer is {other}.", question.kind, question.options).found
            assert found != question.gold
