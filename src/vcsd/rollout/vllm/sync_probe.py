"""The probe of a weight sync: compares the engine's log-probabilities of its own response with the student's.

After every sync the engine answers the same question about the same image, once and briefly. The student scores that
response. With equal weights the log-probabilities differ by rounding alone. A weight that did not arrive, a vision
tower that is out of date, a feature left in a cache or a prompt that is read differently makes the difference jump.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vcsd.core.probability import log_probs
from vcsd.errors import ConfigError, RunError
from vcsd.loss.reference import full_logits
from vcsd.models.freeze import in_eval_mode
from vcsd.models.inside import inside, with_head
from vcsd.models.packed.packing import Group
from vcsd.models.score import hidden_states
from vcsd.types import Scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.models.packed.packing import Prompt

NUM_TOKENS = 16
"""Tokens that the engine samples for the probe."""

MOST = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}
"""The largest mean difference in nats, by the engine's dtype, whatever the run's own level is."""

JUMP = 5.0
"""A mean difference above this multiple of the first one is a jump, if it also exceeds `NOISE`."""

NOISE = {torch.float32: 1e-4, torch.bfloat16: 0.03, torch.float16: 0.03}
"""Mean differences below this are rounding."""


class ProbeError(RunError):
    """The engine's log-probabilities are not the student's."""


@dataclass(frozen=True)
class Gap:
    """How far the engine's log-probabilities are from the student's, in nats."""

    mean: float
    max: float


def probe_prompt(prompts: Sequence[Prompt]) -> Prompt:
    """Return the first prompt with an image, so that the probe also sees the vision tower; else the first."""
    if not prompts:
        raise ConfigError(["the first step has no usable prompt to check vLLM's weights with."])
    prompt = next((prompt for prompt in prompts if prompt.pixel_values is not None), prompts[0])
    return getattr(prompt, "original", prompt)  # of a pair, the view with the image


def student_log_probs(student: nn.Module, prompt: Prompt, response: Sequence[int]) -> Tensor:
    """Return the student's log-probability of each token of a response, at temperature 1 and without bans."""
    group = Group(prompt, [list(response)])

    def scored(model: nn.Module) -> Tensor:
        hidden_ND = hidden_states(model, [group])
        return with_head(model, lambda head: log_probs(full_logits(Scores(hidden_ND, head))))

    with in_eval_mode(student), torch.no_grad():
        log_p_NV = inside(student, scored)
    tokens = torch.tensor(list(response), device=log_p_NV.device)
    return log_p_NV.gather(1, tokens[:, None])[:, 0].float().cpu()


def gap_of(engine_log_probs: Sequence[float], student: Tensor) -> Gap:
    """Compare the log-probabilities of the same tokens."""
    difference = (torch.tensor(engine_log_probs) - student).abs()
    return Gap(difference.mean().item(), difference.max().item())


class SyncProbe:
    """Remembers the run's first gap, and refuses a jump."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self.first: float | None = None

    def check(self, gap: Gap, version: str) -> None:
        """Raise a RunError if a gap is more than rounding."""
        usual = self.first if self.first is not None else gap.mean
        limit = min(MOST[self._dtype], max(NOISE[self._dtype], JUMP * usual))
        if not gap.mean <= limit:  # NaN fails as well
            raise ProbeError(
                f"rollouts of {version} are not the student's: on the probe, the engine's log-probabilities differ "
                f"from the student's by {gap.mean:.2g} nats on average ({gap.max:.2g} at most); up to {limit:.2g} is "
                "rounding. A weight did not arrive, a cache is out of date, or the engine computes in another "
                "precision."
            )
        self.first = usual
