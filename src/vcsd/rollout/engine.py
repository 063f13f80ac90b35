"""Rollouts with transformers alone: every prompt is computed once, and its rollouts are decoded side by side.

The token distribution is that of `model.generate`. Two things differ: the prompt is computed once instead of n times,
and a rollout depends only on the model and its key (see `sampling.py`). Other batch compositions round differently in
the last bits, which can change a token where two are nearly tied; keys cannot prevent that.

A response includes its end token and nothing after it. Placeholders of images and videos are never drawn. If a model's
logits are not finite, no token can be drawn: the engine raises a RunError with the examples, or marks the rollout.

Shape legend: R rollouts of a batch, L of them still decoded, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NotRequired, Protocol, TypedDict

import torch

from vcsd.core.probability import log_probs
from vcsd.errors import ConfigError, RunError, few
from vcsd.kernels.device import free_bytes
from vcsd.models.family import base_model, family_of
from vcsd.models.freeze import in_eval_mode
from vcsd.rollout.decoder import Decoding, prefill
from vcsd.rollout.memory import CacheCost, cache_cost, rows_that_fit
from vcsd.rollout.sampling import Sampling, draw, rollout_key, uniforms
from vcsd.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vcsd.models.packed.packing import Prompt

ProgressCallback = Callable[[int, int], None]
"""Called every few tokens with the number of finished rollouts and the total."""

_LOOK_EVERY = 8
"""Steps between checks for finished rollouts: a check waits for the device."""

_KEEP_ABOVE = 7 / 8
"""Finished rows stay in the batch while more than this share is alive: dropping them copies the cache."""

_KEEP_ABOVE_GRAPH = 1 / 2
"""The same with a graph, which must be recorded again when rows are dropped."""

_DRAW_AHEAD = 64
"""Random numbers generated at a time for every rollout."""

_NAMED = 3
"""How many examples an error names."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Rollouts in the order of prompts, then of rollout index; on request with each token's log-probability.

    Log-probabilities are the model's own, before temperature, penalties and bans.
    """

    rollouts: tuple[Rollout, ...]
    log_probs: tuple[Tensor, ...] | None = None
    version: str | None = None
    """The version of the weights, in an engine with a copy of its own; None if the student itself sampled."""


class SampleKeywords(TypedDict):
    """The keywords of `RolloutEngine.sample`, for engines that hand them on to another one."""

    num_rollouts: int
    seed: int
    step: NotRequired[int]
    with_log_probs: NotRequired[bool]
    progress: NotRequired[ProgressCallback | None]


class RolloutEngine(Protocol):
    """The interface of engines that draw rollouts: transformers or vLLM."""

    def sample(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        num_rollouts: int,
        seed: int,
        step: int = 0,
        with_log_probs: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Sampled:
        """Draw `num_rollouts` rollouts of every prompt."""


@dataclass(frozen=True)
class _Job:
    """One rollout to draw: which prompt, which index, which random numbers."""

    prompt: int
    index: int
    key: str


class TransformersEngine:
    """Draws rollouts from a model in this process.

    compute_dtype runs a whole batch under one autocast, so that float32 weights are cast once and not in every step.
    Without it, the caller's autocast applies, if any. max_rows limits the rollouts decoded at once; by default the
    limit follows from free memory. use_graph replays the decoding step as a CUDA graph, in families that share
    prefixes. keeps_broken returns rollouts with logits that are not finite, marked by their `stop`, instead of raising
    a RunError.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        tokenizer: object = None,
        compute_dtype: torch.dtype | None = None,
        max_rows: int | None = None,
        use_graph: bool = False,
        keeps_broken: bool = False,
    ) -> None:
        _refuse_below_one("max_rows", max_rows)
        self.model, self.compute_dtype, self.max_rows, self.use_graph = model, compute_dtype, max_rows, use_graph
        self.keeps_broken = keeps_broken
        self.family, self.base = family_of(model), base_model(model)
        self.use_graph &= self.family.shares_prefix
        self.family.prepare(model)
        self.vision_ids = sorted(self.family.vision_token_ids(model))
        self.end_ids = sorted(self.family.end_token_ids(model, tokenizer))

    def sample(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        num_rollouts: int,
        seed: int,
        step: int = 0,
        with_log_probs: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Sampled:
        """Draw `num_rollouts` rollouts of every prompt. The model samples in eval mode, and then gets its mode back."""
        _refuse_below_one("num_rollouts", num_rollouts)
        jobs = [
            _Job(p, i, rollout_key(seed, step, prompt.example_id, i))
            for p, prompt in enumerate(prompts)
            for i in range(num_rollouts)
        ]
        drawn: dict[_Job, tuple[Rollout, Tensor | None]] = {}
        # Prompts of similar length share a batch, for less padding. The longest come first: if memory is short, the
        # first batch fails.
        todo = sorted(jobs, key=lambda job: (-len(prompts[job.prompt].input_ids), job.prompt, job.index))
        rows = self.max_rows or self._rows(prompts, sampling, num_rollouts)
        with _decoding(self.model, self.compute_dtype):
            while todo:
                batch = todo[: rows - rows % num_rollouts if rows > num_rollouts else rows]
                state = self._attempt(prompts, batch, sampling, with_log_probs, _told(progress, len(drawn), len(jobs)))
                if state is None:
                    rows = len(batch) // 2
                    continue
                names = [prompts[job.prompt].example_id for job in batch]
                drawn |= zip(batch, state.results(names), strict=True)
                if not self.keeps_broken:
                    _refuse_broken([drawn[job][0] for job in batch])
                todo = todo[len(batch) :]
        logs = tuple(log for job in jobs if (log := drawn[job][1]) is not None)
        return Sampled(tuple(drawn[job][0] for job in jobs), logs if with_log_probs else None)

    def begin(self, prompts: Sequence[Prompt]) -> Decoding:
        """Compute each prompt once; decoding continues from there."""
        return prefill(self.model, prompts)

    def cache_cost(self) -> CacheCost:
        """The memory that a rollout needs while it is decoded."""
        return cache_cost(self.base, self.compute_dtype or self.base.dtype)

    def _rows(self, prompts: Sequence[Prompt], sampling: Sampling, num_rollouts: int) -> int:
        cost = self.cache_cost()
        longest = max((len(prompt.input_ids) for prompt in prompts), default=1)
        device, is_shared = self.base.device, self.family.shares_prefix
        free = free_bytes(device) if device.type == "cuda" else None  # on the CPU the number of rows is fixed
        return rows_that_fit(cost, free, longest, sampling.max_new_tokens, num_rollouts, is_shared=is_shared)

    def _attempt(
        self,
        prompts: Sequence[Prompt],
        batch: Sequence[_Job],
        sampling: Sampling,
        with_log_probs: bool,
        tell: Callable[[int], None],
    ) -> _Drawing | None:
        """Draw a batch; None if it does not fit into memory and can be halved."""
        try:
            return self._draw_batch(prompts, batch, sampling, with_log_probs, tell)
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                raise
        torch.cuda.empty_cache()  # here, not in the handler: the traceback held the batch's tensors
        return None

    def _draw_batch(
        self,
        prompts: Sequence[Prompt],
        batch: Sequence[_Job],
        sampling: Sampling,
        with_log_probs: bool,
        tell: Callable[[int], None],
    ) -> _Drawing:
        slots = {p: slot for slot, p in enumerate(dict.fromkeys(job.prompt for job in batch))}
        device = self.base.device
        decoder = self.begin([prompts[p] for p in slots])
        prompt_R = torch.tensor([slots[job.prompt] for job in batch], device=device)
        decoder.fork(prompt_R, sampling.max_new_tokens, use_graph=self.use_graph)
        state = _Drawing(batch, sampling, decoder.logits, self.vision_ids, self.end_ids, with_log_probs)
        logits_LV = decoder.logits
        for position in range(sampling.max_new_tokens):
            token_L = state.draw(logits_LV, position)
            if position + 1 == sampling.max_new_tokens:
                break
            if (position + 1) % _LOOK_EVERY == 0:
                alive = state.alive()
                tell(len(batch) - len(alive))
                if not len(alive):
                    break
                if len(alive) <= (_KEEP_ABOVE_GRAPH if self.use_graph else _KEEP_ABOVE) * len(token_L):
                    decoder.keep(alive)
                    state.keep(alive)
                    token_L = token_L[alive]
            logits_LV = decoder.step(token_L)
        tell(len(batch))
        return state


def ids_to_ban(vision_ids: Sequence[int], logits_RV: Tensor) -> Tensor:
    """Placeholders as indices into logits. Some families (Mllama) have no logit for them."""
    possible = [token for token in vision_ids if token < logits_RV.shape[1]]
    return torch.tensor(possible, dtype=torch.long, device=logits_RV.device)


def _refuse_below_one(name: str, count: int | None) -> None:
    if count is not None and count < 1:
        raise ConfigError([f"{name} = {count} must be at least 1."])


def _refuse_broken(rollouts: Sequence[Rollout]) -> None:
    """Raise a RunError if the logits of a rollout were not finite."""
    broken = [rollout for rollout in rollouts if rollout.stop == "broken"]
    if broken:
        names = few([repr(name) for name in dict.fromkeys(rollout.example_id for rollout in broken)], _NAMED)
        raise RunError(
            f"the model's logits are not finite in {len(broken)} of {len(rollouts)} rollouts, of example {names}, the "
            f"first after {len(broken[0].token_ids) - 1} tokens: no token can be drawn. Look for NaN in the "
            "model's weights, and compute in bfloat16 or float32."
        )


def _told(progress: ProgressCallback | None, before: int, total: int) -> Callable[[int], None]:
    """Turn progress within a batch into progress of the whole call."""
    return lambda finished: progress(before + finished, total) if progress is not None else None


class _Drawing:
    """The tokens of a batch while they are drawn."""

    def __init__(
        self,
        jobs: Sequence[_Job],
        sampling: Sampling,
        like: Tensor,
        vision_ids: list[int],
        end_ids: list[int],
        with_log_probs: bool,
    ) -> None:
        self.jobs, self.sampling, device = jobs, sampling, like.device
        shape = (len(jobs), sampling.max_new_tokens)
        self.tokens = torch.full(shape, -1, device=device)
        self.log_probs = torch.zeros(shape, dtype=torch.float32, device=device) if with_log_probs else None
        self.seen_RV = torch.zeros_like(like, dtype=torch.bool) if sampling.presence_penalty else None
        self.is_done_R = torch.zeros(len(jobs), dtype=torch.bool, device=device)
        self.is_broken_R = torch.zeros_like(self.is_done_R)
        self.live_L = torch.arange(len(jobs), device=device)
        self.banned = ids_to_ban(vision_ids, like)
        self.ends = torch.tensor(end_ids, device=device)
        self.end_ids = set(end_ids)

    def draw(self, logits_LV: Tensor, position: int) -> Tensor:
        """Draw and store the next token of every live row (L,)."""
        live = self.live_L
        if position % _DRAW_AHEAD == 0:
            ahead = uniforms([job.key for job in self.jobs], position, _DRAW_AHEAD)
            self.uniform_RA = ahead.to(self.tokens.device)
        allowed_LV = logits_LV.index_fill(1, self.banned, -torch.inf)
        seen_LV = None if self.seen_RV is None else self.seen_RV[live]
        token_L = draw(allowed_LV, self.uniform_RA[live, position % _DRAW_AHEAD], self.sampling, seen_LV)
        # If logits are not finite, no token can be drawn and the rollout ends. Marked here, checked after the batch.
        is_broken_L = token_L >= logits_LV.shape[1]
        self.is_broken_R[live] |= is_broken_L & ~self.is_done_R[live]
        token_L = torch.where(is_broken_L, self.ends[0], token_L)
        self.tokens[live, position] = token_L
        self.is_done_R[live] |= torch.isin(token_L, self.ends)
        if self.seen_RV is not None:
            self.seen_RV[live, token_L] = True
        if self.log_probs is not None:
            chosen = log_probs(logits_LV).gather(1, token_L[:, None])[:, 0]
            self.log_probs[live, position] = chosen.to(self.log_probs.dtype)
        return token_L

    def alive(self) -> Tensor:
        """The indices among live rows of those that have not ended."""
        return (~self.is_done_R[self.live_L]).nonzero()[:, 0]

    def keep(self, alive: Tensor) -> None:
        """Keep some of the live rows only."""
        self.live_L = self.live_L[alive]

    def results(self, example_ids: Sequence[str]) -> Iterator[tuple[Rollout, Tensor | None]]:
        """The rollout of every row up to its end token, and its log-probabilities. Waits for the device once."""
        all_log_probs = None if self.log_probs is None else self.log_probs.cpu()
        rows = zip(self.jobs, example_ids, self.tokens.tolist(), self.is_broken_R.tolist(), strict=True)
        for row, (job, example_id, ids, is_broken) in enumerate(rows):
            end = next((i for i, token in enumerate(ids) if token in self.end_ids), None)
            length = len(ids) if end is None else end + 1
            stop: Literal["end", "length", "broken"] = "length" if end is None else "end"
            rollout = Rollout(example_id, job.index, tuple(ids[:length]), "broken" if is_broken else stop)
            yield rollout, None if all_log_probs is None else all_log_probs[row, :length].clone()


@contextmanager
def _decoding(model: nn.Module, compute_dtype: torch.dtype | None) -> Iterator[None]:
    """Switch to eval mode without gradients. In train mode, gradient checkpointing silently drops the cache."""
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    # Deterministic mode refuses cumsum on CUDA, whose last bits may vary: too little to change a token.
    torch.use_deterministic_algorithms(is_deterministic, warn_only=True)
    device = base_model(model).device.type
    precision = nullcontext() if compute_dtype is None else torch.autocast(device, compute_dtype)
    try:
        with in_eval_mode(model), torch.no_grad(), precision:
            yield
    finally:
        torch.use_deterministic_algorithms(is_deterministic, warn_only=only_warns)
