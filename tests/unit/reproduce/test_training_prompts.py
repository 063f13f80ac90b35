"""Training prompts: what each set contains, and that the ordinary set is the one that earlier results used."""

import json
from pathlib import Path

import numpy as np
import pytest

from vcsd.reproduce.failures.failure_settings import ASKED_IN_TRAINING, HELD_OUT, PRIOR_HELPS
from vcsd.reproduce.training_prompts import FILE, PROMPT_SETS, prompts_folder, write_prompts
from vcsd.types import message_texts
from vcsd.views.hint import HINT
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.examples import training_examples
from vcsd.world.questions.kinds import KINDS, ask

NUM = 130


def asked(which, world=PARAMETERS):
    return PROMPT_SETS[which].examples(NUM, world)


def test_the_ordinary_set_is_that_of_earlier_results():
    ordinary, before = asked("ordinary"), training_examples(NUM, 0)
    assert [each.id for each in ordinary] == [each.id for each in before]
    assert {each.category for each in ordinary} == set(KINDS)


def test_told_prompts_are_the_ordinary_ones_with_their_answer_in_the_text():
    for told, plain in zip(asked("told"), asked("ordinary"), strict=True):
        (text,), (before,) = message_texts(told.prompt[0]), message_texts(plain.prompt[0])
        assert text == before + HINT.format(answer=plain.answer)


def test_color_prompts_hold_out_places_and_numbers():
    assert {each.category for each in asked("colors")} == set(ASKED_IN_TRAINING)
    assert len(ASKED_IN_TRAINING) == 5
    assert len(HELD_OUT) == 8
    assert {*ASKED_IN_TRAINING, *HELD_OUT} == set(KINDS)


def test_usual_prompts_are_as_skewed_as_the_prior():
    yes = {
        which: np.mean([each.answer == "yes" for each in asked(which) if each.category in ("is_above", "is_beside")])
        for which in ("ordinary", "usual")
    }
    assert yes["usual"] > yes["ordinary"] + 0.1


@pytest.mark.parametrize("name", KINDS)
def test_the_prior_is_right_in_about_nine_of_ten_questions_of_the_kinds_it_helps(name):
    kind, rng = KINDS[name], np.random.default_rng(0)
    world = PARAMETERS.changed(["canonical_share=0.9", "yes_share=0.9"])
    found = ask(rng, kind, 1000, 3, world, split="train", is_skewed=True)
    surely = PARAMETERS.changed(["canonical_share=1", "yes_share=1"])
    true = kind.conclude({**found.question, **found.facts})["a"]
    usual = kind.conclude({**found.question, **kind.imagine(rng, found.question, 3, surely)})["a"]
    share = float((true == usual).mean())
    assert 0.86 < share < 0.95 if name in PRIOR_HELPS else share < 0.6


def test_every_set_has_a_folder_of_its_own_and_is_written_as_rows(tmp_path):
    folders = {which: prompts_folder(tmp_path, 8, which) for which in PROMPT_SETS}
    assert len(set(folders.values())) == len(folders)
    assert folders["ordinary"].name == f"prompts-8-{PARAMETERS.digest()}"
    write_prompts(folders["told"], 8, which="told")
    rows = [json.loads(line) for line in (folders["told"] / FILE).read_text().splitlines()]
    assert all("[Reference answer]" in row["question"] for row in rows)


def test_an_interrupt_while_a_picture_is_written_leaves_no_part_of_it(tmp_path, monkeypatch):
    replace = Path.replace

    def interrupted(path, target):
        if target.name == "00003.png":
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_prompts(tmp_path, NUM)
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["00000.png", "00001.png", "00002.png"]
