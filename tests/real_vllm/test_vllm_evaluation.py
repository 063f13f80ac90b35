"""Evaluation by a real vLLM server, asked by token ids, and the pre-check by vLLM: the answers are transformers'."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText
from typer.testing import CliRunner

from toy_questions import check_room
from vcsd.bases.shipped_bases import shipped_base
from vcsd.cli.app import app
from vcsd.evaluation.asking.model_answerer import ModelAnswerer
from vcsd.models.processor import load_processor
from vcsd.monitor.lines import read_lines
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.fixed import served_answers
from vcsd.rollout.fixed.served_answers import ServedAnswers
from vcsd.rollout.vllm.serve import ServerProcess
from vcsd.rollout.vllm.server_client import ServerClient

ENVIRONMENT = {
    **{"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "TORCH_COMPILE_DISABLE": "1"},
    **{"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"},
}
BASE = shipped_base("qwen3_vl")
ROOM = 512
"""Tokens of a prompt with its response, on the server."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of the shipped base, and its address. The last test ends it."""
    os.environ.update(ENVIRONMENT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [str(BASE), "--port", str(port), "--dtype", "float32", "--for-evaluation", "--on-cpu"]
    arguments += ["--max-tokens", str(ROOM)]
    process = ServerProcess(arguments, tmp_path_factory.mktemp("server") / "log.txt")
    yield process, f"http://127.0.0.1:{port}"
    process.stop()


def evaluate(model, out, *options):
    command = ["eval", str(model), "--benchmarks", "world/small", "--limit", "12", "--sampling", "greedy"]
    return CliRunner().invoke(app, [*command, "--batch-size", "6", "--out", str(out), *options])


def answers(out):
    return sorted((line["question"], line["text"]) for line in read_lines(out / "predictions.jsonl"))


def test_a_server_asked_by_token_ids_answers_as_transformers(server, tmp_path, monkeypatch):
    monkeypatch.setattr(served_answers, "WAIT_SECONDS", 600.0)
    by_server = evaluate(BASE, tmp_path / "server", "--engine", "vllm", "--server", server[1])
    assert by_server.exit_code == 0, by_server.output
    assert evaluate(BASE, tmp_path / "own").exit_code == 0
    assert len(answers(tmp_path / "server")) == 12
    assert answers(tmp_path / "server") == answers(tmp_path / "own")
    made_with = json.loads((tmp_path / "server" / "scorecard.json").read_text())["made_with"]
    assert made_with["asker"]["engine"] == "vllm server"


def test_a_question_that_a_server_has_no_room_for_fails_alone(server):
    processor, model = load_processor(BASE), AutoModelForImageTextToText.from_pretrained(BASE)
    served = ServedAnswers(model, "base", ServerClient(server[1], key="--server"), tokenizer=processor.tokenizer)
    check_room(
        ModelAnswerer(served, processor, name="base"),
        ModelAnswerer(TransformersEngine(model), processor, name="base"),
        served.room,
        processor,
    )


def test_a_server_with_other_weights_is_refused(server, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(BASE, other)
    weights = load_file(other / "model.safetensors")
    name = next(name for name in weights if name.endswith("layers.0.mlp.up_proj.weight"))
    save_file({**weights, name: weights[name].flip(0)}, other / "model.safetensors", metadata={"format": "pt"})
    refused = evaluate(other, tmp_path / "out", "--engine", "vllm", "--server", server[1])
    assert refused.exit_code != 0
    assert f"{server[1]} does not serve" in str(refused.exception)
    assert not (tmp_path / "out" / "predictions.jsonl").exists()


def test_a_server_that_dies_leaves_the_answers_so_far(server, tmp_path, monkeypatch):
    process, url = server
    monkeypatch.setattr(served_answers, "BACK_OFF", 0.01)
    whole = served_answers.ServedAnswers.sample
    batches = []

    def dying(self, prompts, *arguments, **options):
        batches.append(len(prompts))
        if len(batches) == 2:
            process.stop()
        return whole(self, prompts, *arguments, **options)

    monkeypatch.setattr(served_answers.ServedAnswers, "sample", dying)
    stopped = evaluate(BASE, tmp_path / "out", "--engine", "vllm", "--server", url)
    assert "the same command resumes once the server runs" in str(stopped.exception)
    assert len(answers(tmp_path / "out")) == 6


def test_a_precheck_by_vllm_finds_what_transformers_finds(tmp_path):
    found = {}
    for engine in ("transformers", "vllm"):
        out = tmp_path / engine
        command = [sys.executable, "-m", "vcsd", "precheck", "world", "--num", "12", "--engine", engine]
        command += ["--max-new-tokens", "48", "--out", str(out)]
        done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        files = [out / f"{view}.jsonl" for view in ("image", "control", "contrast")]
        found[engine] = [sorted((line["question"], line["text"]) for line in read_lines(file)) for file in files]
    assert [len(view) for view in found["vllm"]] == [12, 12, 12]
    assert found["vllm"] == found["transformers"]


def test_length_entropy_and_accuracy_agree_within_sampling_error(tmp_path):
    """The benchmark with fewer prompts. Seeds are fixed, so the outcome is the same in every run."""
    script, out = Path(__file__).parents[2] / "benchmarks" / "vllm_answers.py", tmp_path / "result.json"
    command = [sys.executable, str(script), "statistics", "--prompts", "40", "--rollouts", "8", "--out", str(out)]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())["vllm"]
    for name in ("length", "entropy", "right"):
        assert abs(found[name]["z"]) < 3.5, found
        assert found[name]["standard_error"] < 0.1 * found[name]["first"], found  # enough rollouts to notice a fault
