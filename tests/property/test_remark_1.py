"""Remark 1: the target maximises  α E_q[Δ̃] - KL(q || p̄)  over the simplex on the support (Eq. 13)."""

import pytest
import torch

from vcsd.core import contrast, log_probs, plausible_support, shape_target


def objective(q, reward, log_p_bar, alpha):
    """J of Eq. 13, with 0 log 0 = 0."""
    return (q * (alpha * reward - q.clamp(min=1e-300).log() + log_p_bar)).sum(-1)


def case(seed):
    """A random position: reward and p̄ on the support, the target there, and alpha."""
    generator = torch.Generator().manual_seed(seed)
    original, control = log_probs(3 * torch.randn(2, 9, generator=generator, dtype=torch.float64))
    alpha, beta = torch.rand(2, generator=generator).mul(torch.tensor([2.0, 0.3])).tolist()
    inside = plausible_support(original, beta)
    log_q = shape_target(original, control, alpha=alpha, beta=beta, end_token_ids=[4])
    return contrast(original, control, [4])[inside], original[inside].log_softmax(-1), log_q[inside].exp(), alpha


def maximise(reward, log_p_bar, alpha):
    """A numerical optimiser that knows nothing of the closed form: L-BFGS over softmax coordinates."""
    z = torch.zeros_like(reward, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [z], max_iter=1000, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = -objective(z.softmax(-1), reward, log_p_bar, alpha)
        loss.backward()
        return loss

    optimizer.step(closure)
    return z.detach().softmax(-1)


@pytest.mark.parametrize("seed", range(25))
def test_the_target_is_what_a_numerical_optimiser_finds(seed):
    reward, log_p_bar, q_star, alpha = case(seed)
    torch.testing.assert_close(maximise(reward, log_p_bar, alpha), q_star, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(25))
def test_no_random_point_of_the_simplex_is_better(seed):
    reward, log_p_bar, q_star, alpha = case(seed)
    best = objective(q_star, reward, log_p_bar, alpha)
    torch.manual_seed(seed)
    spread = torch.distributions.Dirichlet(torch.ones_like(q_star)).sample((500,))
    near = (q_star.log() + 0.1 * torch.randn(500, len(q_star), dtype=torch.float64)).softmax(-1)
    points = torch.cat([spread, near])
    assert len(points) == 1000
    assert (objective(points, reward, log_p_bar, alpha) <= best + 1e-12).all()


def test_the_cases_have_supports_worth_optimising():
    sizes = [len(case(seed)[0]) for seed in range(25)]
    assert min(sizes) >= 1
    assert sum(size >= 3 for size in sizes) >= 10
