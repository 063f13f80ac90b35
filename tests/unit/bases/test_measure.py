"""Measuring a base: contrast decoding equals greedy decoding on black pictures, and sight is counted per cell."""

from dataclasses import replace

import pytest
from PIL import Image

from vcsd.bases import measure
from vcsd.bases.measure import Speaker, kind_scores, share_right, sight
from vcsd.bases.tiny_models import build_model
from vcsd.bases.tokenizer import write_processor_files
from vcsd.models.processor import load_processor
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.examples import training_examples
from vcsd.world.questions.kind import describe, description
from vcsd.world.scenes import draw_scenes


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    processor = load_processor(write_processor_files(tmp_path_factory.mktemp("folder"), "qwen3_vl"))
    model = build_model("qwen3_vl", "tiny", seed=4)
    for parameter in model.parameters():  # with the stock initialisation the picture hardly matters
        parameter.data.mul_(2.5)
    return model, processor


def test_contrast_with_a_black_picture_is_greedy_on_black_pictures_only(parts):
    examples = training_examples(6, seed=8)
    black = [replace(each, images=[Image.new("RGB", each.images[0].size)]) for each in examples]
    greedy, contrast = Speaker(*parts), Speaker(*parts, uses_contrast=True)
    assert greedy.answers(black, longest=8) == contrast.answers(black, longest=8)
    assert greedy.answers(examples, longest=8) != contrast.answers(examples, longest=8)


class Parrot:
    """A speaker that says what it is told to."""

    def __init__(self, say):
        self.say = say

    def answers(self, examples, **settings):
        return [self.say(example) for example in examples]


def test_right_answers_score_100_and_those_of_others_do_not():
    examples = training_examples(26, seed=8)
    assert share_right(Parrot(lambda example: f"The answer is {example.answer}."), examples) == 100
    assert share_right(Parrot(lambda example: "The answer is A."), examples) < 50
    scores = kind_scores(Parrot(lambda example: "The answer is yes."), 26)
    assert scores["color"] == 0
    assert 20 < scores["is_color"] < 80
    assert scores["mean"] < 30


def test_sight_counts_things_named_in_their_cell(monkeypatch):
    small = PARAMETERS.changed(["sides=3,4,5"])
    scenes = {}

    def remember(rng, num, side, parameters, **settings):
        scenes[side] = draw_scenes(rng, num, side, parameters, **settings)
        return scenes[side]

    monkeypatch.setattr(measure, "draw_scenes", remember)

    def describe_truly(example):
        side = example.images[0].width // 32
        return description(side).fill(describe(scenes[side]), int(example.id))

    assert sight(Parrot(describe_truly), 5, "dev", small) == {"3": 100.0, "4": 100.0, "5": 100.0}
    nothing = sight(Parrot(lambda example: "no thing " * 25), 5, "dev", small)
    assert nothing == {"3": 0.0, "4": 0.0, "5": 0.0}
    shifted = sight(Parrot(lambda example: "no thing " + describe_truly(example)), 5, "dev", small)
    assert max(shifted.values()) < 30
