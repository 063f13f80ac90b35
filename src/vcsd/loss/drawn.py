"""The tokens that the student sampled, for the statistics and for importance weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Drawn:
    """Sampled tokens (N,), and the log-probability (N,) that each had for the sampler, if it is known."""

    token_ids_N: Tensor
    log_p_N: Tensor | None = None

    def rows(self, start: int, stop: int) -> Drawn:
        """The positions from `start` to `stop`."""
        return Drawn(self.token_ids_N[start:stop], None if self.log_p_N is None else self.log_p_N[start:stop])
