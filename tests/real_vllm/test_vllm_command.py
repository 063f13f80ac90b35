"""The documented command, with a recipe, in a process of its own: `vcsd train recipe.yaml rollout.engine=vllm`."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

from tiny_examples import picture
from tiny_models import build_model
from tiny_processor import write_processor_files
from vcsd.bases.shipped_bases import shipped_base
from vcsd.monitor.lines import read_lines
from vcsd.monitor.timeline import SYNC_FILE

RECIPE = """
model: {{path: {folder}/model}}
data: {{path: {folder}/train.jsonl, max_prompt_tokens: 256}}
rollout: {{num_per_prompt: 2, max_new_tokens: 6}}
prompts_per_step: 2
token_budget: 4000
trainer: {{max_steps: 3, save_strategy: 'no', learning_rate: 1e-2, warmup_steps: 0, use_cpu: true, bf16: false,
          output_dir: {folder}/run}}
"""
ENVIRONMENT = {
    **{"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "TORCH_COMPILE_DISABLE": "1"},
    **{"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"},
}


@pytest.fixture
def folder(tmp_path):
    """A model, rows with images, and a recipe."""
    build_model().save_pretrained(tmp_path / "model")
    write_processor_files(tmp_path / "model")
    rows = []
    for index in range(4):
        picture(64 + 32 * (index % 2), 64).save(tmp_path / f"{index}.png")
        rows.append({"id": f"row-{index}", "question": f"how many, {index}?", "image": f"{index}.png"})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(folder=tmp_path))
    return tmp_path


def train(folder, *overrides, launcher=()):
    """Run the command, and return the lines of its syncs."""
    command = [sys.executable, *launcher, "-m", "vcsd", "train", str(folder / "recipe.yaml"), *overrides]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = list(read_lines(folder / "run" / "metrics.jsonl"))
    assert [line["is_taken"] for line in steps if "is_taken" in line] == [True] * 3
    return list(read_lines(folder / "run" / SYNC_FILE))


def check(syncs):
    assert [line["version"] for line in syncs] == ["step-1", "step-2", "step-3"]
    assert len({line["manifest"] for line in syncs}) == 3  # the student moved, and every sync sent the new weights
    assert all(line["probe_mean"] < 1e-4 for line in syncs)


def test_a_recipe_trains_three_steps_with_vllm(folder):
    check(train(folder, "rollout.engine=vllm"))
    assert json.loads((folder / "run" / "config.json").read_text())["rollout"]["engine"] == "vllm"


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.mark.parametrize("overrides", [["trainer.fsdp=true"], ["lora.rank=4"]], ids=["sharded", "replicas with lora"])
def test_two_ranks_each_with_their_own_engine_train_three_steps(folder, overrides):
    check(train(folder, "rollout.engine=vllm", *overrides, launcher=TORCHRUN))


def test_two_ranks_draw_ahead_on_one_server(folder):
    ahead = ("rollout.engine=vllm_server", "rollout.steps_ahead=1", "trainer.fsdp=true")
    syncs = train(folder, *ahead, launcher=TORCHRUN)
    assert [line["version"] for line in syncs] == ["step-1", "step-2"]  # the second student draws the last batch
    assert all(line["probe_mean"] < 1e-4 for line in syncs)
    steps = [line for line in read_lines(folder / "run" / "metrics.jsonl") if "is_taken" in line]
    assert [line["rollout_lag"] for line in steps] == [0, 1, 1]


def test_greedy_answers_are_those_of_transformers(tmp_path):
    """The shipped world model, on questions about pictures."""
    answers = {}
    for engine in ("transformers", "vllm"):
        out = tmp_path / engine
        command = [sys.executable, "-m", "vcsd", "eval", str(shipped_base("qwen3_vl")), "--benchmarks", "world/small"]
        command += ["--limit", "12", "--sampling", "greedy", "--engine", engine, "--out", str(out)]
        done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        files = sorted(out.rglob("predictions.jsonl"))
        assert files, sorted(out.rglob("*"))
        answers[engine] = [(line["question"], line["text"]) for file in files for line in read_lines(file)]
    assert len(answers["vllm"]) == 12
    assert sorted(answers["vllm"]) == sorted(answers["transformers"])
