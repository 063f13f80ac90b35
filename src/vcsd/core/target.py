"""The contrast-shaped teacher target q*, the distribution the student is distilled towards."""

import math
from collections.abc import Collection

from torch import Tensor

from vcsd.core.contrast import contrast, index_tensor, plausible_support
from vcsd.core.probability import at_least_float32


def shape_target(
    log_p_original: Tensor,
    log_p_control: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 0.1,
    anchor: float = 1.0,
    end_token_ids: Collection[int] = (),
    end_tokens_keep_anchor: bool = False,
) -> Tensor:
    """log q*_t of Eq. 8, with the anchor coefficient λ of Eq. 17:  λ log p(v | image) + α Δ̃(v), normalised over S_t(β).

    alpha = 0 gives the original distribution renormalised on its support; alpha = 0 with beta = 0 gives it unchanged.
    `end_tokens_keep_anchor` scores an end token log p(v | image) whatever the anchor is, as the authors' public code
    does; the formula gives it λ log p(v | image). The two agree at anchor = 1.

        log_p_original, log_p_control: (..., V), at the same temperature.
        returns: (..., V), log-probabilities that sum to one; -inf off the support.

    >>> import torch
    >>> original, control = torch.tensor([0.5, 0.4, 0.1]).log(), torch.tensor([0.5, 0.1, 0.4]).log()
    >>> shape_target(original, control, beta=0.5).exp()        # 0.5 * 1 against 0.4 * 4
    tensor([0.2381, 0.7619, 0.0000])
    """
    assert alpha >= 0, f"alpha = {alpha} is negative"
    log_p = at_least_float32(log_p_original)
    anchored = anchor * log_p
    if end_tokens_keep_anchor:
        ends = index_tensor(end_token_ids, log_p)
        anchored = anchored.index_copy(-1, ends, log_p.index_select(-1, ends))
    score = anchored + alpha * contrast(log_p, log_p_control, end_token_ids)
    return score.masked_fill(~plausible_support(log_p, beta), -math.inf).log_softmax(-1)
