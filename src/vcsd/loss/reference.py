"""The definition: `vcsd.core` on full logits, with gradients by autograd. For tests and small problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.core import (
    contrast,
    forward_kl,
    importance_weight,
    jensen_shannon,
    log_probs,
    plausible_support,
    reverse_kl,
    shape_target,
    top_and_tail,
)
from vcsd.core.probability import LOG_FLOOR
from vcsd.kernels.device import compute_dtype
from vcsd.loss.head import compute_weight, finish_logits
from vcsd.loss.statistics import Statistics

if TYPE_CHECKING:
    from torch import Tensor

    from vcsd.loss.drawn import Drawn
    from vcsd.loss.objective import Objective
    from vcsd.types import Scores


def full_logits(scores: Scores) -> Tensor:
    """(N, V) logits in one piece, differentiable in hidden states, head weight and head bias."""
    hidden_ND, head = scores.hidden_ND, scores.head
    dtype = compute_dtype(hidden_ND)
    weight_VD = head.weight_VD.to(dtype) if head.weight_VD.requires_grad else compute_weight(head, dtype)
    with torch.autocast(hidden_ND.device.type, enabled=False):
        return finish_logits(hidden_ND.to(dtype) @ weight_VD.T, head)


def loss_from_logits(
    logits_student: Tensor,
    logits_original: Tensor,
    logits_control: Tensor | None,
    objective: Objective,
    drawn: Drawn | None,
) -> tuple[Tensor, Statistics]:
    """Divergence per position, differentiable in the student's logits, and the statistics. All logits are (N, V)."""
    log_p_student = log_probs(logits_student, objective.temperature)
    with torch.no_grad():
        log_p_original = log_probs(logits_original, objective.temperature)
        log_p_control = None if logits_control is None else log_probs(logits_control, objective.temperature)
        log_q = target(log_p_original, log_p_control, objective)
    loss_N = _divergence(log_q, log_p_student, objective)
    if objective.importance_clip is not None:
        assert drawn is not None, "importance weights need the sampled tokens"
        loss_N = loss_N * _importance(logits_student, drawn, objective.importance_clip)
    with torch.no_grad():
        log_p_detached = log_p_student.detach()
        statistics = Statistics(
            divergence=loss_N.detach(),
            support_size=plausible_support(log_p_original, objective.beta).sum(-1, dtype=torch.int32),
            kl_target_original=forward_kl(log_q, log_p_original),
            argmax_changed=_argmax_changed(log_p_original, log_q),
            student_entropy=-(log_p_detached.exp() * log_p_detached.clamp(min=LOG_FLOOR)).sum(-1),
            realised_contrast=_realised_contrast(log_p_original, log_p_control, objective, drawn),
        )
    return loss_N, statistics


def target(log_p_original: Tensor, log_p_control: Tensor | None, objective: Objective) -> Tensor:
    """log q* of Eq. 8. Without a control the contrast is zero, whatever alpha is."""
    return shape_target(
        log_p_original,
        log_p_original if log_p_control is None else log_p_control,
        alpha=0.0 if log_p_control is None else objective.alpha,
        beta=objective.beta,
        anchor=objective.anchor,
        end_token_ids=objective.end_token_ids,
        end_tokens_keep_anchor=objective.end_tokens_keep_anchor,
    )


def _divergence(log_q: Tensor, log_p_student: Tensor, objective: Objective) -> Tensor:
    if objective.student_top_k is not None:
        log_q, log_p_student = top_and_tail(log_q, log_p_student, objective.student_top_k)
    if objective.divergence == "forward_kl":
        return forward_kl(log_q, log_p_student)
    if objective.divergence == "reverse_kl":
        return reverse_kl(log_q, log_p_student, log_floor=objective.log_floor)
    assert objective.divergence == "jensen_shannon", "a divergence in DIVERGENCES needs a case here"
    return jensen_shannon(log_q, log_p_student, weight=objective.js_weight)


def _importance(logits_student: Tensor, drawn: Drawn, clip: float) -> Tensor:
    """The clipped ratio of each sampled token, at temperature one like the log-probabilities of the sampler."""
    assert drawn.log_p_N is not None, "importance weights need the log-probabilities of the sampled tokens"
    log_p_now = log_probs(logits_student.detach()).gather(-1, drawn.token_ids_N.long().unsqueeze(-1)).squeeze(-1)
    return importance_weight(log_p_now, drawn.log_p_N.to(log_p_now.dtype), clip=clip)


def _argmax_changed(log_p_original: Tensor, log_q: Tensor) -> Tensor:
    """Whether the contrast changed the most probable token.

    Half precision often ties logits: if several tokens share the maximum, any of them may stay on top.
    """
    is_top = log_p_original == log_p_original.amax(-1, keepdim=True)
    best_of_top = log_q.masked_fill(~is_top, -torch.inf).amax(-1)
    return best_of_top < log_q.amax(-1)


def _realised_contrast(
    log_p_original: Tensor, log_p_control: Tensor | None, objective: Objective, drawn: Drawn | None
) -> Tensor | None:
    if log_p_control is None or drawn is None:
        return None
    token_ids = drawn.token_ids_N
    index = token_ids.long().unsqueeze(-1)
    delta_N = contrast(log_p_original.gather(-1, index), log_p_control.gather(-1, index)).squeeze(-1)
    is_end = torch.isin(token_ids.long(), token_ids.new_tensor(objective.end_token_ids, dtype=torch.long))
    return delta_N.masked_fill(is_end, 0.0)
