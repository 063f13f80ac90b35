"""The loss: hidden states and heads in, the exact full-vocabulary divergence out.

`vcsd.core` on full logits defines the loss. That needs three N x V tensors of logits; the fast paths project a chunk of
rows at a time, use it and drop it. One public function, three implementations:

reference   `vcsd.core` on full logits. The others are tested against it; "auto" never picks it.
chunked     `vcsd.core` on a few rows at a time, in plain torch on any device.
triton      One pass over each row of logits, on CUDA.

Names are imported on first use: `vcsd.method` imports `vcsd.loss.objective` and must not load torch.

Shape legend: N response positions, C rows of a chunk, V vocabulary, D hidden width of the model the tensor belongs to.
"""

from typing import TYPE_CHECKING

from vcsd import on_first_use

if TYPE_CHECKING:
    from vcsd.loss.distillation import IMPLS, distillation_loss, which_impl
    from vcsd.loss.head import cast_head
    from vcsd.loss.objective import Objective
    from vcsd.loss.statistics import Statistics

__all__ = ["IMPLS", "Objective", "Statistics", "cast_head", "distillation_loss", "which_impl"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "distillation": "IMPLS distillation_loss which_impl",
        "head": "cast_head",
        "objective": "Objective",
        "statistics": "Statistics",
    },
)
