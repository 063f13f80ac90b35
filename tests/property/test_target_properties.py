"""What the paper says of the target, for any two distributions."""

import torch
from distributions import alphas, anchors, betas, logits
from hypothesis import assume, given
from hypothesis import strategies as st

from vcsd.core import contrast, log_probs, plausible_support, shape_target


@given(logits(rows=2), alphas, betas, anchors)
def test_the_target_sums_to_one_and_lives_on_the_support(pair, alpha, beta, anchor):
    original, control = log_probs(pair)
    q = shape_target(original, control, alpha=alpha, beta=beta, anchor=anchor).exp()
    assert (q.sum(-1) - 1).abs().max() < 1e-12
    assert not q[~plausible_support(original, beta)].any()


@given(logits(rows=2), betas)
def test_alpha_zero_is_the_original_renormalised_on_its_support(pair, beta):
    original, control = log_probs(pair)
    inside = original.exp() * plausible_support(original, beta)
    q = shape_target(original, control, alpha=0.0, beta=beta).exp()
    torch.testing.assert_close(q, inside / inside.sum(-1, keepdim=True), rtol=1e-9, atol=1e-12)


@given(logits(), alphas, betas)
def test_identical_views_leave_the_renormalised_original(one, alpha, beta):
    original = log_probs(one[0])
    shaped = shape_target(original, original, alpha=alpha, beta=beta)
    torch.testing.assert_close(shaped, shape_target(original, original, alpha=0.0, beta=beta))


@given(logits(rows=2), alphas, st.floats(-50, 50), st.floats(-50, 50), st.floats(0.5, 4))
def test_shifting_logits_changes_nothing(pair, alpha, shift, control_shift, temperature):
    original, control = pair
    before = shape_target(*log_probs(pair, temperature), alpha=alpha, beta=0.1)
    moved = (log_probs(original + shift, temperature), log_probs(control + control_shift, temperature))
    torch.testing.assert_close(shape_target(*moved, alpha=alpha, beta=0.1).exp(), before.exp(), rtol=1e-6, atol=1e-9)


@given(logits(rows=2), alphas, betas, st.randoms(use_true_random=False))
def test_permuting_the_vocabulary_permutes_the_target(pair, alpha, beta, random):
    order = list(range(pair.shape[-1]))
    random.shuffle(order)
    end = order[0]
    original, control = log_probs(pair)
    shape = {"alpha": alpha, "beta": beta, "anchor": 0.5, "end_tokens_keep_anchor": True}
    before = shape_target(original, control, end_token_ids=[end], **shape)
    after = shape_target(original[:, order], control[:, order], end_token_ids=[order.index(end)], **shape)
    torch.testing.assert_close(after.exp(), before[:, order].exp(), rtol=1e-6, atol=1e-12)


@given(logits(rows=2), st.floats(0, 2), st.floats(0.01, 2))
def test_a_larger_alpha_moves_mass_up_the_contrast(pair, alpha, more):
    """log q(v; alpha + more) - log q(v; alpha) rises with the contrast of v."""
    original, control = log_probs(pair)
    gain = shape_target(original, control, alpha=alpha + more, beta=0) - shape_target(
        original, control, alpha=alpha, beta=0
    )
    order = contrast(original, control).argsort(-1)
    assert (gain.gather(-1, order).diff(dim=-1) > -1e-9).all()


@given(logits(), st.floats(0.01, 1))
def test_the_support_has_at_most_one_over_beta_max_p_tokens(one, beta):
    log_p = log_probs(one[0])
    bound = 1 / (beta * log_p.exp().amax(-1))
    size = plausible_support(log_p, beta).sum(-1)
    assert (size <= bound * (1 + 2e-6)).all()
    assert (size >= 1).all()


@given(logits(rows=2), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_beta_never_adds_a_token(pair, beta, other):
    assume(beta < other)
    log_p = log_probs(pair[0])
    assert not (plausible_support(log_p, other) & ~plausible_support(log_p, beta)).any()


@given(logits(rows=2), alphas)
def test_swapping_the_views_negates_the_contrast(pair, alpha):
    original, control = log_probs(pair)
    torch.testing.assert_close(contrast(original, control), -contrast(control, original))
