"""No NaN and no infinity, in values or gradients, at the edges of what logits can be."""

import math

import pytest
import torch

from vcsd.core import (
    LOG_FLOOR,
    contrast,
    forward_kl,
    jensen_shannon,
    log_probs,
    plausible_support,
    response_mean,
    reverse_kl,
    shape_target,
    token_mean,
)

INF = math.inf
DIVERGENCES = [forward_kl, reverse_kl, jensen_shannon]
LARGEST = {dtype: torch.finfo(dtype).max for dtype in (torch.float16, torch.bfloat16, torch.float32)}


def losses_and_gradients(student, original, control, **shape):
    for divergence in DIVERGENCES:
        logits = student.clone().requires_grad_()
        log_q = shape_target(log_probs(original), log_probs(control), **shape)
        loss = divergence(log_q, log_probs(logits))
        loss.sum().backward()
        yield log_q, loss.detach(), logits.grad


def assert_well_behaved(student, original, control, **shape):
    for log_q, loss, gradient in losses_and_gradients(student, original, control, **shape):
        assert log_q.exp().sum(-1).sub(1).abs().max() < 1e-4
        assert loss.isfinite().all()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [0.0, 0.1, 1.0])
def test_ordinary_logits_in_every_dtype(dtype, beta):
    torch.manual_seed(0)
    assert_well_behaved(*(4 * torch.randn(3, 7, 50)).to(dtype), beta=beta, end_token_ids=[3])


@pytest.mark.parametrize("dtype", LARGEST)
def test_the_largest_logits_a_dtype_holds(dtype):
    big = LARGEST[dtype]
    student, original, control = torch.tensor([[0, big, -big, 1], [big, 0, 1, -big], [-big, 1, 0, big]], dtype=dtype)
    assert_well_behaved(student, original, control, alpha=2.0)
    assert_well_behaved(student, original, control, alpha=2.0, beta=0.0)


def test_a_support_of_one_token():
    original = torch.tensor([[100.0, 0.0, -3.0]])
    assert_well_behaved(torch.randn(1, 3), original, torch.randn(1, 3))
    assert shape_target(log_probs(original), log_probs(torch.zeros(1, 3))).tolist() == [[0.0, -INF, -INF]]


def test_all_logits_equal():
    flat = torch.zeros(2, 5)
    assert_well_behaved(flat, flat, flat)
    assert shape_target(log_probs(flat), log_probs(flat)).exp().sub(0.2).abs().max() < 1e-6


