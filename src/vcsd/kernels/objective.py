"""What is computed, apart from the tensors: the fields of a method that shape target and divergence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vcsd.errors import ConfigError, did_you_mean

DIVERGENCES = ("forward_kl", "reverse_kl", "jensen_shannon")


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Target shape, divergence and temperature. Checked when built; names and meaning as in `vcsd.Method`.

    >>> Objective(
    ...     alpha=1.0, beta=0.1, anchor=1.0, end_token_ids=(151645,), end_tokens_keep_anchor=False,
    ...     divergence="forward_kl", js_weight=0.5, log_floor=-1e4, temperature=2.0,
    ... ).beta
    0.1
    """

    alpha: float
    beta: float
    anchor: float
    end_token_ids: tuple[int, ...]
    end_tokens_keep_anchor: bool
    divergence: str
    js_weight: float
    log_floor: float
    temperature: float

    def __post_init__(self) -> None:
        problems = []
        if self.divergence not in DIVERGENCES:
            problems.append(
                f"divergence = {self.divergence!r} is not a choice. {did_you_mean(self.divergence, DIVERGENCES)}"
            )
        for name, allowed, inside in (
            ("alpha", "[0, inf)", 0 <= self.alpha < math.inf),
            ("beta", "[0, 1]", 0 <= self.beta <= 1),
            ("anchor", "[0, inf)", 0 <= self.anchor < math.inf),
            ("js_weight", "(0, 1)", 0 < self.js_weight < 1),
            ("log_floor", "(-inf, 0)", -math.inf < self.log_floor < 0),
            ("temperature", "(0, inf)", 0 < self.temperature < math.inf),
        ):
            if not inside:
                problems.append(f"{name} = {getattr(self, name)!r} is outside {allowed}.")
        if problems:
            raise ConfigError(problems)
