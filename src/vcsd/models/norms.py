"""Root-mean-square norms in one kernel.

transformers writes a norm as half a dozen element-wise operations, each of which reads and writes all hidden states.
torch has one kernel for all of them. The result is the same function with one rounding less in half precision, hence
not bit for bit the stock model's: it is used where a caller asks for it.
"""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn


def _times_weight(self: Any, hidden_states: Tensor) -> Tensor:
    """Normalised, times weight, in the wider type of the two: Qwen3-VL's."""
    dtype = torch.promote_types(hidden_states.dtype, self.weight.dtype)
    weight = self.weight.to(dtype)
    return functional.rms_norm(hidden_states.to(dtype), weight.shape, weight, self.variance_epsilon)


def _times_one_plus_weight(self: Any, x: Tensor) -> Tensor:
    """Normalised, times 1 + weight, in float32, as x: Qwen3.5's."""
    weight = 1.0 + self.weight.float()
    return functional.rms_norm(x.float(), weight.shape, weight, self.eps).type_as(x)


_FUSED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "Qwen3VLTextRMSNorm": _times_weight,
    "Qwen3VLMoeTextRMSNorm": _times_weight,
    "Qwen3_5RMSNorm": _times_one_plus_weight,
    "Qwen3_5MoeRMSNorm": _times_one_plus_weight,
}


def fuse_norms(model: nn.Module) -> int:
    """Let the text model's norms use torch's kernel; how many do. Before the model is wrapped or copied."""
    norms: list[Any] = [module for module in model.modules() if type(module).__name__ in _FUSED]
    for norm in norms:
        norm.forward = MethodType(_FUSED[type(norm).__name__], norm)
    return len(norms)


def unfuse_norms(model: nn.Module) -> None:
    """Back to the stock norms."""
    for module in model.modules():
        if type(module).__name__ in _FUSED:
            vars(module).pop("forward", None)
