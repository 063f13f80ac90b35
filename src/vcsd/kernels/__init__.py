"""The loss head: hidden states and head weights in, the exact full-vocabulary divergence per position out.

The definition is `vcsd.core` on full logits. Three logit tensors of N x V are what the definition costs and what no
call here keeps: rows are projected in chunks, used and dropped. Implementations behind the one public function:

reference   core on full logits; what the others are tested against, and never chosen by itself.
chunked     core on a few rows at a time, plain torch, any device.
triton      one pass over each row of logits, CUDA.

Shape legend: N response positions, C rows of a chunk, V vocabulary, D hidden width of the model the tensor belongs to.
"""

from vcsd.kernels.head import CastHead, cast_head
from vcsd.kernels.loss import IMPLS, distillation_loss, which_impl
from vcsd.kernels.statistics import Statistics

__all__ = ["IMPLS", "CastHead", "Statistics", "cast_head", "distillation_loss", "which_impl"]
