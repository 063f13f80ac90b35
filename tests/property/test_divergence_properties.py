"""What makes a divergence one, and the gradients the paper's loss has."""

import math

import pytest
import torch
from distributions import logits
from hypothesis import given
from hypothesis import strategies as st

from vcsd.core import forward_kl, jensen_shannon, log_probs, response_mean, reverse_kl, shape_target, token_mean

DIVERGENCES = [forward_kl, reverse_kl, jensen_shannon]


@pytest.mark.parametrize("divergence", DIVERGENCES)
@given(pair=logits(rows=2))
def test_divergences_are_never_negative(divergence, pair):
    target, student = log_probs(pair)
    assert (divergence(target, student) > -1e-12).all()


@pytest.mark.parametrize("divergence", DIVERGENCES)
@given(one=logits())
def test_divergences_are_zero_between_equals(divergence, one):
    log_p = log_probs(one[0])
    assert divergence(log_p, log_p).abs().max() < 1e-12


@pytest.mark.parametrize("divergence", DIVERGENCES)
@given(one=logits(), push=st.floats(0.5, 3))
def test_divergences_are_positive_between_different_distributions(divergence, one, push):
    other = one[0].clone()
    other[:, 0] += push
    assert (divergence(log_probs(one[0]), log_probs(other)) > 0).all()


@given(logits(rows=2))
def test_jensen_shannon_is_symmetric_at_one_half_and_at_most_log_two(pair):
    target, student = log_probs(pair)
    value = jensen_shannon(target, student)
    torch.testing.assert_close(value, jensen_shannon(student, target))
    assert (value <= math.log(2) + 1e-12).all()


@given(logits(rows=2))
def test_reverse_kl_is_forward_kl_with_the_arguments_swapped(pair):
    target, student = log_probs(pair)
    torch.testing.assert_close(reverse_kl(target, student), forward_kl(student, target))


@pytest.mark.parametrize("divergence", DIVERGENCES)
@given(pair=logits(rows=2), cut=st.integers(0, 3))
def test_the_loss_is_additive_over_splits(divergence, pair, cut):
    target, student = log_probs(pair)
    whole = divergence(target, student)
    parts = torch.cat([divergence(target[:cut], student[:cut]), divergence(target[cut:], student[cut:])])
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)


def sparse_case(seed=0, num_positions=4, vocab=7):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, num_positions, vocab, generator=generator, dtype=torch.float64)
    log_q = shape_target(log_probs(2 * rows[0]), log_probs(2 * rows[1]), beta=0.2)
    assert (log_q == -math.inf).any(), "the case should have tokens off the support"
    return log_q, rows[2].requires_grad_()


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize(
    "divergence",
    [
        forward_kl,
        reverse_kl,
        lambda q, p: reverse_kl(q, p, log_floor=-30.0),
        jensen_shannon,
        lambda q, p: jensen_shannon(q, p, weight=0.2),
    ],
)
def test_gradients_agree_with_finite_differences(divergence, temperature):
    log_q, logits_student = sparse_case()
    assert torch.autograd.gradcheck(
        lambda z: divergence(log_q, log_probs(z, temperature)), (logits_student,), rtol=1e-4
    )


@pytest.mark.parametrize("temperature", [1.0, 2.0, 3.0])
def test_the_forward_kl_gradient_is_softmax_minus_target_times_temperature_over_length(temperature):
    log_q, logits_student = sparse_case(num_positions=5)
    lengths = torch.tensor([2, 3])
    divergence = forward_kl(log_q, log_probs(logits_student, temperature))
    response_mean(divergence, lengths, num_responses=2, loss_scale=temperature**2).backward()
    per_position = temperature * ((logits_student / temperature).softmax(-1) - log_q.exp())
    expected = per_position / torch.tensor([2, 2, 3, 3, 3])[:, None] / 2
    torch.testing.assert_close(logits_student.grad, expected.detach())


def step_of_responses(seed=0):
    """Six responses of uneven length (one of them empty), as divergences that depend on a parameter."""
    lengths = torch.tensor([3, 1, 0, 5, 2, 4])
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(int(lengths.sum()), generator=generator, dtype=torch.float64), lengths


WHOLE = [[[0, 1, 2, 3, 4, 5]]]


@pytest.mark.parametrize(
    "ranks",
    [WHOLE, [[[0], [1, 2], [3, 4, 5]]], [[[0, 1], [2]], [[3, 4, 5]]], [[[0]], [[5, 1]], [[2, 3], [4]]]],
    ids=["one", "micro-batches", "two ranks", "three ranks"],
)
@pytest.mark.parametrize("reduction", ["response_mean", "token_mean"])
def test_any_split_over_micro_batches_and_ranks_gives_the_same_gradient(reduction, ranks):
    """ranks[r][b]: the responses in micro-batch b of rank r."""
    divergence, lengths = step_of_responses()
    num_responses, num_tokens = int((lengths > 0).sum()), int(lengths.sum())

    def accumulated(micro_batches, num_ranks):
        """The gradient that one rank accumulates."""
        weight = torch.ones((), dtype=torch.float64, requires_grad=True)
        starts = [0, *lengths.cumsum(0).tolist()]
        for part in micro_batches:
            values = weight * torch.cat([divergence[starts[i] : starts[i + 1]] for i in part])
            scale = {"loss_scale": 4.0, "num_ranks": num_ranks}
            if reduction == "response_mean":
                response_mean(values, lengths[part], num_responses=num_responses, **scale).backward()
            else:
                token_mean(values, num_tokens=num_tokens, **scale).backward()
        return weight.grad

    def averaged(ranks):
        """What DDP makes of it."""
        return torch.stack([accumulated(micro_batches, len(ranks)) for micro_batches in ranks]).mean()

    whole = averaged(WHOLE)
    torch.testing.assert_close(averaged(ranks), whole)
    means = [part.mean() for part in divergence.split(lengths.tolist()) if len(part)]
    expected = 4 * (sum(means) / 5 if reduction == "response_mean" else divergence.mean())
    torch.testing.assert_close(whole, expected)
