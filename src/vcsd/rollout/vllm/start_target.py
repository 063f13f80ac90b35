"""Which vLLM a run uses, and how it starts: in the process, as a server of its own, or as one that already runs."""

from __future__ import annotations

import atexit
import logging
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from vcsd.models.family import base_model
from vcsd.parallel.ranks import is_first, on_first
from vcsd.rollout.vllm.in_process import import_vllm, start_in_process
from vcsd.rollout.vllm.serve import LOCALHOST, ServerProcess
from vcsd.rollout.vllm.server_client import ServerClient
from vcsd.rollout.vllm.server_target import SendsFiles, SendsNccl, ServerTarget
from vcsd.rollout.vllm.weight_sync import expected_shapes

if TYPE_CHECKING:
    from torch import nn

    from vcsd.rollout.vllm.vllm_engine import RolloutTarget

log = logging.getLogger(__name__)

LOG = "vllm_server.log"
"""The log of a server that was started here, in the run folder."""

START_SECONDS = 600.0
"""How long a server may take to answer."""


@dataclass(frozen=True)
class ServerSettings:
    """A server: its address, or None to start one here; how weights are sent; whether only changes are sent."""

    url: str | None = None
    transfer: Literal["files", "nccl"] = "files"
    sends_changes: bool = False
    log_folder: Path | None = None


@dataclass(frozen=True)
class VLLMSettings:
    """How vLLM is started: the model's folder, the longest prompt with its response, and the memory it may take.

    Without `server` it runs in the training process.
    """

    folder: Path
    max_tokens: int | None = None
    memory_share: float = 0.3
    server: ServerSettings | None = None


class RunningTarget:
    """A target, and the server process behind it if it was started here."""

    def __init__(self, target: RolloutTarget, arguments: list[str] | None = None, log_file: Path | None = None) -> None:
        self.target = target
        self._arguments, self._log_file = arguments, log_file
        self._process: ServerProcess | None = None

    @property
    def is_server(self) -> bool:
        """Whether vLLM runs elsewhere, and may be restarted there."""
        return isinstance(self.target, ServerTarget)

    def make_ready(self) -> None:
        """Wait until the server answers. Start it if this process owns it and it is not running."""
        if not isinstance(self.target, ServerTarget):
            return
        if self._arguments is not None and (self._process is None or self._process.exit_code is not None):
            self._start()
        self.target.client.wait_until_ready(START_SECONDS, self._has_ended)

    def _start(self) -> None:
        assert self._arguments is not None
        assert self._log_file is not None
        self._stop()  # what a dead server left behind
        log.warning("Starting a vLLM server; it writes to %s.", self._log_file)
        self._process = ServerProcess(self._arguments, self._log_file)
        atexit.register(self._stop)

    def _has_ended(self) -> str | None:
        if self._process is None or self._process.exit_code is None:
            return None
        return f"the vLLM server ended with code {self._process.exit_code} before it answered. See {self._log_file}."

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def give_up_requests(self) -> None:
        """End requests that wait for a server; vLLM stops computing replies that nobody reads."""
        if isinstance(self.target, ServerTarget):
            self.target.client.give_up()

    def close(self) -> None:
        """End the server, if it was started here."""
        if isinstance(self.target, ServerTarget):
            self.target.close()
        self._stop()


def start_target(student: nn.Module, settings: VLLMSettings, dtype: torch.dtype) -> RunningTarget:
    """Start vLLM in this process, or prepare to use a server. A server's own start is left to `make_ready`."""
    server = settings.server
    if server is None:
        memory = {"max_tokens": settings.max_tokens, "memory_share": settings.memory_share}
        return RunningTarget(start_in_process(settings.folder, dtype, **memory))  # type: ignore[arg-type]
    import_vllm()  # its format of images is used here as well
    arguments, url = None, server.url
    if url is None:
        port = on_first(_free_port)
        url, arguments = f"http://{LOCALHOST}:{port}", _arguments(settings, port, dtype)
    shapes = expected_shapes(base_model(student).config)
    sender = SendsNccl(shapes, dtype) if server.transfer == "nccl" else SendsFiles(sends_changes=server.sends_changes)
    target = ServerTarget(ServerClient(url), sender)
    return RunningTarget(target, arguments if is_first() else None, (server.log_folder or Path.cwd()) / LOG)


def _arguments(settings: VLLMSettings, port: int, dtype: torch.dtype) -> list[str]:
    assert settings.server is not None
    arguments = [str(settings.folder), "--port", str(port), "--dtype", str(dtype).removeprefix("torch.")]
    arguments += ["--transfer", settings.server.transfer, "--memory-share", str(settings.memory_share)]
    if settings.max_tokens is not None:
        arguments += ["--max-tokens", str(settings.max_tokens)]
    return arguments if torch.cuda.is_available() else [*arguments, "--on-cpu"]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((LOCALHOST, 0))
        return int(free.getsockname()[1])