@pytest.mark.parametrize("beta", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("anchor", [0.0, 1.0])
def test_impossible_tokens_in_any_of_the_three(beta, anchor):
    student = torch.tensor([[0.0, -INF, 1.0, 2.0]])
    original = torch.tensor([[-INF, 1.0, 1.0, 0.0]])
    control = torch.tensor([[-INF, -INF, 0.0, 0.0]])
    for keep in (False, True):
        shape = {"beta": beta, "anchor": anchor, "end_token_ids": [0, 2], "end_tokens_keep_anchor": keep}
        assert_well_behaved(student, original, control, **shape)
        log_q = shape_target(log_probs(original), log_probs(control), **shape)
        assert log_q[0, 0] == -INF
        assert log_q[0, 1] > math.log(0.99)  # ruled out by the control: the largest possible contrast


def test_an_impossible_token_is_off_the_support_for_every_beta():
    for beta in (0.0, 0.1, 1.0):
        assert not plausible_support(torch.tensor([0.0, -INF]), beta)[1]


def test_the_contrast_is_finite_and_ordered_when_a_view_rules_a_token_out():
    log_p, log_c = torch.tensor([-1.0, -INF, -INF, -1.0]), torch.tensor([-INF, -1.0, -INF, -2.0])
    assert contrast(log_p, log_c).tolist() == [-1 - LOG_FLOOR, LOG_FLOOR + 1, 0, 1]


def test_a_vocabulary_of_one():
    one = torch.randn(3, 1)
    assert_well_behaved(one, one, one)
    for _, loss, gradient in losses_and_gradients(one, one, one):
        assert loss.abs().max() == 0
        assert gradient.abs().max() == 0


def test_an_empty_response():
    none = torch.empty(0, 9)
    for divergence in DIVERGENCES:
        loss = divergence(shape_target(log_probs(none), log_probs(none)), log_probs(none))
        assert loss.shape == (0,)
    assert response_mean(loss, torch.tensor([0]), num_responses=0).item() == 0
    assert token_mean(loss, num_tokens=0).item() == 0


def test_an_empty_response_beside_others_adds_nothing():
    full = response_mean(torch.tensor([1.0, 3.0]), torch.tensor([2]), num_responses=1)
    beside = response_mean(torch.tensor([1.0, 3.0]), torch.tensor([0, 2, 0]), num_responses=1)
    assert beside == full


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_logit_reaches_the_loss_wherever_it_is(place):
    """Also off the support and at an end token: its whole position becomes NaN."""
    good = torch.tensor([4.0, 1.0, -9.0])
    bad = good.index_fill(0, torch.tensor(place), math.nan)
    for logits in ((bad, good, good), (good, bad, good), (good, good, bad)):
        student, original, control = (log_probs(one) for one in logits)
        for divergence in DIVERGENCES:
            assert divergence(shape_target(original, control, end_token_ids=[1]), student).isnan()


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("temperature", [0.01, 0.5, 2.0, 100.0])
def test_no_temperature_overflows_the_largest_logits(dtype, temperature):
    big = LARGEST[dtype]
    p = log_probs(torch.tensor([big, 0.0, -big], dtype=dtype), temperature).exp()
    assert p.tolist() == [1.0, 0.0, 0.0]


def test_the_temperature_divides_in_float32():
    logits = torch.randn(4, 100).bfloat16()
    torch.testing.assert_close(log_probs(logits, 3.0), log_probs(logits.double(), 3.0).float())


def test_a_target_in_half_precision_is_widened():
    log_q = log_probs(torch.randn(5, 50)).bfloat16()
    student = log_probs(torch.randn(5, 50))
    for divergence in DIVERGENCES:
        torch.testing.assert_close(divergence(log_q, student), divergence(log_q.float(), student), rtol=0, atol=0)


def test_reductions_sum_half_precision_in_float32():
    ones = torch.ones(4000, dtype=torch.bfloat16)
    assert token_mean(ones, num_tokens=4000).item() == pytest.approx(1, rel=1e-5)
    assert response_mean(ones, torch.tensor([4000]), num_responses=1).item() == pytest.approx(1, rel=1e-5)


def test_large_end_token_ids_are_exact():
    log_p = torch.zeros(1, 151_646).bfloat16()
    zeroed = contrast(log_p, log_p - 1, end_token_ids=[151_645])
    assert zeroed[0, 151_645] == 0
    assert zeroed[0, :151_645].min() == 1


def test_half_precision_is_computed_in_float32():
    torch.manual_seed(0)
    logits = torch.randn(4, 100).bfloat16()
    exact, half = log_probs(logits.double()), log_probs(logits)
    assert half.dtype == torch.float32
    assert shape_target(half, half).dtype == torch.float32
    assert (half - exact).abs().max() < 1e-5


def test_reverse_kl_sums_the_mass_off_the_support_directly():
    # 1 - (mass on the support) would lose this mass of 1e-9 in float32, or turn rounding into 1e-7 * 1e4 nats
    logits = torch.tensor([20.0, 0.0])
    log_p, log_q = log_probs(logits), torch.tensor([0.0, -INF])
    exact = reverse_kl(log_q.double(), log_probs(logits.double()))
    assert reverse_kl(log_q, log_p).item() == pytest.approx(exact.item(), rel=1e-3)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_gradients_reach_the_student_only(num_ranks):
    original, control, student = torch.randn(3, 4, 6).unbind()
    for tensor in (original, control, student):
        tensor.requires_grad_()
    for divergence in DIVERGENCES:
        log_q = shape_target(log_probs(original), log_probs(control))
        token_mean(divergence(log_q, log_probs(student)), num_tokens=4, num_ranks=num_ranks).backward()
    assert student.grad is not None
    assert original.grad is None
    assert control.grad is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: plausible_support(x, 1.7), "beta = 1.7 is outside"),
        (lambda x: shape_target(x, x, alpha=-1.0), "alpha = -1.0 is negative"),
        (lambda x: log_probs(x, 0.0), "temperature = 0.0 is not positive"),
        (lambda x: reverse_kl(x, x, log_floor=-INF), "log_floor = -inf is not"),
        (lambda x: jensen_shannon(x, x, weight=1.0), "weight = 1.0 is outside"),
        (lambda x: contrast(x, x[:2]), "torch.Size"),
        (lambda x: forward_kl(x, x[:2]), "torch.Size"),
        (lambda x: token_mean(x[None], num_tokens=3), "one dimension"),
        (lambda x: response_mean(x[None], torch.tensor([3]), num_responses=1), "one dimension"),
        (lambda x: response_mean(x, torch.tensor([2]), num_responses=1), "3 positions, lengths"),
        (lambda x: token_mean(x, num_tokens=2), "3 items in this micro-batch, but 2 in the whole step"),
        (
            lambda x: response_mean(x, torch.tensor([1, 0, 2]), num_responses=1),
            "2 items in this micro-batch, but 1 in the whole step",
        ),
    ],
)
def test_a_broken_promise_is_said(call, message):
    with pytest.raises(AssertionError, match=message):
        call(torch.zeros(3))
