"""From hidden states to logits, and the gradient back to the head: the matrix products and their precision.

Matrix products run in the compute dtype: autocast's dtype under autocast, else that of the hidden states. A head kept
in float32 is cast for them in every call; `cast_head` makes that copy once for all calls of a step. Bias, scale, soft
cap and everything after run in float32 or wider, and so does the sum of the head's gradient over all chunks of a call.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from vcsd.core.probability import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor

    from vcsd.types import Head

CPU_SLICE = 8192
"""Vocabulary rows of the head's gradient computed at a time on the CPU, where half precision is first cast up."""


def cast_head(head: Head, dtype: torch.dtype) -> Head:
    """Add a copy of the weight in the compute dtype, so that a training loop casts each head once per step.

    Call it after the optimizer step (student) or the EMA update (teacher): the copy does not follow later changes of
    the weight. It takes V x D entries of `dtype`, and nothing if the weight already has that dtype.

    >>> from vcsd.types import Head
    >>> head = cast_head(Head(weight_VD=torch.zeros(10, 4)), torch.bfloat16)
    >>> head.weight_VD.dtype, head.compute_weight_VD.dtype
    (torch.float32, torch.bfloat16)
    """
    return replace(head, compute_weight_VD=head.weight_VD.detach().to(dtype))


def compute_weight(head: Head, dtype: torch.dtype) -> Tensor:
    """The head's weight in the compute dtype, without gradient: the copy made by `cast_head` if it fits."""
    if head.compute_weight_VD is not None and head.compute_weight_VD.dtype == dtype:
        return head.compute_weight_VD
    return head.weight_VD.detach().to(dtype)


def finish_logits(raw_NV: Tensor, head: Head) -> Tensor:
    """Bias, scale and soft cap of the head, in at least float32: soft_cap(logit_scale * (raw + bias))."""
    logits_NV = at_least_float32(raw_NV)
    if head.bias_V is not None:
        logits_NV = logits_NV + head.bias_V
    if head.logit_scale != 1:
        logits_NV = logits_NV * head.logit_scale
    if head.soft_cap is not None:
        logits_NV = head.soft_cap * (logits_NV / head.soft_cap).tanh()
    return logits_NV


def add_head_gradient_(total_VD: Tensor, grad_CV: Tensor, hidden_CD: Tensor, *, first: bool) -> None:
    """Add grad.T @ hidden to the head's gradient, or overwrite it for the first chunk, without rounding to half.

    Overwriting leaves the buffer's first values unread, so that it never has to be cleared.
    """
    beta = 0 if first else 1
    if grad_CV.dtype == total_VD.dtype:
        torch.addmm(total_VD, grad_CV.T, hidden_CD, beta=beta, out=total_VD)
    elif grad_CV.is_cuda:
        torch.addmm(total_VD, grad_CV.T, hidden_CD, total_VD.dtype, beta=beta, out=total_VD)
    else:
        hidden_CD = hidden_CD.to(total_VD.dtype)
        for start in range(0, len(total_VD), CPU_SLICE):
            part_VD = total_VD[start : start + CPU_SLICE]
            grad_VC = grad_CV[:, start : start + CPU_SLICE].T.to(total_VD.dtype)
            torch.addmm(part_VD, grad_VC, hidden_CD, beta=beta, out=part_VD)


def head_problems(head: Head) -> list[str]:
    """Describe what is wrong with a head's constants."""
    problems = []
    if not 0 < head.logit_scale < math.inf:
        problems.append(f"head.logit_scale = {head.logit_scale!r} is outside (0, inf).")
    if head.soft_cap is not None and not 0 < head.soft_cap < math.inf:
        problems.append(f"head.soft_cap = {head.soft_cap!r} is outside (0, inf). Use None for no cap.")
    return problems
