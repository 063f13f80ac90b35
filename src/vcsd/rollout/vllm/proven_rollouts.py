"""A step's rollouts from vLLM: send the weights, prove that they arrived, record it, sample, sleep.

A server that is lost gets the weights and the whole step's requests again, a few times and with growing pauses. Then
the run stops; nothing is trained on a part of a batch. With several ranks all do the same: each has its own engine in
its process, or asks the one server, to which rank 0 sends the weights.

A server can also draw in the background, while the trainer updates (`draw_later`, `collect`). The thread only sends
requests: weights are sent, and ranks talk to each other, while nothing is in flight. A draw that loses its server is
not retried in the background, because the student has changed since; `collect` leaves it out.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, Unpack

import torch

from vcsd.errors import NoRoomError, RunError
from vcsd.parallel.ranks import OtherRankError, gathered, on_every_local, on_first
from vcsd.rollout.vllm.server_client import ServerLostError
from vcsd.rollout.vllm.start_target import VLLMSettings, start_target
from vcsd.rollout.vllm.sync_probe import probe_prompt
from vcsd.rollout.vllm.vllm_engine import VLLMEngine, refuse_other_family
from vcsd.rollout.vllm.weight_sync import DeltaMismatchError, OtherVersionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from torch import nn

    from vcsd.models.packed.packing import Prompt
    from vcsd.rollout.engine import Sampled, SampleKeywords
    from vcsd.rollout.sampling import Sampling

log = logging.getLogger(__name__)

ATTEMPTS = 4
BACK_OFF = 5.0
"""Seconds before the second attempt; doubled for each further one."""

Result = TypeVar("Result")


class RolloutsLostError(RunError):
    """No whole batch could be drawn. The student is unchanged since the step before."""


class SamplerSpan(NamedTuple):
    """What the sampler did for which step, and when, in seconds of `time.perf_counter`."""

    what: Literal["send", "draw"]
    step: int
    start: float
    end: float


class ProvenRollouts:
    """Provides an engine with the student's current weights. `record` is called with each sync, on rank 0."""

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
        self._thread = ThreadPoolExecutor(1, "vcsd-rollouts")
        self._in_flight: dict[int, Future[Sampled]] = {}
        self.spans: list[SamplerSpan] = []
        """When weights were sent and batches were drawn. The code that logs them empties the list."""
        dtype = torch.bfloat16 if bf16 else torch.float32
        refuse_other_family(student)
        self._running = on_every_local(lambda: start_target(student, settings, dtype))
        self._engine = VLLMEngine(student, self._running.target, tokenizer=tokenizer, dtype=dtype)

    def draw(self, prompts: Sequence[Prompt], step: int, draw: Callable[[AgreedEngine], Result]) -> Result:
        """Return what `draw` draws from the student of a step, counted from 1."""

        def timed() -> Result:
            with self._timed("draw", step):
                return draw(AgreedEngine(self._engine))

        return self._with_weights(prompts, step, timed)

    def send(self, prompts: Sequence[Prompt], step: int) -> None:
        """Give vLLM the weights of a step, without drawing anything yet."""
        self._with_weights(prompts, step, lambda: None)

    def _with_weights(self, prompts: Sequence[Prompt], step: int, run: Callable[[], Result]) -> Result:
        """Run something once vLLM has the weights of a step. If a server is lost, do both again."""
        self._probe = self._probe or probe_prompt(prompts)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                on_first(self._running.make_ready)
                with self._timed("send", step):
                    line = self._engine.refresh(step, self._probe).as_line()
                on_first(partial(self._record, line))
                result = run()
            except Exception as error:  # of any kind: the other ranks fail too, and wait for this rank's verdict
                self._pause_or_stop(error, step, attempt)
            else:
                self._engine.sleep()
                return result
        raise AssertionError

    def _pause_or_stop(self, error: Exception, step: int, attempt: int) -> None:
        """Wait before the next attempt, on all ranks; raise if there is none, or if it would not help."""
        verdicts = gathered(None if isinstance(error, OtherRankError) else self._is_retryable(error))
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

    def _is_retryable(self, error: Exception) -> bool:
        """Whether sending everything again may help."""
        is_restarted = isinstance(error, OtherVersionError) and self._running.is_server
        return is_restarted or isinstance(error, ServerLostError | DeltaMismatchError)

    @property
    def draws_in_background(self) -> bool:
        """Whether vLLM can draw while this process trains."""
        return self._running.is_server

    def draw_later(self, draws: Mapping[int, Callable[[VLLMEngine], Sampled]]) -> None:
        """Let the server draw the batches of some steps, one after the other, with the weights that it has.

        Until `collect`, its weights must not change. `draws` run in a thread, and must not talk to other ranks.
        """
        assert not self._in_flight, "collect comes first"

        def timed(step: int) -> Sampled:
            with self._timed("draw", step):
                return draws[step](self._engine)

        self._in_flight = {step: self._thread.submit(timed, step) for step in draws}

    def collect(self) -> dict[int, Sampled]:
        """Wait for the batches that are drawn in the background. Those that were lost with their server are left out.

        Collective: ranks agree about each batch, and raise any error that a new attempt would not fix.
        """
        in_flight, self._in_flight = self._in_flight, {}
        drawn = {}
        for step, future in in_flight.items():
            own: Exception | None = None
            try:
                drawn[step] = future.result()
            except Exception as error:  # raised again once the other ranks know
                own = error
            if lost := self._agreed_loss(own):
                drawn.pop(step, None)
                log.warning("The rollouts of step %d are lost: %s They will be drawn again.", step, lost)
        return drawn

    def _agreed_loss(self, own: Exception | None) -> str | None:
        """Return why a rank lost its part of a batch; None if none did. Raise an error that would recur."""
        outcomes = gathered((None if own is None else str(own), own is None or self._is_retryable(own)))
        problem = next((message for message, _ in outcomes if message is not None), None)
        if not all(is_retryable for _, is_retryable in outcomes):
            raise own if own is not None and not self._is_retryable(own) else OtherRankError(str(problem))
        return problem

    @contextmanager
    def _timed(self, what: Literal["send", "draw"], step: int) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.spans.append(SamplerSpan(what, step, start, time.perf_counter()))

    def close(self) -> None:
        """Stop the thread and a server that was started here, and remove its files. Gives up requests. Idempotent."""
        self._running.give_up_requests()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._running.close()


class AgreedEngine:
    """An engine that fails on all ranks if it fails on one, so that none keeps waiting for another."""

    def __init__(self, engine: VLLMEngine) -> None:
        self._engine = engine

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling, **keywords: Unpack[SampleKeywords]) -> Sampled:
        """Draw rollouts of this rank's prompts. If memory is short on one rank, all raise a NoRoomError."""

        def drawn() -> Sampled | None:
            try:
                return self._engine.sample(prompts, sampling, **keywords)
            except torch.OutOfMemoryError:
                return None

        sampled = on_every_local(drawn)
        if not all(gathered(sampled is not None)) or sampled is None:
            raise NoRoomError(
                "vLLM ran out of memory in a rollout. Lower rollout.vllm_memory_share or model.max_pixels."
            )
        return sampled
