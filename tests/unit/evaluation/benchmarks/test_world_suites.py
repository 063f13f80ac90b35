"""The world's suites are benchmarks like the others: asked, scored and written by the same code."""

import pytest

from vcsd.config.recipe import build_recipe
from vcsd.errors import ConfigError
from vcsd.evaluation.benchmarks import BENCHMARKS, PUBLISHED
from vcsd.evaluation.benchmarks.world_suites import ALL_BENCHMARKS, WORLD
from vcsd.evaluation.evaluate import Asking, Scoring, evaluate, load_questions
from vcsd.evaluation.reading.marking import Marking
from vcsd.types import Prediction
from vcsd.world.questions.suites import SUITES

TREE = {"model": {"path": "m"}, "data": {"path": "d"}}


class Knows:
    identity = {"model": "knows"}  # noqa: RUF012

    def answer(self, questions, sampling, *, seed):
        for place, each in enumerate(questions):
            yield place, Prediction(each.id, f"The answer is {each.gold}.", "end", 4)


def test_each_suite_is_scored_as_the_benchmark_it_stands_for():
    rules = [(each.aggregation, each.cluster) for each in WORLD.values()]
    assert rules == [(each.aggregation, each.cluster) for each in BENCHMARKS.values()]
    assert list(ALL_BENCHMARKS) == [*PUBLISHED, *WORLD]


def test_a_recipe_may_name_the_world_or_a_suite_of_it():
    given = {"benchmarks": ["world/small", "world", "BLINK"]}
    assert build_recipe({**TREE, "evaluation": given}).evaluation.benchmarks == given["benchmarks"]
    with pytest.raises(ConfigError, match="Did you mean 'world/small'"):
        build_recipe({**TREE, "evaluation": {"benchmarks": ["world/smal"]}})


def test_the_suites_of_the_world_are_those_named_here():
    assert [f"world/{name}" for name in SUITES] == list(WORLD)


def test_the_world_is_asked_without_files_and_gold_answers_are_right(tmp_path):
    loaded = load_questions("world", tmp_path / "nowhere", Asking(limit=64))
    assert [each.report.benchmark for each in loaded] == list(WORLD)
    assert all(len(each.questions) == 64 < each.report.num_questions for each in loaded)
    assert len({each.report.md5 for each in loaded}) == 7
    (card,) = evaluate(loaded, Knows(), tmp_path, Asking(), Scoring(Marking("final")), title="knows")
    assert card.acc == 100
    assert set(card.benchmarks["world/hallucination"].metrics) == {"aAcc", "fAcc", "qAcc"}
    assert len(card.benchmarks["world/small"].metrics) == 4
    assert (tmp_path / "vlmevalkit" / "world" / "small.tsv").is_file()


def test_rotations_of_a_question_are_drawn_together_and_a_name_given_twice_is_asked_once():
    (loaded,) = load_questions("world/small,world/small", None, Asking())
    asked = [question.groups["question"] for question in loaded.questions]
    assert len(asked) == 4 * len(set(asked)) == loaded.report.num_questions
    assert {question.groups["cycle"] for question in loaded.questions} == {"0", "1", "2", "3"}
    again = load_questions("world/small", None, Asking())[0]
    assert again.report == loaded.report
