"""Rollouts with transformers alone: every prompt is computed once, its rollouts are decoded side by side.

The token distribution is that of `model.generate`; what differs is the cost (the prompt once instead of n times), and
that a rollout depends on nothing but the model and its key: see `sampling.py`. Batches of other composition round
differently in the last bits, which can change a token where two are nearly tied; keys cannot prevent that.

A response includes its end token and nothing after it. The placeholders of images and videos are never drawn. Where a
model's logits are not finite there is nothing to draw: a RunError, which names the examples, or a rollout marked so.

Shape legend: R rollouts of a batch, L of them still decoded, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from vcsd.core.probability import log_probs
from vcsd.errors import ConfigError, RunError
from vcsd.models.family import base_model, family_of
from vcsd.rollout.decoder import Decoding, prefill
from vcsd.rollout.memory import CacheCost, cache_cost, free_bytes, rows_that_fit
from vcsd.rollout.sampling import Sampling, draw, rollout_key, uniforms
from vcsd.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vcsd.models.packing import Prompt

Progress = Callable[[int, int], None]
"""Called every few tokens with the number of finished rollouts and of all."""

_LOOK_EVERY = 8
"""Steps between looks at what has finished: a look waits for the device."""

_KEEP_ABOVE = 7 / 8
"""Finished rows stay in the batch while more than this share is alive: dropping them copies the cache."""

_KEEP_ABOVE_GRAPH = 1 / 2
"""The same with a graph, which has to be recorded again."""

_DRAW_AHEAD = 64
"""Random numbers made at a time for every rollout."""

_NAMED = 3
"""Examples that an error names."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Rollouts in the order of prompts, then of rollout index; and, if asked for, each token's log-probability.

    Log-probabilities are the model's own, before temperature, penalties and bans.
    """

    rollouts: tuple[Rollout, ...]
    log_probs: tuple[Tensor, ...] | None = None


@dataclass(frozen=True)
class _Job:
    """One rollout to draw: which prompt, which index, which random numbers."""

    prompt: int
    index: int
    key: str


class TransformersEngine:
    """Draws rollouts from a model in this process.

    compute_dtype runs a whole batch under one autocast: float32 weights are then cast once, not in every step. Without
    it, the caller's autocast applies where there is one.
    max_rows bounds the rollouts decoded at once; by default the bound follows from free memory. use_graph replays the
    decoding step as a CUDA graph, in families that share prefixes. keeps_broken returns rollouts that met logits which
    are not finite, marked by their `stop`, instead of raising a RunError: for callers that look at the mark, or at the
    loss.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        tokenizer: Any = None,
        compute_dtype: torch.dtype | None = None,
        max_rows: int | None = None,
        use_graph: bool = False,
        keeps_broken: bool = False,
    ) -> None:
        _refuse_none("max_rows", max_rows)
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
        progress: Progress | None = None,
    ) -> Sampled:
        """Draw `num_rollouts` answers to every prompt. The model is in eval mode meanwhile, and restored after."""
        _refuse_none("num_rollouts", num_rollouts)
        jobs = [
            _Job(p, i, rollout_key(seed, step, prompt.example_id, i))
            for p, prompt in enumerate(prompts)
            for i in range(num_rollouts)
        ]
        found: dict[_Job, tuple[Rollout, Tensor | None]] = {}
        # Prompts of similar length share a batch: less padding. The longest first: short memory shows at once.
        todo = sorted(jobs, key=lambda job: (-len(prompts[job.prompt].input_ids), job.prompt, job.index))
        rows = self.max_rows or self._rows(prompts, sampling, num_rollouts)
        with _decoding(self.model, self.compute_dtype):
            while todo:
                batch = todo[: rows - rows % num_rollouts if rows > num_rollouts else rows]
                state = self._attempt(prompts, batch, sampling, with_log_probs, _told(progress, len(found), len(jobs)))
                if state is None:
                    rows = len(batch) // 2
                    continue
                for row, job in enumerate(batch):
                    found[job] = state.result(row, prompts[job.prompt].example_id)
                if not self.keeps_broken:
                    _refuse_broken([found[job][0] for job in batch])
                todo = todo[len(batch) :]
        logs = tuple(log for job in jobs if (log := found[job][1]) is not None)
        return Sampled(tuple(found[job][0] for job in jobs), logs if with_log_probs else None)

    def begin(self, prompts: Sequence[Prompt]) -> Decoding:
        """One pass over each prompt; what follows is decoded from there."""
        return prefill(self.model, prompts)

    def cache_cost(self) -> CacheCost:
        """What a rollout costs in memory while it is decoded."""
        return cache_cost(self.base, self.compute_dtype or self.base.dtype)

    def _rows(self, prompts: Sequence[Prompt], sampling: Sampling, num_rollouts: int) -> int:
        cost = self.cache_cost()
        longest = max((len(prompt.input_ids) for prompt in prompts), default=1)
        free, is_shared = free_bytes(self.base.device), self.family.shares_prefix
        return rows_that_fit(cost, free, longest, sampling.max_new_tokens, num_rollouts, is_shared=is_shared)

    def _attempt(
        self,
        prompts: Sequence[Prompt],
        batch: Sequence[_Job],
        sampling: Sampling,
        with_log_probs: bool,
        tell: Callable[[int], None],
    ) -> _Batch | None:
        """Draw a batch, or None if it does not fit into memory and could be halved."""
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
    ) -> _Batch:
        slots = {p: slot for slot, p in enumerate(dict.fromkeys(job.prompt for job in batch))}
        device = self.base.device
        decoder = self.begin([prompts[p] for p in slots])
        prompt_R = torch.tensor([slots[job.prompt] for job in batch], device=device)
        decoder.fork(prompt_R, sampling.max_new_tokens, use_graph=self.use_graph)
        state = _Batch(batch, sampling, decoder.logits, self.vision_ids, self.end_ids, with_log_probs)
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
    """Placeholders as indices into logits. Some families (Mllama) have no logit for theirs."""
    possible = [token for token in vision_ids if token < logits_RV.shape[1]]
    return torch.tensor(possible, dtype=torch.long, device=logits_RV.device)


