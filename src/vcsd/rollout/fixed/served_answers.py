"""A model that a vLLM server has loaded, for evaluation: requests hold token ids and image features, never messages.

Prompts, bans and stop rules are those of the engines in this process. The server is compared with the model's folder:
it must give the tokens that it draws for the first question the probabilities that the model gives them. A server that
is lost is asked again after growing pauses, and compared again; then the evaluation stops, and its answers are kept.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar, Unpack

import torch

from vcsd.errors import RunError
from vcsd.models.family import family_of
from vcsd.rollout.vllm.proven_rollouts import ATTEMPTS, BACK_OFF
from vcsd.rollout.vllm.server_client import NotOfferedError, ServerClient, ServerLostError, ServerRefusedError
from vcsd.rollout.vllm.server_target import ServerTarget
from vcsd.rollout.vllm.sync_probe import probe_prompt
from vcsd.rollout.vllm.vllm_engine import VLLMEngine, refuse_other_family
from vcsd.rollout.vllm.vllm_requests import RequestRefusedError
from vcsd.rollout.vllm.weight_sync import OtherVersionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from transformers import PreTrainedModel

    from vcsd.method import Method
    from vcsd.models.packed.packing import Prompt
    from vcsd.rollout.engine import Sampled, SampleKeywords
    from vcsd.rollout.sampling import Sampling
    from vcsd.rollout.vllm.vllm_requests import RequestImages
    from vcsd.rollout.vllm.weight_sync import Named

log = logging.getLogger(__name__)

Reply = TypeVar("Reply")

WAIT_SECONDS = 120.0
"""How long a server may take to answer at the beginning."""

UNVERSIONED = "as-loaded"
"""The version of the weights of a server that does not report one."""


class ServedAnswers:
    """A model on a vLLM server. The model itself is in this process too, because it scores the probe."""

    label = "vllm server"
    """The engine's name in the key of stored answers."""

    method: Method | None = None

    def __init__(
        self,
        model: PreTrainedModel,
        name: str,
        client: ServerClient,
        *,
        tokenizer: object = None,
        encode: Callable[[RequestImages], list[str]] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        refuse_other_family(model)
        family_of(model).prepare(model)
        self.base, self.compute_dtype = model, model.dtype
        self._name, self._client, self._sleep = name, client, sleep
        # The server does not report its precision, so the limits of the probe are those of bfloat16.
        self._engine = VLLMEngine(
            *(model, FixedServer(client, encode)),
            tokenizer=tokenizer,
            dtype=model.dtype,
            probe_dtype=torch.bfloat16,
            keeps_cut=True,
        )
        client.wait_until_ready(WAIT_SECONDS)

    @property
    def room(self) -> int | None:
        """Tokens of the longest prompt with its response that fit; None if the server does not say.

        Threads that read questions call this. If the server is lost here, answers being drawn keep their version.
        """
        return self._insist(lambda: self._engine.room, lambda: None)

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling, **keywords: Unpack[SampleKeywords]) -> Sampled:
        """Draw rollouts. Before the first ones, and after a loss of the server, compare a probe."""

        def draw() -> Sampled:
            if self._engine.version is None:
                self._compare(prompts)
            return self._engine.sample(prompts, sampling, **keywords)

        return self._insist(draw, self._forget)

    def _insist(self, ask: Callable[[], Reply], forget: Callable[[], None]) -> Reply:
        """Ask again after growing pauses while the server is lost. Call `forget` before each new attempt."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return ask()
            except (ServerLostError, OtherVersionError) as error:
                forget()
                self._pause_or_stop(error, attempt)
        raise AssertionError

    def _forget(self) -> None:
        self._engine.version = None

    def _compare(self, prompts: Sequence[Prompt]) -> None:
        """Raise a RunError unless the server answers a probe as the model would.

        A probe that it refuses, such as one that is too long, proves nothing: the next prompts are tried instead.
        """
        try:
            gap = self._engine.adopt(probe_prompt(sorted(prompts, key=lambda prompt: len(prompt.input_ids))))
        except (ServerLostError, OtherVersionError, RequestRefusedError, ServerRefusedError):
            raise
        except NotOfferedError as error:
            raise RunError(f"{error} Start the server with `{serve_command(self._name)}`.") from error
        except RunError as error:
            raise RunError(
                f"{self._client.url} does not serve {self._name}: {error} Start the server with "
                f"`{serve_command(self._name)}`, or pass the model that it serves."
            ) from error
        log.info("%s serves %s: a probe differs by %.2g nats.", self._client.url, self._name, gap.mean)

    def _pause_or_stop(self, error: RunError, attempt: int) -> None:
        if attempt == ATTEMPTS:
            raise RunError(
                f"no answers after {ATTEMPTS} attempts: {error} Answers so far are kept; the same command resumes once "
                "the server runs."
            ) from error
        seconds = BACK_OFF * 2 ** (attempt - 1)
        log.warning("%s Trying again in %.0f s.", error, seconds)
        self._sleep(seconds)


def serve_command(model: str) -> str:
    """Return the command that serves a model for evaluation."""
    return f"python -m vcsd.rollout.vllm.serve {model} --for-evaluation"


class FixedServer(ServerTarget):
    """A server whose weights stay as they are."""

    def __init__(self, client: ServerClient, encode: Callable[[RequestImages], list[str]] | None = None) -> None:
        super().__init__(client, SendsNothing(), encode)

    def weight_version(self) -> str:
        """Return the version of the weights in use. Only servers that take weights report one."""
        try:
            return super().weight_version()
        except NotOfferedError:
            return UNVERSIONED


class SendsNothing:
    """In place of a sender of weights, for a server that has its own."""

    sends_changes = False
    num_bytes = 0

    def connect(self, client: ServerClient) -> None:
        """Refuse."""
        raise RunError(f"{client.url} has its own weights.")

    def send(self, client: ServerClient, weights: Iterable[Named]) -> None:
        """Refuse."""
        raise RunError(f"{client.url} has its own weights.")

    def close(self) -> None:
        """Do nothing: nothing is open."""
