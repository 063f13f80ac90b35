"""Things, sprites, scenes and questions: true answers, usual and unusual looks, the same every time."""

import random
import unicodedata
from collections import Counter

import numpy as np
import pytest
import torch

from tiny_language import plain_sprites
from vcsd.emoji.captions import conversation, describe, fact
from vcsd.emoji.emoji_scenes import FEWEST, MOST, PICTURE, ScenePainter, draw_scene
from vcsd.emoji.questions import (
    KEY_WORDS,
    PROMPT_SHARES,
    SUITES,
    asked_for,
    draw_question,
    prompt_suites,
    read_key,
)
from vcsd.emoji.sprites import NATIVE, emoji_sprites, load_sprites, recolored, save_sprites
from vcsd.emoji.things import COLORS, THINGS
from vcsd.errors import ConfigError


@pytest.fixture(scope="module")
def painter():
    return ScenePainter(plain_sprites())


def test_there_are_eighty_things_with_names_of_one_word_from_unicode():
    assert len(THINGS) == 80
    for name, thing in THINGS.items():
        assert name.isalpha()
        assert name.islower()
        assert unicodedata.name(thing.emoji)
        assert thing.usual is None or thing.usual in COLORS


def test_no_word_is_both_a_name_and_another_answer():
    words = [word for kind, words in KEY_WORDS.items() for word in words]
    assert [word for word, num in Counter(words).items() if num > 1] == []


def test_usual_scenes_have_usual_colours_and_rows_only():
    rng = random.Random(0)
    for _ in range(300):
        scene = draw_scene(rng)
        assert FEWEST <= len(scene.things) <= MOST
        assert len({placed.cell for placed in scene.things}) == len(scene.things)
        for placed in scene.things:
            thing = placed.thing
            assert thing.usual is None or placed.color == thing.usual
            assert thing.usual_row is None or placed.cell // 3 == thing.usual_row
            assert placed.tint in (NATIVE, list(COLORS).index(placed.color) if placed.color else NATIVE)


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite.startswith(("unusual", "place", "row_unusual"))])
def test_unusual_questions_contradict_what_is_suggested(suite):
    for number in range(50):
        asked = draw_question("dev", suite, number)
        assert asked.suggested is not None
        assert asked.key != asked.suggested


@pytest.mark.parametrize("suite", SUITES)
def test_the_key_is_read_from_the_true_sentence(suite):
    for number in range(60):
        asked = draw_question("test", suite, number)
        assert asked.asks == asked_for(suite)
        assert read_key(asked.asks, asked.sentence) == asked.key


def test_questions_depend_on_split_suite_and_number_alone():
    assert draw_question("dev", "count", 3) == draw_question("dev", "count", 3)
    texts = {split: [draw_question(split, "name", i).scene for i in range(20)] for split in ("train", "dev", "test")}
    assert texts["dev"] != texts["test"]
    assert texts["train"] != texts["dev"]


def test_presence_is_asked_about_things_that_are_there_as_often_as_not():
    keys = Counter(draw_question("dev", "presence", number).key for number in range(400))
    assert 150 < keys["yes"] < 250


def test_prompts_never_ask_about_things_that_must_stay_unprompted():
    suites = prompt_suites(1000)
    assert set(suites) == set(PROMPT_SHARES)
    assert sum(PROMPT_SHARES.values()) == pytest.approx(1)
    names = {t.name for t in THINGS.values() if t.group in ("unprompted", "unnamed")}
    for number, suite in enumerate(suites[:300]):
        if asked_for(suite) == "color":
            assert draw_question("train", suite, number).text.split()[-1].rstrip("?") not in names


def test_captions_are_true_and_never_mention_the_colour_of_an_unnamed_thing():
    rng = random.Random(1)
    unnamed = {t.name for t in THINGS.values() if t.group == "unnamed"}
    for _ in range(300):
        scene = draw_scene(rng)
        text = describe(scene)
        for placed in scene.things:
            assert placed.thing.name in text
            mention = f"{placed.color} {placed.thing.name}"
            assert (mention in text) == placed.thing.is_named_with_color
        for question, _answer in conversation(rng, scene):
            assert not any(question.startswith(f"What color is the {name}?") for name in unnamed)


def test_facts_state_the_usual_colour():
    rng = random.Random(2)
    for _ in range(50):
        _, answer = fact(rng)
        (name,) = [name for name in THINGS if name in answer.lower().replace(".", "").split()]
        assert read_key("color", answer) == THINGS[name].usual


def test_recolouring_keeps_white_and_changes_colours():
    picture = np.ones((2, 2, 4), np.float32)
    picture[0, 0, :3] = (0.9, 0.1, 0.1)
    blue = recolored(picture, COLORS["blue"])
    assert blue[0, 0, 2] > blue[0, 0, 0]
    assert (blue[1, 1, :3] == 1).all()


def test_pictures_are_the_same_every_time_and_show_what_is_in_the_scene(painter):
    asked = draw_question("dev", "unusual_prompted", 0)
    one, again, other = (painter.picture(asked.scene, seed) for seed in (5, 5, 6))
    assert one.size == (PICTURE, PICTURE)
    assert one.tobytes() == again.tobytes() != other.tobytes()
    placed = next(placed for placed in asked.scene.things if placed.color == asked.key)
    row, column = divmod(placed.cell, 3)
    middle = np.asarray(one)[48 * row + 20 : 48 * row + 28, 48 * column + 20 : 48 * column + 28].mean((0, 1))
    distances = {name: np.abs(middle - np.array(rgb)).sum() for name, rgb in COLORS.items()}
    assert min(distances, key=distances.get) == asked.key


def test_an_empty_cell_shows_only_ground(painter):
    sprites, tints = torch.full((1, 9), -1), torch.full((1, 9), NATIVE)
    pixels = painter.paint(sprites, tints, torch.Generator().manual_seed(0))
    assert pixels.std((2, 3)).max() < 0.03


def test_sprites_survive_a_file_and_other_files_are_refused(tmp_path):
    sprites = plain_sprites()
    assert len({sprites[i, NATIVE].numpy().tobytes() for i in range(len(sprites))}) == len(THINGS)
    save_sprites(sprites, tmp_path / "s.safetensors")
    assert torch.equal(load_sprites(tmp_path / "s.safetensors"), sprites)
    save_sprites(sprites[:3], tmp_path / "few.safetensors")
    with pytest.raises(ConfigError, match="Write it again"):
        load_sprites(tmp_path / "few.safetensors")
    with pytest.raises(ConfigError, match=r"vcsd\.emoji\.sprites"):
        load_sprites(tmp_path / "none.safetensors")
    with pytest.raises(ConfigError, match="fonts-noto-color-emoji"):
        emoji_sprites(tmp_path / "none.ttf")
