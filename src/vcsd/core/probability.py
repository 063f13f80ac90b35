"""Log-probabilities: the one place where logits are divided by a temperature and normalised."""

import torch
from torch import Tensor

LOG_FLOOR = -1e4
"""Used for log 0 where a finite number is needed. exp(-1e4) is 0 in every floating-point format, so no probability
changes; the authors' public code uses the same value."""


def at_least_float32(x: Tensor) -> Tensor:
    """Half-precision tensors as float32; float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def log_probs(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Next-token log-probabilities of Eqs. 3-5, at the distillation temperature T_KD.

    The paper uses one temperature for student and teacher, original and control: every distribution of the method comes
    from this function.

        logits: (..., V), any float type; -inf marks an impossible token.
        returns: (..., V), float32 or float64.

    >>> log_probs(torch.tensor([0.0, 2.0]), temperature=2.0).exp()      # softmax([0, 1])
    tensor([0.2689, 0.7311])
    """
    assert temperature > 0, f"temperature = {temperature} is not positive"
    logits = at_least_float32(logits)
    # Subtract the maximum first: dividing large logits by a small temperature could overflow.
    return ((logits - logits.detach().amax(-1, keepdim=True)) / temperature).log_softmax(-1)
