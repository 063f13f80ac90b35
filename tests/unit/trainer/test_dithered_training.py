"""A run with dither: passes in bfloat16 see its small updates, and it resumes exactly."""

import json

import pytest
import torch

from tiny_lora import lora_model
from tiny_models import build_model, rounded
from tiny_step import losses_of, make_trainer
from vcsd.checkpoint.state import optimizer_state
from vcsd.errors import ConfigError
from vcsd.models.freeze import freeze
from vcsd.teacher import Teacher, fingerprint, named_tensors, same_bits

SMALL = {"learning_rate": 2e-6, "warmup_steps": 0, "max_steps": 3}
"""The paper's learning rate."""

SAVES = {"save_strategy": "steps", "save_steps": 2}


def make(folder, *, dither=True, model=None, offload=False, monitors=(), **arguments):
    given = {"model": rounded(build_model()) if model is None else model, "monitors": monitors}
    return make_trainer(folder, dither=dither, offload=offload, arguments={"bf16": True, **arguments}, **given)


def words(model):
    """The weights as a pass in bfloat16 sees them."""
    return {name: weight.detach().bfloat16() for name, weight in model.named_parameters()}


def flat(weights):
    return torch.cat([weight.detach().double().flatten() for weight in weights.values()])


def reached(trainer):
    moments, _ = optimizer_state(trainer.optimizer, trainer.model)
    tensors = {"student": named_tensors(trainer.model), "teacher": named_tensors(trainer.teacher.weights)}
    return {name: fingerprint(dict(sorted(each.items()))) for name, each in {**tensors, "moments": moments}.items()}


def test_passes_see_updates_that_are_rounded_away_without_dither(tmp_path):
    num_changed, shares_seen = {}, {}
    for dither in (False, True):
        trainer = make(tmp_path / str(dither), dither=dither, **SMALL)
        before, seen_before = flat(named_tensors(trainer.model)), flat(words(trainer.model))
        trainer.train()
        moves, seen = flat(named_tensors(trainer.model)) - before, flat(words(trainer.model)) - seen_before
        num_changed[dither] = int(seen.count_nonzero())
        shares_seen[dither] = float(seen @ moves / (moves @ moves))
    assert num_changed[True] > 2 * num_changed[False]
    assert shares_seen[False] < 0.1
    assert shares_seen[True] == pytest.approx(1, abs=0.1)


def test_the_rounded_student_is_that_of_the_folder_and_the_teacher_starts_equal(tmp_path):
    trainer, base = make(tmp_path), rounded(build_model())
    assert same_bits(words(trainer.model), words(base))
    assert not same_bits(named_tensors(trainer.model), named_tensors(base))
    assert same_bits(named_tensors(trainer.teacher.weights), named_tensors(trainer.model))
    assert trainer.content == make(tmp_path, dither=False).content


def test_a_frozen_part_gets_no_offsets(tmp_path):
    model = rounded(build_model())
    freeze(model, "vision")
    frozen = {name: weight for name, weight in model.named_parameters() if not weight.requires_grad}
    before = fingerprint(frozen)
    make(tmp_path, model=model)
    assert frozen
    assert fingerprint(frozen) == before


@pytest.mark.parametrize("offload", [False, True])
def test_a_resumed_run_is_the_uninterrupted_run(tmp_path, offload):
    whole = make(tmp_path / "whole", offload=offload, max_steps=4)
    whole.train()
    make(tmp_path / "parts", offload=offload, max_steps=2, **SAVES).train()
    resumed = make(tmp_path / "parts", offload=offload, max_steps=4, **SAVES)
    resumed.train("auto")
    assert reached(resumed) == reached(whole)
    assert losses_of(resumed) == losses_of(whole)


@pytest.mark.parametrize(("before", "now"), [(False, True), (True, False)])
def test_a_run_does_not_resume_with_dither_switched_on_or_off(tmp_path, before, now):
    make(tmp_path, dither=before, max_steps=2, **SAVES).train()
    was, is_now = (True if value else None for value in (before, now))
    with pytest.raises(ConfigError, match=f"belongs to another run: dither was {was} and is now {is_now}. Restore"):
        make(tmp_path, dither=now, max_steps=4, **SAVES).train("auto")


def test_dither_is_refused_where_it_would_have_no_effect(tmp_path):
    with pytest.raises(ConfigError, match=r"dither=True has no effect, because args.bf16 is False: .* or dither=False"):
        make_trainer(tmp_path, dither=True)
    with pytest.raises(ConfigError, match=r"dither=True has no effect with LoRA: .* Set dither=False"):
        make(tmp_path, model=lora_model(dtype=torch.bfloat16))


def test_dither_that_changes_nothing_is_said(tmp_path, caplog):
    model = build_model()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.full_like(weight, 0.3))  # no bfloat16 number
    make(tmp_path, model=model)
    assert "model.dither = true changes nothing: no trained weight is a bfloat16 number." in caplog.text


@pytest.mark.parametrize("dither", [False, True])
def test_the_settings_of_a_run_say_whether_it_has_offsets(tmp_path, dither):
    make(tmp_path, dither=dither, monitors=None, max_steps=1).train()
    model = json.loads((tmp_path / "config.json").read_text()).get("model", {})
    assert model.get("dither", False) is dither


def test_a_teacher_without_offsets_is_refused(tmp_path):
    model = rounded(build_model())
    with pytest.raises(ConfigError, match=r"a teacher was built without the offsets of dither\. Leave"):
        make_trainer(tmp_path, model=model, dither=True, teacher=Teacher(model), arguments={"bf16": True})
