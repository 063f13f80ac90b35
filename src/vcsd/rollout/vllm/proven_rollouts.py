"""A step's rollouts from vLLM: send the weights, prove that they arrived, record it, sample, sleep.

A server that is lost gets the weights and the whole step's requests again, a few times and with growing pauses. Then
the run stops; nothing is trained on a part of a batch. With several ranks all do the same: each has its own engine in
its process, or asks the one server, to which rank 0 sends the weights.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

import torch

from vcsd.errors import RunError, VcsdError
from vcsd.parallel.ranks import OtherRankError, gathered, is_first, on_every, on_first
from vcsd.rollout.vllm.server_client import ServerLostError
from vcsd.rollout.vllm.start_target import VLLMSettings, start_target
from vcsd.rollout.vllm.sync_probe import probe_prompt
from vcsd.rollout.vllm.vllm_engine import VLLMEngine, refuse_other_family
from vcsd.rollout.vllm.weight_sync import DeltaMismatchError, OtherVersionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from vcsd.models.packed.packing import Prompt
    from vcsd.rollout.engine import ProgressCallback, Sampled
    from vcsd.rollout.sampling import Sampling

log = logging.getLogger(__name__)

SYNC_FILE = "weight_sync.jsonl"
"""The file of a run folder with one line per sync."""

ATTEMPTS = 4
BACK_OFF = 5.0
"""Seconds before the second attempt; doubled for each further one."""

Result = TypeVar("Result")


class RolloutsLostError(RunError):
    """No whole batch could be drawn. The student is that of the step before."""


class ProvenRollouts:
    """Gives out an engine with the student's current weights. `record` is called with each sync, on rank 0."""

    def __init__(
        self,
        student: nn.Module,
        tokenizer: object,
        settings: VLLMSettings,
        *,
        bf16: bool,
        record: Callable[[Mapping[str, object]], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._record, self._sleep = record, sleep
        self._probe: Prompt | None = None
        dtype = torch.bfloat16 if bf16 else torch.float32
        refuse_other_family(student)
        self._running = on_every_local(lambda: start_target(student, settings, dtype))
        self._engine = VLLMEngine(student, self._running.target, tokenizer=tokenizer, dtype=dtype)

    def draw(self, prompts: Sequence[Prompt], step: int, draw: Callable[[AgreedEngine], Result]) -> Result:
        """Return what `draw` draws from the student of a step, counted from 1."""
        self._probe = self._probe or probe_prompt(prompts)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                on_first(self._running.make_ready)
                line = self._engine.refresh(step, self._probe).as_line()
                if is_first():
                    self._record(line)
                result = draw(AgreedEngine(self._engine))
            except VcsdError as error:
                self._pause_or_stop(error, step, attempt)
            else:
                self._engine.sleep()
                return result
        raise AssertionError

    def _pause_or_stop(self, error: VcsdError, step: int, attempt: int) -> None:
        """Wait before the next attempt, on all ranks; raise if there is none, or if it would not help."""
        is_restarted = isinstance(error, OtherVersionError) and self._running.is_server
        is_retryable = is_restarted or isinstance(error, ServerLostError | DeltaMismatchError)
        verdicts = gathered(None if isinstance(error, OtherRankError) else is_retryable)
        if not all(verdict in (True, None) for verdict in verdicts):
            raise error
        if attempt == ATTEMPTS:
            raise RolloutsLostError(
                f"step {step} has no rollouts after {ATTEMPTS} attempts: {error} Nothing of the step was trained. "
                "The same command resumes once the server runs."
            ) from error
        seconds = BACK_OFF * 2 ** (attempt - 1)
        log.warning("Step %d: %s Trying again in %.0f s, with all weights and the whole batch.", step, error, seconds)
        self._sleep(seconds)

    def close(self) -> None:
        """End what was started here, and remove what was written. Idempotent."""
        self._running.close()


class AgreedEngine:
    """An engine that fails on all ranks if it fails on one, so that none waits for another in vain."""

    def __init__(self, engine: VLLMEngine) -> None:
        self._engine = engine

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
        """Draw rollouts of this rank's prompts."""
        return on_every_local(
            lambda: self._engine.sample(
                prompts,
                sampling,
                num_rollouts=num_rollouts,
                seed=seed,
                step=step,
                with_log_probs=with_log_probs,
                progress=progress,
            )
        )


def on_every_local(run: Callable[[], Result]) -> Result:
    """Run a function on every rank; if it fails on one, raise on all. The result stays on its rank."""
    results: list[Result] = []
    on_every(lambda: results.append(run()))
    return results[0]
