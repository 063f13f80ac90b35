"""The published OPSD's comparison, worked by hand and checked against what it must satisfy.

student  p = [2/10, 1/10, 6/10, 1/10]     its top two are tokens 2 and 0; the tail holds 2/10
target   q = [1/10, 2/10, 3/10, 4/10]     on the same buckets: 3/10, 1/10, 6/10
"""

from math import log

import pytest
import torch

from vcsd.core import forward_kl, importance_weight, jensen_shannon, log_probs, reverse_kl, top_and_tail

STUDENT = torch.tensor([0.2, 0.1, 0.6, 0.1], dtype=torch.float64).log()
TARGET = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).log()
DIVERGENCES = [forward_kl, reverse_kl, jensen_shannon]


def random_pair(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return [log_probs(3 * torch.randn(*shape, generator=generator, dtype=torch.float64)) for _ in range(2)]


def test_the_student_chooses_the_tokens_and_the_rest_is_one_bucket():
    target, student = top_and_tail(TARGET, STUDENT, 2)
    assert student.exp().tolist() == pytest.approx([0.6, 0.2, 0.2])
    assert target.exp().tolist() == pytest.approx([0.3, 0.1, 0.6])


def test_jensen_shannon_of_the_buckets_by_hand():
    # mixture [9/20, 3/20, 8/20]
    by_target = 0.3 * log(0.3 / 0.45) + 0.1 * log(0.1 / 0.15) + 0.6 * log(0.6 / 0.4)
    by_student = 0.6 * log(0.6 / 0.45) + 0.2 * log(0.2 / 0.15) + 0.2 * log(0.2 / 0.4)
    assert jensen_shannon(*top_and_tail(TARGET, STUDENT, 2)).item() == pytest.approx((by_target + by_student) / 2)


def test_forward_kl_of_the_buckets_by_hand():
    expected = 0.3 * log(0.3 / 0.6) + 0.1 * log(0.1 / 0.2) + 0.6 * log(0.6 / 0.2)
    assert forward_kl(*top_and_tail(TARGET, STUDENT, 2)).item() == pytest.approx(expected)


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_the_buckets_bound_the_divergence_from_below_and_meet_it_at_the_whole_vocabulary(divergence):
    target, student = random_pair(0, 64, 20)
    whole = divergence(target, student)
    values = [divergence(*top_and_tail(target, student, k)) for k in (1, 5, 19, 20, 100)]
    for smaller, larger in zip(values, [*values[1:], whole], strict=True):
        assert (smaller <= larger + 1e-12).all()
    torch.testing.assert_close(values[2], whole)  # a tail of one token is that token
    assert torch.equal(values[3], whole)
    assert torch.equal(values[4], whole)


def test_buckets_are_distributions_also_if_one_side_rules_tokens_out():
    target, student = random_pair(1, 8, 12)
    target = target.index_fill(-1, torch.tensor([0, 3]), -torch.inf).log_softmax(-1)
    student = student.index_fill(-1, torch.arange(2, 12), -torch.inf).log_softmax(-1).requires_grad_()
    buckets = top_and_tail(target, student, 4)
    for side in buckets:
        torch.testing.assert_close(side.exp().sum(-1), torch.ones(8, dtype=torch.float64))
    jensen_shannon(*buckets).sum().backward()
    assert student.grad.isfinite().all()


def test_a_tiny_tail_is_not_lost_to_rounding():
    logits = torch.tensor([0.0, -40.0, -41.0], dtype=torch.float32)
    _, student = top_and_tail(log_probs(logits), log_probs(logits), 1)
    exact = log_probs(logits.double())[1:].logsumexp(-1)
    assert student[1].item() == pytest.approx(exact.item(), rel=1e-5)


def test_the_gradient_reaches_the_top_and_the_tail():
    logits = torch.randn(3, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    target, _ = random_pair(3, 3, 9)

    def loss(logits):
        return jensen_shannon(*top_and_tail(target, log_probs(logits), 4))

    assert torch.autograd.gradcheck(loss, (logits,))
    (gradient,) = torch.autograd.grad(loss(logits).sum(), logits)
    assert (gradient != 0).all()


def test_the_importance_weight_is_the_ratio_now_over_then_clipped_from_above():
    now, then = torch.tensor([0.5, 0.2, 0.9]).log().requires_grad_(), torch.tensor([0.4, 0.4, 0.3]).log()
    weight = importance_weight(now, then, clip=2.0)
    assert weight.tolist() == pytest.approx([1.25, 0.5, 2.0])
    assert not weight.requires_grad
    assert importance_weight(torch.tensor(0.0), torch.tensor(-200.0), clip=2.0).item() == 2.0
