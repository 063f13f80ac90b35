"""From divergences per position to the loss of a step. Only this module divides by counts and applies the loss scale.

A step is split over micro-batches and ranks. Each calls a reduction on its own positions with the *step's* totals, and
the results add up to the loss: any split gives the same value and the same gradient. DDP and FSDP2 average gradients
over ranks; `num_ranks` undoes that average.

`loss_scale` is the paper's T_KD² (Eq. 10), for every divergence; `vcsd.Method` sets it.
"""

import torch
from torch import Tensor

from vcsd.core.probability import at_least_float32


def response_weights(
    lengths: Tensor,
    *,
    num_responses: int,
    loss_scale: float = 1.0,
    num_ranks: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The factor of each position in Eq. 10's expectation: scale / (|y| M).

    The fused loss computes its gradient in the forward pass, so it needs the factors in advance.

        lengths: (M,), the lengths |y| of this micro-batch's responses, which lie end to end.
        num_responses: M of the whole step, over all micro-batches and ranks.
        returns: (N,), one factor per position.

    >>> response_weights(torch.tensor([2, 1]), num_responses=2)
    tensor([0.2500, 0.2500, 0.5000])
    """
    scale = _scale(loss_scale, num_ranks, num_responses, int((lengths > 0).sum()))
    return (1.0 / lengths.to(dtype)).repeat_interleave(lengths) * scale


def token_weights(
    lengths: Tensor,
    *,
    num_tokens: int,
    loss_scale: float = 1.0,
    num_ranks: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The factor of each position in the mean over all tokens of the step: scale / tokens, the same for all.

        lengths: (M,), the lengths of this micro-batch's responses.
        num_tokens: of the whole step, over all micro-batches and ranks.
        returns: (N,).

    >>> token_weights(torch.tensor([2, 1]), num_tokens=4)
    tensor([0.2500, 0.2500, 0.2500])
    """
    num_here = int(lengths.sum())
    scale = _scale(loss_scale, num_ranks, num_tokens, num_here)
    return torch.full((num_here,), scale, dtype=dtype, device=lengths.device)


def response_mean(
    divergence: Tensor, lengths: Tensor, *, num_responses: int, loss_scale: float = 1.0, num_ranks: int = 1
) -> Tensor:
    """Eq. 10's expectation: the mean over a response's positions, then over responses, so each response counts equally.

    Empty responses contribute nothing; count in `num_responses` only those with at least one token.

        divergence: (N,), the responses of this micro-batch end to end.
        lengths: (M,), their lengths |y|, which add up to N.
        num_responses: of the whole step, over all micro-batches and ranks.
        returns: a scalar.

    >>> import torch
    >>> response_mean(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([2, 1]), num_responses=2)      # (2 + 5) / 2
    tensor(3.5000)
    """
    assert divergence.dim() == 1, f"positions lie in one dimension, not {tuple(divergence.shape)}"
    assert int(lengths.sum()) == len(divergence), f"{len(divergence)} positions, lengths {lengths.tolist()}"
    divergence = at_least_float32(divergence)
    weights = response_weights(
        lengths.to(divergence.device),
        num_responses=num_responses,
        loss_scale=loss_scale,
        num_ranks=num_ranks,
        dtype=divergence.dtype,
    )
    return (divergence * weights).sum()


def token_mean(divergence: Tensor, *, num_tokens: int, loss_scale: float = 1.0, num_ranks: int = 1) -> Tensor:
    """The mean over all response tokens of the step, so that long responses count more, as in the authors' code.

        divergence: (N,).
        num_tokens: of the whole step, over all micro-batches and ranks.
        returns: a scalar.

    >>> import torch
    >>> token_mean(torch.tensor([1.0, 3.0, 5.0]), num_tokens=3)
    tensor(3.)
    """
    assert divergence.dim() == 1, f"positions lie in one dimension, not {tuple(divergence.shape)}"
    divergence = at_least_float32(divergence)
    lengths = torch.tensor([len(divergence)], device=divergence.device)
    weights = token_weights(
        lengths, num_tokens=num_tokens, loss_scale=loss_scale, num_ranks=num_ranks, dtype=divergence.dtype
    )
    return (divergence * weights).sum()


def _scale(loss_scale: float, num_ranks: int, total: int, num_here: int) -> float:
    """The factor of one item. A step without items has loss and gradient zero."""
    assert total >= num_here, f"{num_here} items in this micro-batch, but {total} in the whole step"
    return loss_scale * num_ranks / total if total else 0.0
