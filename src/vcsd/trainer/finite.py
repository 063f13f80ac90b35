"""Are weights finite? A cheap answer on their own device: one number per tensor, and one read of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


@torch.no_grad()
def ruined(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that hold a NaN or an infinity.

    The largest absolute value tells, because a NaN is larger than anything; a sum of squares could overflow.

    >>> ruined({"a": torch.tensor([1e38, -3e38]), "b": torch.tensor([1.0, float("nan")])})
    ['b']
    """
    floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel()}
    if not floating or torch.nn.utils.get_total_norm(floating.values(), torch.inf).isfinite():
        return []
    return [name for name, tensor in floating.items() if not tensor.isfinite().all()]
