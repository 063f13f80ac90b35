"""Sampling the rollouts of a step: each rank draws those of its share of the prompts, then the ranks exchange them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vcsd.batch import gather
from vcsd.errors import ConfigError, NoRoomError
from vcsd.parallel.exchange import all_rollouts
from vcsd.parallel.ranks import num_ranks, this_rank, where_it_fits
from vcsd.parallel.split import balanced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vcsd.batch import Batch, Shown
    from vcsd.rollout.engine import RolloutEngine, Sampled
    from vcsd.rollout.sampling import Sampling

MAX_AHEAD = 8
"""The largest `steps_ahead`. One step hides sampling behind the update; further ones only make rollouts older."""


@dataclass(frozen=True)
class RolloutSettings:
    """How the student answers: rollouts per prompt, how a token is drawn, the seed, and how many steps ahead."""

    sampling: Sampling
    num_per_prompt: int = 8
    seed: int = 0
    steps_ahead: int = 0

    def __post_init__(self) -> None:
        if self.num_per_prompt < 1:
            raise ConfigError([f"num_per_prompt = {self.num_per_prompt} must be at least 1. 8 is the paper's value."])
        if not 0 <= self.steps_ahead <= MAX_AHEAD:
            raise ConfigError(
                [f"rollout.steps_ahead = {self.steps_ahead} is outside [0, {MAX_AHEAD}]. 0 is the paper's value."]
            )


def sample_share(
    engine: RolloutEngine,
    prompts: Sequence[Shown],
    rollouts: RolloutSettings,
    step: int,
    *,
    with_log_probs: bool = False,
) -> Sampled:
    """Let the student answer this rank's share of the prompts. Exchanges nothing, so that a thread may call it."""
    share = balanced([len(prompt.student) for prompt in prompts], num_ranks(), evenly=True)[this_rank()]
    return engine.sample(
        [prompts[index].student for index in share],
        rollouts.sampling,
        num_rollouts=rollouts.num_per_prompt,
        seed=rollouts.seed,
        step=step,
        with_log_probs=with_log_probs,
    )


def of_all_ranks(prompts: Sequence[Shown], own: Sampled) -> Batch:
    """Exchange the ranks' shares, and return the whole batch. Collective."""
    log_probs = None if own.log_probs is None else [logs.tolist() for logs in own.log_probs]
    rollouts = all_rollouts(own.rollouts, log_probs, [prompt.example.id for prompt in prompts])
    return replace(gather(prompts, *rollouts), version=own.version)


def where_rollouts_fit(sample: Callable[[], Sampled]) -> Sampled:
    """Sample on all ranks. If not even one rollout fits into memory somewhere, all raise a NoRoomError."""
    sampled = where_it_fits(sample)
    if sampled is None:
        raise NoRoomError(
            "out of memory while one rollout was decoded alone. Lower model.max_pixels or rollout.max_new_tokens, or "
            "train LoRA adapters (lora.rank: 32)."
        )
    return sampled
