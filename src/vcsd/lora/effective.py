"""What adapters add to the weights of the base, and how far an average of factors is from an average of weights.

The teacher should be the average of the student's effective weights  W + scale * B A.  With A fixed, the product is
linear in B, and the average of B gives it exactly. With both factors trained, the teacher averages each of them,
starting from the student's own values. The product of two averages is not the average of the products: it leaves out
the covariance of A and B over the last 1 / rate steps. `relative_error` measures the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


@torch.no_grad()
def effective_changes(model: nn.Module) -> dict[str, Tensor]:
    """Return what the adapters add to each adapted weight, by the name of its layer."""
    changes: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        layer: Any = module
        for adapter in getattr(layer, "scaling", {}) if hasattr(layer, "get_delta_weight") else ():
            changes[name] = layer.get_delta_weight(adapter).detach().clone()
    return changes


def relative_error(approximate: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> float:
    """Return |approximate - exact| / |exact| over all weights.

    >>> relative_error({"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([1.0, 1.0])})
    0.7071067811865475
    """
    gap = torch.stack([(approximate[name].double() - exact[name].double()).norm() for name in exact]).norm()
    return float(gap / torch.stack([weight.double().norm() for weight in exact.values()]).norm())
