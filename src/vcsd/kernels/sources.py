"""Which tokens a short causal convolution over a packed row reads, and conversely which tokens read a token.

    source[t, k]   the token K - 1 - k steps before t on t's own path through the tree; -1 before the path begins

Most taps read what a plain convolution would: tap k of token s + K - 1 - k reads token s. The exceptions are the first
K - 1 tokens of a segment that does not directly follow its parent in the row; these readers are listed by source.

    row       0 1 2 | 3 4 | 5       two segments, 3 4 and 5, continue 0 1 2; K = 3
    source    2 reads 0 1 2;  4 reads 2 3 4;  5 reads 1 2 5
    plain     all taps except those with which 5 reads 1 and 2; these are listed under 1 and 2

Shape legend: T tokens, K taps, E listed readers.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from vcsd.kernels.device import sent

MAX_TAPS = 4
"""The limit of the kernel: each tap has its own accumulator in the sum over tokens."""


class Sources:
    """The tables of one row, built on the CPU and copied to a device asynchronously."""

    def __init__(self, source_TK: Tensor, device: torch.device) -> None:
        self._cpu_source_TK, self.device = source_TK, device
        self.num_tokens, self.num_taps = source_TK.shape

    @cached_property
    def source_TK(self) -> Tensor:
        """The token that each tap reads, -1 for none (int32)."""
        return sent(self._cpu_source_TK.to(torch.int32).contiguous(), self.device)

    @cached_property
    def elsewhere(self) -> tuple[Tensor, Tensor]:
        """Readers of each token that a plain convolution does not have: starts (T + 1,) and t * K + k (E,).

        The readers of token s are those from starts[s] to starts[s + 1], in rising order (int32).
        """
        T, K = self._cpu_source_TK.shape
        plain_TK = torch.arange(T)[:, None] + torch.arange(1 - K, 1)
        is_listed = (self._cpu_source_TK >= 0) & (self._cpu_source_TK != plain_TK)
        place_E = is_listed.flatten().nonzero()[:, 0]
        source_E = self._cpu_source_TK.flatten()[place_E]
        num_T = torch.bincount(source_E, minlength=T)
        starts = torch.cat([num_T.new_zeros(1), num_T.cumsum(0)])
        rising_E = place_E[source_E.argsort(stable=True)]
        return sent(starts.to(torch.int32), self.device), sent(rising_E.to(torch.int32), self.device)
