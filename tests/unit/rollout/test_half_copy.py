import torch

from tiny_groups import make_prompt
from tiny_models import build_model
from vcsd.host_teacher import HostTeacher
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.half_copy import HalfCopy
from vcsd.rollout.sampling import Sampling


def test_a_refreshed_copy_is_the_student_in_half_precision():
    student = build_model()
    half = HalfCopy(student)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(0.5)
        for buffer in student.buffers():
            buffer.add_(1)
    half.refresh()
    for mine, theirs in zip(half.module.parameters(), student.parameters(), strict=True):
        assert torch.equal(mine, theirs.bfloat16())
    for mine, theirs in zip(half.module.buffers(), student.buffers(), strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


def test_rollouts_are_drawn_from_the_copy():
    half = HalfCopy(build_model())
    prompt = make_prompt()
    drawn = TransformersEngine(half.module).sample([prompt], Sampling(max_new_tokens=4), num_rollouts=2, seed=0)
    assert len(drawn.rollouts) == 2


def test_no_weight_is_copied_in_the_students_own_type_first(monkeypatch):
    """At the start of a run, such copies would be the largest part of host memory."""
    copied = []
    deep_copy = torch.nn.Parameter.__deepcopy__
    monkeypatch.setattr(
        torch.nn.Parameter, "__deepcopy__", lambda self, memo: copied.append(self) or deep_copy(self, memo)
    )
    student = build_model()
    HalfCopy(student)
    assert not copied
    HostTeacher(student)
    assert len(copied) == len(list(student.parameters())), "once each: the weights that follow the student"
