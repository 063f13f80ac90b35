"""Offloading changes where tensors live, and not one bit of an update."""

import copy
import gc

import pytest
import torch
from torch import nn

from vcsd.checkpoint import Contents, TensorFile, write_checkpoint
from vcsd.checkpoint.state import load_optimizer, load_weights, optimizer_state
from vcsd.host_teacher import HostTeacher
from vcsd.parallel import offload
from vcsd.parallel.offload import OffloadedAdamW, visits
from vcsd.teacher import Teacher, named_tensors

SETTINGS = [{"fused": True}, {"foreach": True}, {"foreach": False}, {"weight_decay": 0.0, "eps": 1e-6}]


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    monkeypatch.setattr(offload.buckets, "__defaults__", (100,))


def model():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 9), nn.LayerNorm(9), nn.Linear(9, 5), nn.Linear(5, 1))
    made[2].bias.requires_grad_(False)
    made.register_buffer("count", torch.zeros(1))
    return made


def optimizer_of(kind, student, **settings):
    decayed = [p for p in student.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in student.parameters() if p.requires_grad and p.dim() == 1]
    return kind([{"params": decayed}, {"params": others, "weight_decay": 0.0}], lr=0.01, **settings)


def step(student, optimizer, number):
    """One step. A layer has no gradient in some of them, and the learning rate changes."""
    inputs = torch.linspace(-1, 1, 12).reshape(3, 4).roll(number, 1)
    hidden = student[:2](inputs)
    loss = (student[2:](hidden) if number % 4 else hidden).square().sum()
    loss.backward()
    for group in optimizer.param_groups:
        group["lr"] = 0.01 / (1 + number)
    optimizer.step()
    optimizer.zero_grad()
    student.count.add_(1)


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_an_offloaded_adamw_is_torchs_bit_for_bit(settings):
    pairs = [
        (student := model(), optimizer_of(kind, student, **settings)) for kind in (torch.optim.AdamW, OffloadedAdamW)
    ]
    for number in range(20):
        for student, optimizer in pairs:
            step(student, optimizer, number)
        assert_same(*(named_tensors(student) for student, _ in pairs))
        states = [optimizer_state(optimizer, student) for student, optimizer in pairs]
        assert_same(states[0][0], states[1][0])
        assert states[0][1] == states[1][1]


@pytest.mark.parametrize("saved_by", [torch.optim.AdamW, OffloadedAdamW])
def test_either_resumes_what_the_other_saved(tmp_path, saved_by):
    student, others = model(), {torch.optim.AdamW: OffloadedAdamW, OffloadedAdamW: torch.optim.AdamW}
    optimizer = optimizer_of(saved_by, student, fused=True)
    for number in range(3):
        step(student, optimizer, number)
    moments, settings = optimizer_state(optimizer, student)
    contents = Contents({"student.safetensors": named_tensors(student), "optimizer.safetensors": moments}, {}, {})
    folder = write_checkpoint(tmp_path, 3, contents)
    resumed = model()
    other = optimizer_of(others[saved_by], resumed, fused=True)
    load_weights(resumed, TensorFile(folder / "student.safetensors"), "student")
    load_optimizer(other, resumed, TensorFile(folder / "optimizer.safetensors"), settings)
    for number in range(3, 8):
        for pair in ((student, optimizer), (resumed, other)):
            step(*pair, number)
    assert_same(named_tensors(student), named_tensors(resumed))
    assert_same(optimizer_state(optimizer, student)[0], optimizer_state(other, resumed)[0])


def test_moments_stay_where_they_are_between_steps():
    student = model()
    optimizer = optimizer_of(OffloadedAdamW, student)
    homes = []
    for number in range(1, 4):
        step(student, optimizer, number)
        homes.append({name: tensor.data_ptr() for name, tensor in optimizer_state(optimizer, student)[0].items()})
    assert homes[0] == homes[1] == homes[2]
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 7


