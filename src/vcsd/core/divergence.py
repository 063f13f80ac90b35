"""Divergences between target and student, per position and in nats.

The direction is in the name. The target is a constant (the paper's stop-gradient): gradients reach the student only.
The log-probabilities already include the temperature, and `vcsd.core.reduce` applies its factor T², so no divergence
has a scale of its own.

A target is zero off its support. Forward KL and Jensen-Shannon are finite for such a target by
definition; reverse KL is not, and uses an explicit floor.
"""

import math

import torch
from torch import Tensor

from vcsd.core.probability import LOG_FLOOR, at_least_float32


def forward_kl(log_target: Tensor, log_student: Tensor) -> Tensor:
    """KL(target || student), the paper's divergence (Eq. 10): the student must cover every likely token of the target.

    With a student of logits z at temperature T, the gradient is (softmax(z / T) - target) / T. A student that rules out
    a token of the target (log-probability below LOG_FLOOR) pays a constant -LOG_FLOOR nats instead of infinity, so that
    token has no gradient.

        log_target, log_student: (..., V), normalised; the target may be -inf.
        returns: (...).

    >>> forward_kl(torch.tensor([0.5, 0.5, 0.0]).log(), torch.tensor([0.25, 0.5, 0.25]).log())      # 0.5 log 2
    tensor(0.3466)
    """
    log_target, log_student = _prepare(log_target, log_student)
    return _kl(log_target, log_student)


def reverse_kl(log_target: Tensor, log_student: Tensor, *, log_floor: float = LOG_FLOOR) -> Tensor:
    """KL(student || target), one of the paper's ablations: the student must avoid tokens the target finds unlikely.

    By definition it is infinite if the student has mass where the target is zero, and a softmax has mass everywhere. So
    the target's log-probability is raised to at least `log_floor`. Student mass m off the support then costs
    -log_floor * m nats and dominates value and gradient until m is far below 1 / -log_floor; see docs/method.md.

        log_target, log_student: (..., V), normalised; the target may be -inf.
        returns: (...).

    >>> reverse_kl(torch.tensor([1.0, 0.0]).log(), torch.tensor([0.5, 0.5]).log(), log_floor=-10.0)      # 5 - log 2
    tensor(4.3069)
    """
    assert -math.inf < log_floor < 0, f"log_floor = {log_floor} is not a finite negative number"
    log_target, log_student = _prepare(log_target, log_student)
    return _kl(log_student, log_target.clamp(min=log_floor))


def jensen_shannon(log_target: Tensor, log_student: Tensor, *, weight: float = 0.5) -> Tensor:
    """w KL(target || m) + (1 - w) KL(student || m) with the mixture m = w target + (1 - w) student.

    At most log 2, and symmetric, for w = 1/2. It vanishes as w approaches 0 or 1, and neither limit is a KL
    divergence, so w = 0 and w = 1 are not allowed.

        log_target, log_student: (..., V), normalised; the target may be -inf.
        returns: (...).

    >>> jensen_shannon(torch.tensor([1.0, 0.0]).log(), torch.tensor([0.0, 1.0]).log())      # log 2
    tensor(0.6931)
    """
    assert 0 < weight < 1, f"weight = {weight} is outside (0, 1)"
    log_target, log_student = _prepare(log_target, log_student)
    log_mixture = torch.logaddexp(log_target + math.log(weight), log_student + math.log1p(-weight))
    return weight * _kl(log_target, log_mixture) + (1 - weight) * _kl(log_student, log_mixture)


def _prepare(log_target: Tensor, log_student: Tensor) -> tuple[Tensor, Tensor]:
    """Target detached, student floored, both in at least float32."""
    assert log_target.shape == log_student.shape, (log_target.shape, log_student.shape)
    return at_least_float32(log_target.detach()), at_least_float32(log_student).clamp(min=LOG_FLOOR)


def _kl(log_p: Tensor, log_r: Tensor) -> Tensor:
    """Σ_v p(v) (log p(v) - log r(v)), with 0 log 0 = 0 also for the gradient; `log_r` is finite where p is positive."""
    gap = torch.where(log_p == -math.inf, 0.0, log_p - log_r)
    return (log_p.exp() * gap).sum(-1)
