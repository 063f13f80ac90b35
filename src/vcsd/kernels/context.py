"""The type of `ctx`, which autograd passes to the `forward` and `backward` of a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class AutogradContext(Protocol):
    """The `ctx` of a torch.autograd.Function. A function that keeps more than tensors adds attributes."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for the backward."""

    def set_materialize_grads(self, value: bool, /) -> None:
        """Choose whether backward gets zeros or None for an output without a gradient."""
