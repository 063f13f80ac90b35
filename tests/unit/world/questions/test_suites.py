"""The suites: right, balanced, and about pictures that training never shows."""

from collections import Counter

import numpy as np
import pytest

import world_reader
from vcsd.errors import ConfigError
from vcsd.evaluation.reading.final_answer import read_answer
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.examples import training_examples
from vcsd.world.questions.kinds import KINDS, ask
from vcsd.world.questions.suites import NUM_QUESTIONS, SUITES, as_question, build_suite, build_suites


@pytest.fixture(scope="module")
def suites():
    return build_suites()


def text_of(example):
    return example.prompt[0]["content"][1]["text"]


def test_there_are_seven_suites_of_at_least_500_questions_with_names_of_their_own(suites):
    assert len(suites) == 7
    assert min(len(questions) for questions in suites.values()) >= NUM_QUESTIONS >= 500
    names = [question.id for questions in suites.values() for question in questions]
    assert len(set(names)) == len(names)
    for question in (question for questions in suites.values() for question in questions):
        assert question.example.category == question.groups["category"]


@pytest.mark.parametrize("name", SUITES)
def test_golds_are_what_a_reader_of_the_pixels_says(suites, name):
    questions = suites[name]
    for question in questions[:: len(questions) // 40]:
        things = world_reader.look(question.example.images[0])
        said = world_reader.answer(text_of(question.example), things)
        assert said == question.example.answer, (question.id, things)
        assert question.gold == (said.capitalize() if question.kind == "yes_no" else said)


def test_answers_of_training_prompts_are_what_a_reader_of_the_pixels_says():
    examples = training_examples(130, seed=3)
    assert {example.id.rpartition("-")[2] for example in examples} == set(KINDS)
    for example in examples:
        assert world_reader.answer(text_of(example), world_reader.look(example.images[0])) == example.answer


def test_every_letter_is_right_equally_often_and_so_are_yes_and_no(suites):
    for name, questions in suites.items():
        by_options = {}
        for question in questions:
            if question.kind in ("option", "yes_no"):
                by_options.setdefault(tuple(question.options), Counter())[question.gold] += 1
        for golds in by_options.values():
            assert max(golds.values()) - min(golds.values()) <= len(SUITES[name].kinds)


def test_colours_do_not_follow_the_prior(suites):
    """The canonical colour of a shape is right as often as any other: one in eight."""
    asked = [q for q in suites["attributes"] + suites["mixed"] if q.groups["category"] == "color_choice"]
    from vcsd.world.words import COLORS, SHAPES

    canonical = dict(zip(SHAPES, COLORS, strict=False))
    hits = [q.options[q.gold] == canonical[text_of(q.example).split("?")[0].split()[-1]] for q in asked]
    assert len(hits) > 300
    assert abs(np.mean(hits) - 1 / 8) < 4 * np.sqrt(1 / 8 * 7 / 8 / len(hits))


def layout(example):
    """Where which shape lies, as read off the pixels."""
    return frozenset((place, shape) for place, (_, shape) in world_reader.look(example.images[0]).items())


def test_no_layout_of_a_test_occurs_in_training_or_dev():
    test = {layout(q.example) for q in build_suite("attributes", num=120)}
    dev = {layout(q.example) for q in build_suite("attributes", split="dev", num=120)}
    train = {layout(example) for example in training_examples(240, seed=5)}
    assert not test & train
    assert not test & dev
    assert not dev & train


def test_a_set_has_two_pictures_and_two_questions_each_right_for_one_picture(suites):
    sets = {}
    for question in suites["hallucination"]:
        groups = question.groups
        sets.setdefault((groups["l2-category"], groups["set"]), {})[groups["figure"], groups["question"]] = question
    assert len(sets) == NUM_QUESTIONS // 4
    for four in sets.values():
        assert {key: question.gold for key, question in four.items()} == {
            ("0", "0"): four["0", "0"].gold,
            ("0", "1"): other(four["0", "0"].gold),
            ("1", "0"): other(four["0", "0"].gold),
            ("1", "1"): four["0", "0"].gold,
        }
        assert text_of(four["0", "0"].example) == text_of(four["1", "0"].example)
        assert four["0", "0"].example.images[0].tobytes() != four["1", "0"].example.images[0].tobytes()
        assert four["0", "0"].example.images[0].tobytes() == four["0", "1"].example.images[0].tobytes()


def other(gold):
    return {"Yes": "No", "No": "Yes"}[gold]


def test_rotations_ask_about_one_picture_with_every_letter_right_once(suites):
    for name in ("small", "smaller"):
        by_picture = {}
        for question in suites[name]:
            by_picture.setdefault(question.id.rpartition("-")[0], []).append(question)
        for questions in by_picture.values():
            assert sorted(question.gold for question in questions) == ["A", "B", "C", "D"]
            assert len({question.example.images[0].tobytes() for question in questions}) == 1
            assert len({question.options[question.gold] for question in questions}) == 1


def test_larger_suites_have_larger_pictures_and_smaller_things(suites):
    sizes = {name: {q.example.images[0].size for q in questions} for name, questions in suites.items()}
    assert sizes["attributes"] == {(96, 96)}
    assert sizes["small"] == {(128, 128)}
    assert sizes["smaller"] == {(160, 160)}


def test_the_same_seed_gives_the_same_pixels_and_another_seed_others():
    first, again = (build_suite("arithmetic", seed=4, num=8) for _ in range(2))
    assert [text_of(q.example) for q in first] == [text_of(q.example) for q in again]
    assert [q.example.images[0].tobytes() for q in first] == [q.example.images[0].tobytes() for q in again]
    other_seed = build_suite("arithmetic", seed=5, num=8)
    assert [q.example.images[0].tobytes() for q in first] != [q.example.images[0].tobytes() for q in other_seed]


def test_an_unknown_suite_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"'atributes' is not a suite of the world. Did you mean 'attributes'"):
        build_suite("atributes")


@pytest.mark.parametrize("language", ["english", "chinese"])
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.answer_kind != "text"])
def test_a_true_reply_in_either_language_is_read_as_the_gold_answer(name, language):
    kind = KINDS[name]
    asked = ask(np.random.default_rng(7), kind, 60, 3, PARAMETERS, split="dev")
    slots = kind.reply_slots(asked.question, asked.facts)
    for i in range(60):
        question = as_question(kind, asked, i, PARAMETERS, 0, f"{name}-{i}", "any", {})
        reply = kind.replies[language].fill(slots, i)
        assert read_answer(reply, question.kind, question.options).found == question.gold, reply
