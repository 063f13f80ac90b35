"""Until it is sharded, the teacher of an FSDP2 run uses the student's memory; afterwards each has its own shards."""

import pytest
import torch
import torch.distributed as dist

from tiny_models import build_model
from tiny_step import make_trainer
from vcsd.parallel.sharding import local_part, shard
from vcsd.teacher import Teacher


@pytest.fixture
def one_rank(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def addresses(model):
    return [local_part(weight.detach()).untyped_storage().data_ptr() for weight in model.parameters()]


@pytest.mark.parametrize("tied", [True, False])
def test_a_sharded_run_never_holds_the_weights_twice_and_the_teacher_moves_alone(one_rank, tied):
    student = build_model(tie_word_embeddings=tied)
    teacher = Teacher(student, is_alias=True).module
    assert addresses(teacher) == addresses(student)
    assert not any(mine is theirs for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True))
    before = [weight.detach().clone() for weight in student.parameters()]
    for module in (student, teacher):
        shard(module, torch.device("cpu"), None)
    assert not set(addresses(teacher)) & set(addresses(student))
    with torch.no_grad():
        for weight in teacher.parameters():
            local_part(weight).add_(1.0)
    assert all(torch.equal(local_part(weight), old) for weight, old in zip(student.parameters(), before, strict=True))


def test_without_shards_the_teacher_has_its_own_memory_from_the_start(tmp_path):
    trainer = make_trainer(tmp_path)
    assert not set(addresses(trainer.teacher.module)) & set(addresses(trainer.model))
