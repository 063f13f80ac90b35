"""The average of the adapters against the average of the effective weights."""

import torch

from tiny_lora import lora_model, stir
from vcsd.lora.effective import effective_changes, relative_error
from vcsd.teacher import Teacher

RATE = 0.05


def follow(model, num_steps=12, size=0.1):
    """Let a teacher follow a student that moves, next to the average of the student's effective weights."""
    teacher = Teacher(model, "ema", ema_rate=RATE)
    exact = effective_changes(model)
    for step in range(num_steps):
        stir(model, seed=step, size=size)
        teacher.update()
        exact = {name: (1 - RATE) * exact[name] + RATE * new for name, new in effective_changes(model).items()}
    return effective_changes(teacher.module), exact


def test_an_average_of_b_is_the_average_of_the_effective_weights():
    found, exact = follow(lora_model().double())
    assert len(found) == 4 * 7
    assert relative_error(found, exact) < 1e-12
    assert min(change.norm() for change in exact.values()) > 0


def test_another_rate_would_not_be_that_average():
    found, exact = follow(lora_model().double())
    slower = {name: (1 - RATE / 2) * change for name, change in found.items()}
    assert relative_error(slower, exact) > 0.01


def test_averaging_both_factors_is_close_to_it_and_not_equal():
    """A moves by a twentieth of its size in each step. The error is of second order in that."""
    errors = [relative_error(*follow(lora_model(both=True).double(), size=size)) for size in (0.003, 0.0015)]
    assert 1e-3 < errors[1] < errors[0] < 0.2


def test_both_factors_start_from_the_students_values():
    """From zero, the product of k steps would have (1 - 0.95^k)^2 of the change and not 1 - 0.95^k."""
    model = lora_model(both=True)
    stir(model, seed=0)
    teacher = Teacher(model)
    teacher.update()
    assert relative_error(effective_changes(teacher.module), effective_changes(model)) < 1e-6


def test_what_an_adapter_adds_is_alpha_over_rank_times_its_product():
    model = lora_model()
    stir(model, seed=1)
    layers = dict(model.named_modules())
    for name, change in effective_changes(model).items():
        layer = layers[name]
        torch.testing.assert_close(change, 2 * layer.lora_B.default.weight @ layer.lora_A.default.weight)
