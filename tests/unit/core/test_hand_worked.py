"""Each equation on a vocabulary of four, worked by hand.

original  p = [1/2, 1/4, 1/5, 1/20]
control   c = [1/4, 1/2, 1/5, 1/20]
contrast  log p/c = [log 2, -log 2, 0, 0]
support   beta 0.3: threshold 0.15, tokens 0, 1, 2
"""

from math import log

import pytest
import torch

from vcsd.core import (
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

ORIGINAL = torch.tensor([0.5, 0.25, 0.2, 0.05], dtype=torch.float64).log()
CONTROL = torch.tensor([0.25, 0.5, 0.2, 0.05], dtype=torch.float64).log()


def target(**changes):
    return shape_target(ORIGINAL, CONTROL, **{"beta": 0.3, **changes}).exp().tolist()


def test_contrast_is_original_minus_control_in_log_space():
    assert contrast(ORIGINAL, CONTROL).tolist() == pytest.approx([log(2), -log(2), 0, 0])


def test_contrast_of_end_tokens_is_zero():
    assert contrast(ORIGINAL, CONTROL, end_token_ids=[0]).tolist() == pytest.approx([0, -log(2), 0, 0])


def test_support_is_relative_to_the_most_probable_token():
    assert plausible_support(ORIGINAL, 0.3).tolist() == [True, True, True, False]
    assert plausible_support(ORIGINAL, 1.0).tolist() == [True, False, False, False]
    assert plausible_support(ORIGINAL, 0.0).tolist() == [True, True, True, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [0.5, 0.4, 0.1])
def test_ties_at_the_threshold_are_inside(beta, dtype):
    # 1/4, 1/5 and 1/20 are exactly beta times the largest probability, 1/2
    inside = {0.5: 2, 0.4: 3, 0.1: 4}[beta]
    assert plausible_support(ORIGINAL.to(dtype), beta).sum() == inside


def test_rounding_does_not_evict_a_tie():
    """In float32 and float64, over probabilities whose logarithms round either way."""
    for dtype in (torch.float32, torch.float64):
        top = torch.linspace(0.02, 0.98, 997, dtype=dtype)
        for beta in (0.1, 0.3, 0.7):
            assert plausible_support(torch.stack([top, beta * top], -1).log(), beta).all()


def test_a_token_visibly_below_the_threshold_is_outside():
    log_p = torch.tensor([0.5, 0.05 * (1 - 1e-4)], dtype=torch.float64).log()
    assert plausible_support(log_p, 0.1).tolist() == [True, False]


def test_target_multiplies_the_original_by_the_exponential_of_the_contrast():
    # [1/2 * 2, 1/4 / 2, 1/5] = [1, 1/8, 1/5], sum 53/40
    assert target() == pytest.approx([40 / 53, 5 / 53, 8 / 53, 0])


def test_alpha_two_squares_the_ratio():
    # [1/2 * 4, 1/4 / 4, 1/5] = [2, 1/16, 1/5], sum 181/80
    assert target(alpha=2.0) == pytest.approx([160 / 181, 5 / 181, 16 / 181, 0])


def test_alpha_zero_renormalises_the_original():
    # [1/2, 1/4, 1/5], sum 19/20
    assert target(alpha=0.0) == pytest.approx([10 / 19, 5 / 19, 4 / 19, 0])


def test_without_support_the_whole_vocabulary_is_shaped():
    # [1, 1/8, 1/5, 1/20], sum 11/8
    assert target(beta=0.0) == pytest.approx([8 / 11, 1 / 11, 8 / 55, 2 / 55])


def test_without_anchor_only_the_contrast_remains():
    # [2, 1/2, 1], sum 7/2
    assert target(anchor=0.0) == pytest.approx([4 / 7, 1 / 7, 2 / 7, 0])


def test_an_end_token_keeps_its_original_score():
    # [1/2, 1/8, 1/5], sum 33/40
    assert target(end_token_ids=[0]) == pytest.approx([20 / 33, 5 / 33, 8 / 33, 0])


def test_the_anchor_of_an_end_token_is_the_formulas_or_the_authors_codes():
    # anchor 0: formula p**0 = 1 -> [1, 1/2, 1], sum 5/2; authors' code p = 1/2 -> [1/2, 1/2, 1], sum 2
    assert target(anchor=0.0, end_token_ids=[0]) == pytest.approx([2 / 5, 1 / 5, 2 / 5, 0])
    kept = target(anchor=0.0, end_token_ids=[0], end_tokens_keep_anchor=True)
    assert kept == pytest.approx([1 / 4, 1 / 4, 1 / 2, 0])


def test_the_two_conventions_for_end_tokens_agree_at_anchor_one():
    assert target(end_token_ids=[0, 2], end_tokens_keep_anchor=True) == pytest.approx(target(end_token_ids=[0, 2]))


def test_an_end_token_off_the_support_stays_off():
    assert target(end_token_ids=[3], end_tokens_keep_anchor=True)[3] == 0


# q = [1/2, 1/2, 0, 0] against p = [1/2, 1/4, 1/8, 1/8]
Q = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64).log()
P = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64).log()


def test_forward_kl_weighs_by_the_target():
    # 1/2 log 1 + 1/2 log 2
    assert forward_kl(Q, P).item() == pytest.approx(log(2) / 2)


def test_reverse_kl_weighs_by_the_student_and_charges_the_floor():
    # 1/2 log 1 + 1/4 log 1/2 + 1/4 (log 1/8 + 100)
    assert reverse_kl(Q, P, log_floor=-100.0).item() == pytest.approx(-log(2) / 4 + (100 - 3 * log(2)) / 4)


def test_reverse_kl_floor_is_the_authors_by_default():
    assert reverse_kl(Q, P).item() == pytest.approx(-log(2) / 4 + (10000 - 3 * log(2)) / 4)


@pytest.mark.parametrize("weight", [0.5, 0.25])
def test_jensen_shannon_measures_both_against_their_mixture(weight):
    q, p = [0.5, 0.5, 0, 0], [0.5, 0.25, 0.125, 0.125]
    m = [weight * a + (1 - weight) * b for a, b in zip(q, p, strict=True)]
    expected = weight * sum(a * log(a / c) for a, c in zip(q, m, strict=True) if a)
    expected += (1 - weight) * sum(b * log(b / c) for b, c in zip(p, m, strict=True))
    assert jensen_shannon(Q, P, weight=weight).item() == pytest.approx(expected)


def test_the_temperature_divides_the_logits():
    # exp([0, 2, 4, 6] / 2) = [1, e, e^2, e^3]
    p = log_probs(torch.tensor([0.0, 2.0, 4.0, 6.0]), temperature=2.0).exp()
    assert (p[1:] / p[:-1]).tolist() == pytest.approx([2.718282] * 3, rel=1e-5)


def test_response_mean_counts_responses_equally_and_token_mean_tokens():
    divergence, lengths = torch.tensor([1.0, 2.0, 3.0, 10.0]), torch.tensor([3, 1])
    # responses: mean 2 and mean 10; tokens: 16 / 4
    assert response_mean(divergence, lengths, num_responses=2).item() == pytest.approx(6)
    assert token_mean(divergence, num_tokens=4).item() == pytest.approx(4)


def test_the_loss_scale_multiplies_either_mean():
    divergence, lengths = torch.tensor([1.0, 3.0]), torch.tensor([2])
    assert response_mean(divergence, lengths, num_responses=1, loss_scale=4.0).item() == pytest.approx(8)
    assert token_mean(divergence, num_tokens=2, loss_scale=4.0).item() == pytest.approx(8)
