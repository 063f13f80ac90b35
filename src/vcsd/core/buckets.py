"""Two parts of the published OPSD: divergences over the student's top k tokens and a tail, and importance weights."""

import torch
from torch import Tensor

from vcsd.core.probability import LOG_FLOOR, at_least_float32


def top_and_tail(log_target: Tensor, log_student: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Reduce both distributions to the student's k most probable tokens and one bucket for all others.

    The student chooses the tokens, so a token that is probable only under the target disappears in the tail. A
    divergence of the buckets is a lower bound of the same divergence over the vocabulary. The tail is summed directly:
    one minus the top's mass would lose it to rounding. With k >= V there is no tail, and both are returned unchanged.

        log_target, log_student: (..., V), normalised.
        returns: target and student, (..., k + 1), normalised, the most probable token of the student first.

    >>> target, student = torch.tensor([0.1, 0.2, 0.3, 0.4]).log(), torch.tensor([0.2, 0.1, 0.6, 0.1]).log()
    >>> [x.exp() for x in top_and_tail(target, student, k=2)]      # tokens 2 and 0, then 1 and 3 together
    [tensor([0.3000, 0.1000, 0.6000]), tensor([0.6000, 0.2000, 0.2000])]
    """
    assert log_target.shape == log_student.shape, (log_target.shape, log_student.shape)
    assert k >= 1, f"k = {k} is less than 1"
    if k >= log_student.shape[-1]:
        return log_target, log_student
    top = log_student.detach().topk(k, dim=-1).indices
    return _bucketed(log_target, top), _bucketed(log_student, top)


def _bucketed(log_p: Tensor, top: Tensor) -> Tensor:
    # The floor keeps a tail of impossible tokens finite, also for the gradient; its probability is still zero.
    log_p = at_least_float32(log_p).clamp(min=LOG_FLOOR)
    tail = log_p.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.cat([log_p.gather(-1, top), tail], -1)


def importance_weight(log_p_now: Tensor, log_p_sampled: Tensor, *, clip: float) -> Tensor:
    """min(p_now / p_sampled, clip) for each sampled token: a constant factor on its position's divergence.

    Corrects for rollouts that were sampled from other weights, or in another precision, than the student's. Rollouts
    of the current weights have ratios near one.

        log_p_now, log_p_sampled: (...), log-probabilities of the sampled token, both at temperature one.
        returns: (...), without gradient.

    >>> importance_weight(torch.tensor([0.5, 0.8]).log(), torch.tensor([0.4, 0.1]).log(), clip=2.0)
    tensor([1.2500, 2.0000])
    """
    assert log_p_now.shape == log_p_sampled.shape, (log_p_now.shape, log_p_sampled.shape)
    assert clip >= 1, f"clip = {clip} would make every weight smaller than one"
    return (log_p_now.detach() - log_p_sampled.detach()).exp().clamp(max=clip)