def _refuse_none(name: str, count: int | None) -> None:
    if count is not None and count < 1:
        raise ConfigError([f"{name} = {count} must be at least 1."])


def _refuse_broken(rollouts: Sequence[Rollout]) -> None:
    """Raise a RunError if a model could not be drawn from."""
    broken = [rollout for rollout in rollouts if rollout.stop == "broken"]
    if broken:
        ids = [repr(name) for name in dict.fromkeys(rollout.example_id for rollout in broken)]
        names = ", ".join(ids[:_NAMED]) + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")
        raise RunError(
            f"the model's logits are not finite in {len(broken)} of {len(rollouts)} answers, to example {names}, the "
            f"first after {len(broken[0].token_ids) - 1} tokens: there is no token to draw. Look for NaN in the "
            "model's weights, and compute in bfloat16 or float32."
        )


def _told(progress: Progress | None, before: int, total: int) -> Callable[[int], None]:
    """Progress within a batch as progress of the whole."""
    return lambda finished: progress(before + finished, total) if progress is not None else None


class _Batch:
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
        """Draw the next token of every live row (L,) and write it down."""
        live = self.live_L
        if position % _DRAW_AHEAD == 0:
            ahead = uniforms([job.key for job in self.jobs], position, _DRAW_AHEAD)
            self.uniform_RA = ahead.to(self.tokens.device)
        allowed_LV = logits_LV.index_fill(1, self.banned, -torch.inf)
        seen_LV = None if self.seen_RV is None else self.seen_RV[live]
        token_L = draw(allowed_LV, self.uniform_RA[live, position % _DRAW_AHEAD], self.sampling, seen_LV)
        # Logits that are not finite leave nothing to draw: the answer ends. Marked here, looked at when all are drawn.
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
        """Which of the live rows have not ended, by place among them."""
        return (~self.is_done_R[self.live_L]).nonzero()[:, 0]

    def keep(self, alive: Tensor) -> None:
        """Draw for some of the live rows only from now on."""
        self.live_L = self.live_L[alive]

    def result(self, row: int, example_id: str) -> tuple[Rollout, Tensor | None]:
        """A row up to its end token, and why it stopped."""
        ids = self.tokens[row].tolist()
        end = next((i for i, token in enumerate(ids) if token in self.end_ids), None)
        length = len(ids) if end is None else end + 1
        stop: Literal["end", "length", "broken"] = "length" if end is None else "end"
        if self.is_broken_R[row]:
            stop = "broken"
        rollout = Rollout(example_id, self.jobs[row].index, tuple(ids[:length]), stop)
        return rollout, None if self.log_probs is None else self.log_probs[row, :length].cpu()


@contextmanager
def _decoding(model: nn.Module, compute_dtype: torch.dtype | None) -> Iterator[None]:
    """Eval mode without gradients, restored after. In train mode, gradient checkpointing silently drops the cache."""
    modes = [(module, module.training) for module in model.modules()]
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    # Deterministic mode refuses a cumulative sum on CUDA, where its last bits may vary: too little to change a token.
    torch.use_deterministic_algorithms(is_deterministic, warn_only=True)
    model.eval()
    device = base_model(model).device.type
    precision = nullcontext() if compute_dtype is None else torch.autocast(device, compute_dtype)
    try:
        with torch.no_grad(), precision:
            yield
    finally:
        torch.use_deterministic_algorithms(is_deterministic, warn_only=only_warns)
        for module, mode in modes:
            module.training = mode
