"""What vLLM's server is started with: for rollouts it takes weights, for evaluation nobody can replace its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tiny_models import build_model
from vcsd.rollout.vllm.in_process import tied_words
from vcsd.rollout.vllm.serve import parse, server_arguments


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The configurations of tiny models whose head is tied to their words."""
    made = {}
    for family in ("qwen3_vl", "qwen3_5"):
        made[family] = tmp_path_factory.mktemp(family)
        build_model(family).config.save_pretrained(made[family])
    return made


def arguments(folder, *options):
    return server_arguments(parse([str(folder), *options]))


def test_a_server_of_rollouts_starts_with_random_weights_and_takes_the_trainers(folders):
    given = arguments(folders["qwen3_vl"], "--transfer", "nccl")
    assert given[given.index("--load-format") + 1] == "dummy"
    assert json.loads(given[given.index("--weight-transfer-config") + 1]) == {"backend": "nccl"}
    assert given[given.index("--host") + 1] == "127.0.0.1"


def test_a_server_for_evaluation_loads_the_folder_and_takes_no_weights(folders):
    given = arguments(folders["qwen3_vl"], "--for-evaluation", "--", "--tensor-parallel-size", "2")
    assert not {"--load-format", "--weight-transfer-config", "--worker-extension-cls"} & set(given)
    assert "--enable-scale-out" in given  # requests of token ids
    assert given[-2:] == ["--tensor-parallel-size", "2"]


def test_tied_words_are_said_where_vllm_reads_them(folders, tmp_path):
    given = arguments(folders["qwen3_5"])
    assert json.loads(given[given.index("--hf-overrides") + 1]) == {"text_config": {"tie_word_embeddings": True}}
    build_model("qwen3_5", tie_word_embeddings=False).config.save_pretrained(tmp_path)
    assert tied_words(tmp_path) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_server_ends_with_the_trainer_that_started_it_even_if_that_is_killed(tmp_path):
    server = "from vcsd.rollout.vllm.serve import end_with_parent as end; end(); print(7, flush=True); import time; "
    server += "time.sleep(600)"
    trainer = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {server!r}]).pid, flush=True); "
    trainer += "import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", trainer], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]  # the server's id, and that it is ready
        pid = int(max(lines, key=len))
        assert is_running(pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for _ in range(600):
            if not is_running(pid):
                break
            time.sleep(0.1)
        assert not is_running(pid)


def is_running(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
