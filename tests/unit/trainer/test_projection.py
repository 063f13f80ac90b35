import pytest
import torch

from tiny_models import build_model
from tiny_step import make_trainer
from vcsd.models.freeze import freeze
from vcsd.trainer.projection import Sizes, Speed, Step, measure_speed


def test_the_checkpoint_is_as_large_as_was_said(tmp_path):
    """Within a percent: the files hold headers, generators and JSON too."""
    trainer = make_trainer(tmp_path, arguments={"max_steps": 2, "save_strategy": "steps", "save_steps": 2})
    said = Sizes.of(trainer.model, has_teacher=True, has_half_copy=False).checkpoint_bytes
    trainer.train()
    assert trainer.contents().num_bytes == pytest.approx(said, rel=0.01)
    written = sum(path.stat().st_size for path in (tmp_path / "checkpoint-2").iterdir())
    assert written == pytest.approx(said, rel=0.02)


def test_frozen_parts_have_neither_gradient_nor_moments():
    model = build_model()
    whole = Sizes.of(model, has_teacher=True, has_half_copy=True)
    freeze(model, "vision")
    part = Sizes.of(model, has_teacher=True, has_half_copy=True)
    frozen = whole.num_trained - part.num_trained
    assert frozen > 0
    assert whole.memory_bytes - part.memory_bytes == 12 * frozen
    assert whole.checkpoint_bytes - part.checkpoint_bytes == 8 * frozen


def test_a_student_that_is_its_own_teacher_needs_no_second_copy():
    with_teacher, alone = (Sizes(100, 100, has_teacher=has) for has in (True, False))
    assert with_teacher.memory_bytes - alone.memory_bytes == 400
    assert with_teacher.checkpoint_bytes - alone.checkpoint_bytes == 400


def test_time_grows_with_tokens_and_falls_with_speed():
    step, slow, fast = Step(32, 8, 1000, 300), Speed(1e12, 1e10), Speed(2e12, 2e10)
    assert step.seconds(10**9, slow) == pytest.approx(2 * step.seconds(10**9, fast))
    assert Step(64, 8, 1000, 300).seconds(10**9, slow) > step.seconds(10**9, slow)


def test_a_devices_speed_is_a_positive_number():
    speed = measure_speed(torch.device("cpu"), torch.float32)
    assert speed.flops > 1e6
    assert speed.bandwidth > 1e6
