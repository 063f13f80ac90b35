"""Start a vLLM server that takes this trainer's weights, or one that serves a model for evaluation.

    python -m vcsd.rollout.vllm.serve MODEL_FOLDER --port 8000 --dtype bfloat16 -- --tensor-parallel-size 2
    python -m vcsd.rollout.vllm.serve MODEL_FOLDER --for-evaluation

It listens on localhost. Anyone who can reach its port can replace the weights, unless it is for evaluation: vLLM does
not protect these endpoints with a key. Arguments after `--` are vLLM's own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from vcsd.rollout.vllm.in_process import QUIET, on_cpu, tied_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOCALHOST = "127.0.0.1"
_STOP_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1


def server_arguments(options: argparse.Namespace) -> list[str]:
    """Return vLLM's arguments. A server of rollouts starts with random weights, as in the training process."""
    backend = "vcsd_files" if options.transfer == "files" else options.transfer
    arguments = ["--model", str(options.folder), "--host", options.host, "--port", str(options.port)]
    arguments += ["--dtype", options.dtype, "--generation-config", "vllm", "--mm-processor-cache-gb", "0"]
    arguments += ["--logprobs-mode", "raw_logprobs", "--limit-mm-per-prompt", '{"video": 0}', "--enable-scale-out"]
    if not options.for_evaluation:
        arguments += ["--load-format", "dummy", "--weight-transfer-config", f'{{"backend": "{backend}"}}']
        arguments += ["--worker-extension-cls", "vcsd.rollout.vllm.server_worker.WeightWorker"]
    if overrides := tied_words(options.folder):
        arguments += ["--hf-overrides", json.dumps(overrides)]
    if options.max_tokens is not None:
        arguments += ["--max-model-len", str(options.max_tokens)]
    if options.on_cpu:
        arguments.append("--enforce-eager")
        for name, value in on_cpu(options.folder).items():
            arguments.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
    if options.memory_share is not None:
        arguments += ["--gpu-memory-utilization", str(options.memory_share)]
    return [*arguments, *options.others]


class ServerProcess:
    """A server that was started here, and that ends with this process."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "vcsd.rollout.vllm.serve", "--with-parent", *arguments]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def exit_code(self) -> int | None:
        """The code with which the server ended; None while it runs."""
        return self._process.poll()

    @property
    def pid(self) -> int:
        """The id of the server's process, which is also that of its group."""
        return self._process.pid

    def stop(self) -> None:
        """End the server and the processes that it started. Idempotent."""
        for number in (signal.SIGTERM, signal.SIGKILL):  # the second also ends what the server started
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)


def end_with_parent() -> None:
    """Ask Linux to end this process when the one that started it ends, however that happens."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    own, others = _split(arguments)
    parser = argparse.ArgumentParser(prog="python -m vcsd.rollout.vllm.serve", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", help="the model's folder: configuration, tokenizer and processor")
    parser.add_argument("--host", default=LOCALHOST)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--max-tokens", type=int, help="most tokens of a prompt with its response")
    parser.add_argument("--memory-share", type=float, help="share of the GPU's or machine's memory to use")
    parser.add_argument("--transfer", choices=["files", "nccl"], default="files", help="how weights are sent")
    parser.add_argument(
        "--for-evaluation", action="store_true", help="serve the folder's own weights, which nobody can replace"
    )
    parser.add_argument("--on-cpu", action="store_true", help="run on the CPU")
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(own)
    options.others = others
    return options


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    given = list(arguments)
    place = given.index("--") if "--" in given else len(given)
    return given[:place], given[place + 1 :]


def main() -> None:
    """Replace this process by vLLM's server."""
    options = parse(sys.argv[1:])
    if options.with_parent:
        end_with_parent()
    environment = QUIET if options.for_evaluation else {"VLLM_SERVER_DEV_MODE": "1", **QUIET}
    os.environ.update({name: value for name, value in environment.items() if name not in os.environ})
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *server_arguments(options)]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
