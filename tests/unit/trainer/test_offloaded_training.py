"""A run with offload: the same optimizer, a teacher that scores in half precision, and exact resume."""

import pytest
import torch

from tiny_models import build_model
from tiny_step import losses_of, make_trainer
from vcsd.checkpoint.state import optimizer_state
from vcsd.errors import ConfigError
from vcsd.host_teacher import HostTeacher
from vcsd.models.freeze import freeze
from vcsd.parallel.offload import OffloadedAdamW
from vcsd.projection.project import Sizes
from vcsd.teacher import Teacher, fingerprint, named_tensors


def reached(trainer):
    """Hashes of everything that an update changes."""
    moments, _ = optimizer_state(trainer.optimizer, trainer.model)
    tensors = {"student": named_tensors(trainer.model), "teacher": named_tensors(trainer.teacher.weights)}
    return {name: fingerprint(dict(sorted(each.items()))) for name, each in {**tensors, "moments": moments}.items()}


def make(folder, model=None, *, offload, teacher=None, **arguments):
    model = build_model() if model is None else model
    given = {} if teacher is None else {"teacher": teacher(model)}
    return make_trainer(folder, model=model, offload=offload, arguments={"bf16": True, **arguments}, **given)


def test_offloaded_moments_change_no_bit_of_a_run(tmp_path):
    """With the same teacher, so that the targets are the same."""
    trainers = [make(tmp_path / str(offload), offload=offload, teacher=Teacher) for offload in (False, True)]
    for trainer in trainers:
        trainer.train()
    assert isinstance(trainers[1].optimizer.optimizer, OffloadedAdamW)
    assert not isinstance(trainers[0].optimizer.optimizer, OffloadedAdamW)
    assert reached(trainers[0]) == reached(trainers[1])
    assert losses_of(trainers[0]) == losses_of(trainers[1])


def test_a_run_with_a_host_teacher_is_nearly_the_run_without_and_resumes_exactly(tmp_path):
    saves = {"save_strategy": "steps", "save_steps": 2}
    plain = make(tmp_path / "plain", offload=False)
    whole = make(tmp_path / "whole", offload=True, **saves)
    for trainer in (plain, whole):
        trainer.train()
    assert isinstance(whole.teacher, HostTeacher)
    assert {p.dtype for p in whole.teacher.module.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in whole.teacher.weights.parameters()} == {torch.float32}
    assert losses_of(whole) == pytest.approx(losses_of(plain), rel=0.1)
    (tmp_path / "whole" / "checkpoint-4").rename(tmp_path / "later")
    resumed = make(tmp_path / "whole", offload=True, **saves)
    resumed.train("auto")
    assert reached(resumed) == reached(whole)
    assert losses_of(resumed) == losses_of(whole)
    distances = [trainer.state.log_history[-2]["teacher_distance"] for trainer in (whole, resumed)]
    assert distances[0] == distances[1] > 0


def test_a_run_may_switch_offload_on_when_it_resumes(tmp_path):
    saves = {"save_strategy": "steps", "save_steps": 2}
    make(tmp_path, offload=False, max_steps=2, **saves).train()
    resumed = make(tmp_path, offload=True, **saves)
    resumed.train("auto")
    assert resumed.state.global_step == 4
    assert resumed.teacher.num_updates == 4


def test_a_frozen_part_needs_no_moments_and_stays(tmp_path):
    model = build_model()
    freeze(model, "vision")
    frozen = {name: weight for name, weight in model.named_parameters() if not weight.requires_grad}
    trainer = make(tmp_path, model, offload=True, max_steps=2)
    before = fingerprint(frozen)
    trainer.train()
    assert fingerprint(frozen) == before
    moments, _ = optimizer_state(trainer.optimizer, model)
    assert frozen
    assert not {name.rpartition("/")[0] for name in moments} & frozen.keys()


def test_offload_without_bfloat16_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"offload=True keeps a bfloat16 teacher .* Set args.bf16=True"):
        make_trainer(tmp_path, offload=True)


def test_the_projection_counts_what_is_where():
    model = build_model()
    plain, offloaded = (
        Sizes.of(model, has_teacher=True, has_half_copy=True, is_offloaded=offload) for offload in (False, True)
    )
    count = plain.num_parameters
    assert plain.memory_bytes - offloaded.memory_bytes == 10 * count  # moments 8, and half of the teacher
    assert (plain.host_bytes, offloaded.host_bytes) == (0, 12 * count)
    assert plain.checkpoint_bytes == offloaded.checkpoint_bytes
