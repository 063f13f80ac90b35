import copy

import pytest
import torch
from torch import nn

from vcsd.errors import ConfigError
from vcsd.teacher import KINDS, Teacher, fingerprint, named_tensors, same_bits


def student_of(value: float = 0.0, **settings) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4, **settings), nn.BatchNorm1d(4, affine=False, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def move(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
def test_k_updates_towards_a_constant_match_the_closed_form(rate):
    """teacher_k = student - (student - teacher_0) (1 - rate)^k: wrong if the rate were the teacher's weight."""
    student = student_of(2.0, dtype=torch.float64)
    teacher = Teacher(student, "ema", ema_rate=rate)
    move(student, 5.0)
    for k in range(1, 12):
        teacher.update()
        expected = 5.0 - 3.0 * (1 - rate) ** k
        for parameter in teacher.module.parameters():
            torch.testing.assert_close(parameter, torch.full_like(parameter, expected), rtol=1e-13, atol=0)


def test_an_average_at_the_papers_rate_and_learning_rate_moves_in_float32_and_would_not_in_bfloat16():
    torch.manual_seed(0)
    weights, step = 0.02 * torch.randn(10_000), 2e-6
    student = nn.Linear(100, 100, bias=False)
    with torch.no_grad():
        student.weight.copy_(weights.view(100, 100))
    teacher = Teacher(student, "ema", ema_rate=0.05)
    with torch.no_grad():
        student.weight.add_(step)
    teacher.update()
    moved = (teacher.module.weight != weights.view(100, 100)).float().mean()
    half = weights.bfloat16()
    moved_half = (half.clone().lerp_((weights + step).bfloat16(), 0.05) != half).float().mean()
    assert moved > 0.99
    assert moved_half < 0.01


def test_a_fixed_teacher_stays_and_a_current_one_is_the_student():
    student = student_of(1.0)
    fixed, current = Teacher(student, "fixed"), Teacher(student, "current")
    move(student, 2.0)
    fixed.update()
    current.update()
    assert all((parameter == 1.0).all() for parameter in fixed.module.parameters())
    assert current.module is student
    assert current.weights is None
    assert fixed.weights is fixed.module


def test_a_periodic_teacher_becomes_the_student_every_few_updates():
    student = student_of(0.0)
    teacher = Teacher(student, "periodic", every=3)
    seen = []
    for value in range(1, 8):
        move(student, float(value))
        teacher.update()
        seen.append(teacher.module[0].weight[0, 0].item())
    assert seen == [0, 0, 3, 3, 3, 6, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_a_teacher_starts_equal_to_the_student_and_without_distance(kind):
    torch.manual_seed(0)
    student = nn.Linear(5, 5)
    teacher = Teacher(student, kind)
    assert fingerprint(named_tensors(teacher.module)) == fingerprint(named_tensors(student))
    assert teacher.distance() == 0.0


def test_a_copy_that_differs_is_refused(monkeypatch):
    def careless(module, shared):
        other = copy.copy(module)
        other._parameters = {"weight": nn.Parameter(torch.zeros_like(module.weight)), "bias": module.bias}
        return other

    monkeypatch.setattr(copy, "deepcopy", careless)
    with pytest.raises(AssertionError, match="not the student's"):
        Teacher(nn.Linear(3, 3))


def test_a_teacher_is_in_eval_mode_without_gradients_while_the_student_trains():
    student = student_of().train()
    teacher = Teacher(student)
    assert not any(module.training for module in teacher.module.modules())
    assert not any(parameter.requires_grad for parameter in teacher.module.parameters())
    assert student.training
    assert all(parameter.requires_grad for parameter in student.parameters())


@pytest.mark.parametrize(("kind", "follows"), [("ema", True), ("periodic", True), ("fixed", False)])
def test_buffers_follow_where_weights_do(kind, follows):
    student = student_of(1.0).train()
    teacher = Teacher(student, kind, every=1)
    student(torch.randn(8, 3))
    teacher.update()
    same = torch.equal(teacher.module[1].running_mean, student[1].running_mean)
    assert same == follows


def test_buffers_of_a_periodic_teacher_wait_for_its_weights():
    student = student_of(1.0).train()
    teacher = Teacher(student, "periodic", every=2)
    before = teacher.module[1].running_mean.clone()
    for expected_same in (True, False):
        student(torch.randn(8, 3))
        teacher.update()
        assert torch.equal(teacher.module[1].running_mean, before) == expected_same
    assert torch.equal(teacher.module[1].running_mean, student[1].running_mean)


def test_frozen_parameters_have_no_average_and_may_be_half_precision():
    student = nn.ModuleList([nn.Linear(2, 2).bfloat16().requires_grad_(False), nn.Linear(2, 2)])
    teacher = Teacher(student)
    with torch.no_grad():
        student[1].weight.add_(1.0)
    teacher.update()
    assert teacher.module[0].weight.dtype == torch.bfloat16
    assert torch.equal(teacher.module[0].weight, student[0].weight)
    assert teacher.distance() > 0


def test_a_trained_parameter_in_half_precision_is_refused():
    with pytest.raises(ConfigError, match="Load the student in float32"):
        Teacher(nn.Linear(2, 2).bfloat16())


@pytest.mark.parametrize("settings", [{"ema_rate": 0.0}, {"ema_rate": 1.5}, {"kind": "periodic", "every": 0}])
def test_a_rate_or_a_period_that_updates_nothing_is_refused(settings):
    (name,) = {"ema_rate", "every"} & set(settings)
    with pytest.raises(ConfigError, match=f"{name} = {settings[name]} "):
        Teacher(nn.Linear(2, 2), **settings)


def test_an_unknown_kind_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'fixed'"):
        Teacher(nn.Linear(1, 1), "fixd")


def test_distance_is_relative_to_the_student():
    student = student_of(1.0)
    teacher = Teacher(student, "fixed")
    move(student, 2.0)
    assert teacher.distance() == pytest.approx(0.5)


def test_equal_weights_have_no_distance_even_if_all_are_zero():
    """Of adapters, the factor that is trained is zero until the first update."""
    student = student_of(0.0)
    teacher = Teacher(student, "fixed")
    assert teacher.distance() == 0.0
    move(teacher.module, 1.0)
    assert teacher.distance() == float("inf"), "a student of zeros is no reason to call its teacher equal"


def test_a_tied_weight_is_named_once():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    assert list(named_tensors(model)) == ["0.weight"]


@pytest.mark.parametrize(
    "other",
    [
        {"b": torch.zeros(3)},
        {"a": torch.zeros(3), "b": torch.zeros(3)},
        {"a": torch.zeros(3, dtype=torch.float64)},
        {"a": torch.zeros(1, 3)},
        {"a": torch.tensor([0.0, 0.0, -0.0])},
        {"a": torch.tensor([0.0, 0.0, 1e-45])},
    ],
)
def test_weights_that_differ_in_anything_are_not_the_same(other):
    assert same_bits({"a": torch.zeros(3)}, {"a": torch.zeros(3)})
    assert not same_bits({"a": torch.zeros(3)}, other)


def test_bits_of_any_type_are_compared():
    for dtype in (torch.bfloat16, torch.float64, torch.bool, torch.complex64):
        values = torch.tensor([1, 0, 1]).to(dtype)
        assert same_bits({"a": values}, {"a": values.clone()})
        assert not same_bits({"a": values}, {"a": torch.tensor([1, 1, 1]).to(dtype)})
    assert same_bits({"a": torch.tensor(float("nan"))}, {"a": torch.tensor(float("nan"))})
