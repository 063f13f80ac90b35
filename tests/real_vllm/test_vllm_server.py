"""Training with a real vLLM server that is killed between two steps. It is started, and started again, by the run."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

os.environ.update(HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", TORCH_COMPILE_DISABLE="1", VLLM_LOGGING_LEVEL="ERROR")

from transformers import TrainerCallback, TrainingArguments

from tiny_examples import example, picture
from tiny_models import build_model
from tiny_processor import build_processor, write_processor_files
from vcsd import VCSDTrainer
from vcsd.monitor.lines import read_lines
from vcsd.monitor.timeline import SYNC_FILE, TIMELINE
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm import proven_rollouts
from vcsd.rollout.vllm.start_target import ServerSettings, VLLMSettings
from vcsd.step import RolloutSettings
from vcsd.types import Example


class Killer(TrainerCallback):
    """Kills the server, with all that it started, after the second step."""

    def __init__(self):
        self.pids = []

    def on_step_end(self, args, state, control, **kwargs):
        process = self.trainer.vllm._running._process
        self.pids.append(process.pid)
        if state.global_step == 2:
            assert is_running(process.pid)
            os.killpg(process.pid, signal.SIGKILL)


def is_running(group):
    """Whether a process of a group runs. One that ended may stay in the table until its parent looks."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, own_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(own_group) == group and state != "Z":
                return True
    return False


def test_a_killed_server_is_started_again_and_gets_all_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(proven_rollouts, "BACK_OFF", 0.1)
    killer = Killer()
    killer.trainer = trainer = make_trainer(tmp_path, max_steps=3, callbacks=[killer])
    trainer.train()
    syncs = list(read_lines(tmp_path / "run" / SYNC_FILE))
    assert [line["version"] for line in syncs] == ["step-1", "step-2", "step-3"]
    assert all(line["probe_mean"] < 1e-4 for line in syncs)
    whole = syncs[0]["num_bytes"]
    assert [line["sent_bytes"] == whole for line in syncs] == [True, False, True]  # what changed, once it could
    assert syncs[1]["sent_bytes"] < whole
    assert killer.pids[0] == killer.pids[1] != killer.pids[2]
    assert not any(is_running(pid) for pid in killer.pids)  # the server ends with the run


def test_a_server_draws_the_next_batch_while_the_trainer_updates(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=4, steps_ahead=1)
    trainer.train()
    syncs = list(read_lines(tmp_path / "run" / SYNC_FILE))
    assert [line["version"] for line in syncs] == ["step-1", "step-2", "step-3"]
    assert all(line["probe_mean"] < 1e-4 for line in syncs)
    lags = [entry["rollout_lag"] for entry in trainer.state.log_history if "rollout_lag" in entry]
    assert lags == [0, 1, 1, 1]
    lines = list(read_lines(tmp_path / "run" / TIMELINE))
    drawn = {step: start for line in lines for what, step, start, _ in line["sampler"] if what == "draw"}
    updated = {line["step"]: end for line in lines for name, _, end in line["trainer"] if name == "update"}
    assert sorted(drawn) == [1, 2, 3, 4]
    assert all(drawn[step + 1] < updated[step] for step in (1, 2, 3))  # not after the update, as without a lag
    assert trainer.num_steps_taken == 4


def make_trainer(tmp_path, *, max_steps, steps_ahead=0, callbacks=()):
    folder = write_processor_files(tmp_path / "model")
    model = build_model()
    model.save_pretrained(folder)
    arguments = {"use_cpu": True, "save_strategy": "no", "report_to": "none", "logging_steps": 1}
    return VCSDTrainer(
        model,
        TrainingArguments(str(tmp_path / "run"), max_steps=max_steps, learning_rate=1e-4, **arguments),
        train_dataset=[Example(f"row-{place}", *_parts(place)) for place in range(2)],
        processing_class=build_processor(),
        rollout=RolloutSettings(Sampling(max_new_tokens=8), 3, seed=0, steps_ahead=steps_ahead),
        prompts_per_step=2,
        callbacks=list(callbacks),
        vllm=VLLMSettings(folder, 512, server=ServerSettings(sends_changes=True, log_folder=tmp_path / "run")),
    )


def _parts(place):
    shown = example(picture(64 + 32 * place, 64), text="How many?")
    return shown.images, shown.prompt
