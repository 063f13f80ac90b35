"""A step that ruins the weights stops the run before it reaches the teacher or a checkpoint."""

import json
import math

import pytest
import torch

from tiny_models import build_model
from tiny_step import make_trainer
from vcsd.checkpoint import checkpoints_of
from vcsd.errors import RunError
from vcsd.teacher import fingerprint, named_tensors
from vcsd.trainer.finite import ruined

SAVES = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, "max_steps": 6, "warmup_steps": 0}


def set_weights(module, value):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)


class Before:
    """A monitor that changes something after a step."""

    def __init__(self, step, change):
        self.step, self.change = step, change

    def observe(self, seen):
        if seen.step == self.step:
            self.change()
        return {}

    def state(self):
        return {}


def test_an_update_that_overflows_reaches_neither_teacher_nor_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path, arguments={**SAVES, "learning_rate": 1e38})
    before = fingerprint(named_tensors(trainer.teacher.module))
    with pytest.raises(
        RunError, match=r"the update of step 1 ruined the student: .* No checkpoint is known to be good"
    ):
        trainer.train()
    assert fingerprint(named_tensors(trainer.teacher.module)) == before
    assert trainer.teacher.num_updates == 0
    assert checkpoints_of(tmp_path) == {}


def test_a_teacher_that_overflows_stops_the_run_before_it_is_saved(tmp_path):
    trainer = make_trainer(tmp_path, arguments=SAVES)
    follow = trainer.teacher.update

    def overflow():
        follow()
        if trainer.teacher.num_updates == 2:
            set_weights(trainer.teacher.module, math.inf)

    trainer.teacher.update = overflow
    with pytest.raises(RunError, match=r"the update of step 2 ruined the teacher: .* Lower args.learning_rate"):
        trainer.train()
    assert list(checkpoints_of(tmp_path)) == [1]


@pytest.mark.parametrize("part", ["student", "teacher", "moments"])
def test_what_is_not_finite_is_never_saved(tmp_path, part):
    trainer = make_trainer(tmp_path, arguments=SAVES)

    def spoil():
        if part == "moments":
            next(iter(trainer.optimizer.state.values()))["exp_avg_sq"].fill_(math.inf)
        else:
            set_weights(trainer.model if part == "student" else trainer.teacher.module, math.nan)

    trainer.monitors = [Before(3, spoil)]
    with pytest.raises(RunError, match=r"step 3 cannot be saved: .* checkpoint-2 is the last one known to be good"):
        trainer.train()
    assert max(checkpoints_of(tmp_path)) == 2


def test_pruning_keeps_the_last_checkpoint_whose_weights_gave_a_finite_loss(tmp_path):
    """Weights of 1e30 are finite, and yet no loss comes out of them."""
    trainer = make_trainer(tmp_path, arguments=SAVES)
    trainer.monitors = [Before(3, lambda: set_weights(trainer.model, 1e30))]
    with pytest.raises(
        RunError, match=r"3 steps in a row .* checkpoint-2 is the last one known to be good. Move later"
    ):
        trainer.train()
    assert list(checkpoints_of(tmp_path)) == [2, 5]
    assert json.loads((tmp_path / "checkpoint-5" / "provenance.json").read_text())["proven_step"] == 2


def test_a_model_that_comes_ruined_is_not_saved_either(tmp_path):
    model = build_model()
    set_weights(model, math.nan)
    with pytest.raises(RunError, match=r"step 1 cannot be saved: .* in student.safetensors"):
        make_trainer(tmp_path, model=model, arguments=SAVES).train()
    assert checkpoints_of(tmp_path) == {}


def test_large_weights_whose_squares_overflow_are_finite():
    assert ruined({"large": torch.full((1000,), 3e38), "counts": torch.ones(3, dtype=torch.int64)}) == []
    broken = {"nan": math.nan, "infinite": -math.inf}
    for name, value in broken.items():
        assert ruined({"fine": torch.ones(2), name: torch.tensor([0.0, value])}) == [name]
