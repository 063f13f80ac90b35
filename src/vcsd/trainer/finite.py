"""Are weights finite? A cheap answer on their own device: one number per tensor, and one read of the result.

Of sharded weights, each rank looks at its own part, and all ranks return the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.parallel.ranks import gathered
from vcsd.parallel.sharding import local_part

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
    parts = {name: local_part(tensor) for name, tensor in tensors.items()}
    own = _ruined_here({name: part for name, part in parts.items() if part.is_floating_point() and part.numel()})
    if all(parts[name] is tensor for name, tensor in tensors.items()):
        return own
    everywhere = {name for names in gathered(own) for name in names}
    return [name for name in tensors if name in everywhere]


def _ruined_here(floating: Mapping[str, Tensor]) -> list[str]:
    if not floating or torch.nn.utils.get_total_norm(floating.values(), torch.inf).isfinite():
        return []
    return [name for name, tensor in floating.items() if not tensor.isfinite().all()]
