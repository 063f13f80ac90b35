"""`torchrun -m vcsd train` and `accelerate launch -m vcsd train` on two processes, from files to files."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forked_python import run_python, start_python
from tiny_examples import picture
from tiny_models import build_model
from tiny_processor import write_processor_files

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RECIPE = """
model: {{path: {folder}/model}}
data: {{path: {folder}/train.jsonl}}
rollout: {{num_per_prompt: 2, max_new_tokens: 6}}
prompts_per_step: 3
token_budget: 4000
trainer: {{max_steps: 4, save_steps: 2, learning_rate: 1e-3, warmup_steps: 1, use_cpu: true, bf16: false}}
"""
CONFIGS = Path(__file__).parents[2] / "recipes" / "accelerate"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
KINDS = DDP, FSDP2 = ("trainer.fsdp=null", "trainer.fsdp=true")

LONG = "trainer.max_steps=100000"
MINUTE = 60
SECONDS = 600
"""A hang, not a slow machine."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder, data with one broken row, and a recipe."""
    folder = tmp_path_factory.mktemp("ranks")
    build_model().save_pretrained(folder / "model")
    write_processor_files(folder / "model")
    rows = []
    for index in range(7):
        picture(64 + 32 * (index % 2), 64).save(folder / f"{index}.png")
        image = f"{index}.png" if index != 3 else "missing.png"
        rows.append({"id": f"row-{index}", "question": f"how many, {index}?", "image": image, "answer": str(index)})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder))
    return folder


def start(
    folder: Path,
    out: Path,
    *overrides: str,
    launcher: list[str] = TORCHRUN,
    **environment: str,
) -> subprocess.Popen[str]:
    command = [*launcher, "-m", "vcsd", "train", str(folder / "recipe.yaml"), f"trainer.output_dir={out}", *overrides]
    return subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return process.returncode, output


def steps_of(out: Path) -> list[dict]:
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The process ids of the ranks, which the launcher started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children]


def wait_for_steps(process: subprocess.Popen[str], out: Path, count: int) -> None:
    until = time.monotonic() + SECONDS
    while len(steps_of(out)) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "the run does not start"
        time.sleep(0.2)


def losses(out: Path) -> list[float]:
    return [step["loss"] for step in steps_of(out)]


@pytest.fixture(scope="module")
def alone(folder, tmp_path_factory):
    """The losses of one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    train_alone(folder, out)
    return losses(out)


def train_alone(folder: Path, out: Path) -> None:
    done = run_python("-m", "vcsd", "train", folder / "recipe.yaml", f"trainer.output_dir={out}")
    assert done.returncode == 0, done.stderr


def saved_steps(out: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in out.glob("checkpoint-*"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_whose_rank_is_killed_ends_in_a_minute_resumes_with_the_losses_of_one_process_and_heeds_a_signal(
    folder, tmp_path, alone, kind
):
    """One story, because every start of two ranks takes seconds."""
    out = tmp_path / "run"
    kill_a_rank(folder, out, kind)
    if kind == FSDP2:
        continue_on_one_process(folder, out, tmp_path / "alone", alone)
    code, output = end(start(folder, out, kind))
    assert code == 0, output
    assert output.count("Finished 4 steps.") == 1
    assert losses(out) == pytest.approx(alone, rel=1e-4)
    assert len((out / "skipped.jsonl").read_text().splitlines()) == 1
    assert saved_steps(out) == [2, 4]
    stop_by_signal(folder, out, kind)


def kill_a_rank(folder: Path, out: Path, kind: str) -> None:
    """Kill one of two ranks after the first checkpoint; the other says so and ends. Later checkpoints are removed."""
    process = start(folder, out, LONG, "trainer.save_total_limit=null", kind)
    wait_for_steps(process, out, 3)
    os.kill(workers_of(process)[1], signal.SIGKILL)
    killed = time.monotonic()
    code, output = end(process)
    assert time.monotonic() - killed < 2 * MINUTE, "a minute by design, of which 30 seconds are torchrun's"
    assert code != 0
    assert "cannot reach the other ranks" in output
    first, *later = saved_steps(out)
    assert first == 2
    for step in later:
        shutil.rmtree(out / f"checkpoint-{step}")


def continue_on_one_process(folder: Path, out: Path, copy: Path, expected: list[float]) -> None:
    assert (out / "checkpoint-2" / "student").is_dir(), "the weights were not sharded"
    shutil.copytree(out, copy)
    train_alone(folder, copy)
    assert losses(copy) == pytest.approx(expected, rel=1e-4)


def stop_by_signal(folder: Path, out: Path, kind: str) -> None:
    """A signal to one rank, or to the launcher, stops both after the same step, which they save."""
    patience = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(SECONDS)}  # not 30 seconds, which a busy machine may need
    process = start(folder, out, LONG, kind, **patience)
    wait_for_steps(process, out, 5)
    os.kill(workers_of(process)[1] if kind == DDP else process.pid, signal.SIGTERM)
    code, output = end(process)
    assert code == 1, "the launcher does not pass on 143, which scripts must know"
    assert "Stopped by SIGTERM." in output
    assert [step["step"] for step in steps_of(out)] == list(range(1, saved_steps(out)[-1] + 1))


def test_accelerate_launches_fsdp2(folder, tmp_path, alone):
    out = tmp_path / "run"
    launcher = ["-m", "accelerate.commands.launch", "--use_fsdp", "--fsdp_version", "2", "--num_processes", "2"]
    launcher += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    code, output = end(start(folder, out, launcher=launcher))
    assert code == 0, output
    assert losses(out) == pytest.approx(alone, rel=1e-4)
    assert (out / "checkpoint-4" / "student").is_dir(), "the weights were not sharded"


@pytest.mark.parametrize("num_machines", [1, 2])
def test_the_shipped_configurations_of_accelerate_train(folder, tmp_path, alone, num_machines):
    """As they are, but for two processes in all, and the address of the first machine."""
    out = tmp_path / "run"
    name = "8gpus.yaml" if num_machines == 1 else "2nodes.yaml"
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    launcher = ["-m", "accelerate.commands.launch", "--config_file", str(CONFIGS / name), "--num_processes", "2"]
    address = ["--main_process_ip", "127.0.0.1", "--main_process_port", str(port)]
    machines = [[*launcher, "--machine_rank", str(rank), *address] for rank in range(num_machines)]
    started = [start(folder, out, launcher=machine) for machine in machines]
    for code, output in map(end, started):
        assert code == 0, output
    assert losses(out) == pytest.approx(alone, rel=1e-4), "the recipe, not the file, sets the precision"
    assert len(list((out / "checkpoint-4" / "student").glob("shard-*"))) == 2, "the weights were not sharded"


def test_deepspeed_is_rejected_with_what_to_use_instead(folder, tmp_path):
    environment = {"ACCELERATE_USE_DEEPSPEED": "true"}  # what accelerate's launcher sets; its option needs the package
    command = ("-m", "vcsd", "train", folder / "recipe.yaml", f"trainer.output_dir={tmp_path / 'run'}")
    done = start_python(*command, environment=environment).wait(SECONDS)
    assert done.returncode == 2
    assert "DeepSpeed is not supported. Use FSDP2" in " ".join(done.stderr.split())
