"""On a GPU: moments and teacher in host memory give bitwise the same update, and take less of the device."""

import pytest
import torch
from torch import nn

from tiny_step import losses_of, make_trainer
from vcsd.host_teacher import HostTeacher
from vcsd.parallel import offload
from vcsd.parallel.offload import OffloadedAdamW
from vcsd.teacher import Teacher, named_tensors, same_bits

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def trained(kind, make_teacher, num_steps=20):
    """A model of 40 MB, its teacher and the moments after some steps."""
    torch.manual_seed(0)
    student = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(10)))
    teacher = make_teacher(student)
    student.cuda()
    teacher.module.cuda()
    if make_teacher is HostTeacher:
        teacher.refresh()
    optimizer = kind(student.parameters(), lr=1e-3, fused=True)
    inputs = torch.randn(8, 1024, generator=torch.Generator().manual_seed(1)).cuda()
    for _ in range(num_steps):
        student(inputs).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        teacher.update()
    moments = {
        f"{index}/{name}": optimizer.state[parameter][name].cpu()
        for index, parameter in enumerate(student.parameters())
        for name in ("exp_avg", "exp_avg_sq")
    }
    weights = {name: tensor.cpu() for name, tensor in named_tensors(teacher.weights).items()}
    return student, optimizer, teacher, moments, weights


def test_an_update_with_offload_is_the_same_bit_for_bit(monkeypatch):
    monkeypatch.setattr(offload.buckets, "__defaults__", (2**23,))
    plain, _, teacher, moments, weights = trained(torch.optim.AdamW, Teacher)
    student, optimizer, host_teacher, host_moments, host_weights = trained(OffloadedAdamW, HostTeacher)
    assert same_bits(named_tensors(plain), named_tensors(student))
    assert same_bits(moments, host_moments)
    assert same_bits(weights, host_weights)
    assert teacher.distance() == host_teacher.distance()
    first = optimizer.state[next(student.parameters())]["exp_avg"]
    assert first.device.type == "cpu"
    assert first.is_pinned()


def test_a_run_with_offload_trains(tmp_path):
    trainer = make_trainer(tmp_path, offload=True, arguments={"use_cpu": False, "bf16": True, "max_steps": 4})
    trainer.train()
    assert len(losses_of(trainer)) == 4
    assert next(trainer.teacher.module.parameters()).device.type == "cuda"
    assert next(trainer.teacher.weights.parameters()).device.type == "cpu"
