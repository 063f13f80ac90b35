"""The contrast between two views of the image, and the plausible tokens that it may act on."""

import math
from collections.abc import Collection

import torch
from torch import Tensor

from vcsd.core.probability import LOG_FLOOR, at_least_float32

TIE_SLACK = 1e-6
"""Nats. A token this close below the threshold counts as a tie and stays in the support despite rounding of the
logarithms. float32 rounds logits beyond about 10 more coarsely than this."""


def contrast(log_p_original: Tensor, log_p_control: Tensor, end_token_ids: Collection[int] = ()) -> Tensor:
    """Δ̃_t(v) of Eqs. 6 and 8: log p(v | image) - log p(v | control), and zero for end tokens.

    Both sides are floored at LOG_FLOOR first, so a token that one view rules out (-inf) has a large, finite contrast.

        log_p_original, log_p_control: (..., V).
        end_token_ids: indices into V.
        returns: (..., V), between LOG_FLOOR and -LOG_FLOOR.

    >>> contrast(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-2.0, -2.0, -1.0]), end_token_ids=[2])
    tensor([1., 0., 0.])
    """
    assert log_p_original.shape == log_p_control.shape, (log_p_original.shape, log_p_control.shape)
    delta = at_least_float32(log_p_original).clamp(min=LOG_FLOOR) - at_least_float32(log_p_control).clamp(min=LOG_FLOOR)
    return delta.index_fill(-1, index_tensor(end_token_ids, delta), 0.0)


def plausible_support(log_p_original: Tensor, beta: float) -> Tensor:
    """S_t(β) of Eq. 7: the tokens at least β times as probable, given the image, as the most probable one.

    Computed in log space. Ties at the threshold are inside (see TIE_SLACK). β = 0 is the full vocabulary; a token
    with log-probability -inf is outside for every β.

        log_p_original: (..., V).
        returns: (..., V), bool.

    >>> plausible_support(torch.tensor([0.6, 0.3, 0.06, 0.04]).log(), beta=0.1)
    tensor([ True,  True,  True, False])
    """
    assert 0 <= beta <= 1, f"beta = {beta} is outside [0, 1]"
    log_p = at_least_float32(log_p_original)
    possible = log_p != -math.inf
    if beta == 0:
        return possible
    threshold = log_p.amax(-1, keepdim=True) + (math.log(beta) - TIE_SLACK)
    return possible & (log_p >= threshold)


def index_tensor(token_ids: Collection[int], like: Tensor) -> Tensor:
    """Token ids as an index tensor on the device of `like`."""
    return torch.tensor(sorted(token_ids), dtype=torch.long, device=like.device)