def test_an_update_that_fails_leaves_all_parameters_in_the_optimizer(monkeypatch):
    student = model()
    optimizer = optimizer_of(OffloadedAdamW, student)
    groups = [list(group["params"]) for group in optimizer.param_groups]

    def fail(self):
        raise RuntimeError("no memory")

    monkeypatch.setattr(torch.optim.AdamW, "step", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        step(student, optimizer, 1)
    assert [list(map(id, group["params"])) for group in optimizer.param_groups] == [list(map(id, g)) for g in groups]


def test_visitors_return_changed_and_all_of_them():
    homes = [[torch.zeros(3), torch.ones(2)], [torch.full((2,), 2.0)], []]
    for visitors in visits(homes, torch.device("cpu")):
        for visitor in visitors:
            visitor.add_(10)
    assert [[tensor.tolist() for tensor in home] for home in homes] == [[[10.0] * 3, [11.0] * 2], [[12.0] * 2], []]


@pytest.mark.parametrize("kind", ["ema", "periodic", "fixed"])
def test_a_host_teacher_follows_bit_for_bit_and_scores_in_half_precision(kind):
    student = model()
    teachers = [make(student, kind, ema_rate=0.3, every=2) for make in (Teacher, HostTeacher)]
    optimizer = optimizer_of(torch.optim.AdamW, student)
    for number in range(1, 8):
        step(student, optimizer, number)
        for teacher in teachers:
            teacher.update()
        plain, offloaded = (named_tensors(teacher.weights) for teacher in teachers)
        assert_same(plain, offloaded)
        assert teachers[0].distance() == teachers[1].distance()
        scoring = named_tensors(teachers[1].module)
        for name, tensor in plain.items():
            expected = tensor if name == "count" else tensor.bfloat16()
            assert torch.equal(scoring[name], expected), name
            assert scoring[name].dtype == expected.dtype


def test_a_loaded_teacher_scores_after_a_refresh():
    student = model()
    teacher = HostTeacher(student)
    with torch.no_grad():
        for parameter in teacher.weights.parameters():
            parameter.add_(0.5)
    teacher.refresh()
    assert torch.equal(teacher.module[0].weight, teacher.weights[0].weight.bfloat16())
    plain = Teacher(student)
    plain.weights.load_state_dict(teacher.weights.state_dict())
    assert teacher.distance() == plain.distance() > 0


def test_a_student_that_is_its_own_teacher_needs_no_copies():
    student = model()
    teacher = HostTeacher(student, "current")
    teacher.update()
    teacher.refresh()
    assert teacher.module is student
    assert teacher.weights is None
    assert teacher.distance() == 0.0


def test_a_copied_student_does_not_share_its_teachers_memory():
    student = model()
    teacher = HostTeacher(student)
    before = copy.deepcopy(teacher.weights[0].weight)
    with torch.no_grad():
        student[0].weight.add_(1)
    assert torch.equal(teacher.weights[0].weight, before)


class LockedMemory:
    """Stands in for the CUDA runtime, and remembers what is page-locked."""

    def __init__(self, code=0):
        self.code, self.sizes = code, {}

    def cudaHostRegister(self, address, size, flags):
        assert address not in self.sizes, "memory can be locked only once"
        if not self.code:
            self.sizes[address] = size
        return self.code

    def cudaHostUnregister(self, address):
        del self.sizes[address]


@pytest.fixture
def memory(monkeypatch):
    made = LockedMemory()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: made)
    monkeypatch.setattr(offload, "_LOCKED_FROM", 1)
    return made


def test_memory_is_locked_as_long_as_it_is_used(memory):
    student = model()
    teacher, optimizer = HostTeacher(student), optimizer_of(OffloadedAdamW, student)
    for number in range(1, 3):
        step(student, optimizer, number)
        teacher.update()
    moments = [t for name, t in optimizer_state(optimizer, student)[0].items() if not name.endswith("/step")]
    expected = {t.data_ptr(): t.nbytes for t in (*teacher.weights.parameters(), *moments)}
    assert memory.sizes == expected
    del teacher, optimizer, moments
    gc.collect()
    assert memory.sizes == {}


def test_memory_that_cannot_be_locked_is_used_as_it_is(memory, caplog):
    memory.code = 2
    student = model()
    optimizer = optimizer_of(OffloadedAdamW, student)
    step(student, optimizer, 1)
    assert "Host memory cannot be page-locked (CUDA error 2)" in caplog.text
    assert optimizer_state(optimizer, student)[0]
