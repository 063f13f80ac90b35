"""A server draws the next batch while the trainer updates: over real HTTP, with a toy server that samples nothing.

Its replies depend on the version of its weights and on the seed of a request, so that a batch drawn with other weights
gives another loss.
"""

import hashlib
import threading
from functools import partial

import pytest
import torch
from transformers import TrainerCallback

from tiny_models import build_model
from tiny_step import losses_of, make_trainer
from toy_vllm_server import ToyVLLMServer
from vcsd.errors import RunError
from vcsd.models.family import family_of
from vcsd.monitor.lines import read_lines
from vcsd.monitor.timeline import SYNC_FILE, TIMELINE
from vcsd.rollout.gathered_copy import GatheredCopy
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm import proven_rollouts
from vcsd.rollout.vllm.server_client import ServerClient
from vcsd.rollout.vllm.server_target import SendsFiles, ServerTarget
from vcsd.rollout.vllm.start_target import RunningTarget, VLLMSettings
from vcsd.step import RolloutSettings
from vcsd.trainer.drawing import DrawingTrainer

GENERATE = "/inference/v1/generate"
WORDS = range(20, 60)


class Toy:
    """A toy server, and trainers that use it."""

    def __init__(self, monkeypatch):
        end = min(family_of(build_model()).end_token_ids(build_model()))

        def reply(version, seed, index):
            digest = hashlib.sha256(f"{version} {seed} {index}".encode()).digest()
            return [WORDS[byte % len(WORDS)] for byte in digest[: 2 + digest[-1] % 4]] + [end]

        self.server = ToyVLLMServer(reply)
        self.versions = {}
        self.targets = []
        monkeypatch.setattr(proven_rollouts, "start_target", self.target)
        monkeypatch.setattr(proven_rollouts, "BACK_OFF", 0.01)
        scores = "vcsd.rollout.vllm.vllm_engine.student_log_probs"
        monkeypatch.setattr(scores, lambda student, prompt, response: torch.full((len(response),), -1.0))

    def target(self, *given):
        client = ServerClient(self.server.url, sleep=lambda seconds: None)
        encode = lambda images: ["x"] * len(images.names)  # noqa: E731
        return RunningTarget(ServerTarget(client, SendsFiles(), encode=encode))

    def trainer(self, folder, lag, **arguments):
        """A trainer that notes the version with which each batch was drawn."""
        settings = RolloutSettings(Sampling(max_new_tokens=7), 3, seed=0, steps_ahead=lag)
        given = {"max_steps": 5, "save_strategy": "steps", "save_steps": 2, **arguments}
        trainer = make_trainer(folder, arguments=given, rollout=settings, vllm=VLLMSettings(folder))
        add = trainer._add

        def noted(step, batch):
            self.versions[step] = batch.version
            add(step, batch)

        trainer._add = noted
        return trainer


@pytest.fixture
def toy(monkeypatch):
    made = Toy(monkeypatch)
    yield made
    made.server.stop()


class After(TrainerCallback):
    """Calls a function after a step."""

    def __init__(self, step, call):
        self.step, self.call = step, call

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.call(control)


def stop(control):
    control.should_save = control.should_training_stop = True


def rollout_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("vcsd-rollouts")]


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_every_batch_is_drawn_with_the_weights_of_the_lag(toy, tmp_path, lag):
    toy.trainer(tmp_path, lag).train()
    assert toy.versions == {step: f"step-{max(1, step - lag)}" for step in range(1, 6)}
    syncs = [line["version"] for line in read_lines(tmp_path / SYNC_FILE)]
    assert syncs == [f"step-{step}" for step in range(1, 6 - lag)], "no weights are sent for nothing"
    assert rollout_threads() == []


def test_the_server_draws_while_the_trainer_trains(toy, tmp_path):
    """The batch of step 2 is answered only once step 1 is being trained: drawn before, it would never come."""
    trainer = toy.trainer(tmp_path, 1, max_steps=2)
    is_training, answered = threading.Event(), []
    distill, generate = trainer._distill, toy.server._generate

    def begins(*given):
        is_training.set()
        return distill(*given)

    def waits(body):
        if trainer.vllm is not None and trainer.vllm._in_flight:
            answered.append(is_training.wait(60))
        return generate(body)

    trainer._distill, toy.server._generate = begins, waits
    trainer.train()
    assert answered == [True] * 3
    lines = list(read_lines(tmp_path / TIMELINE))
    assert [[what, step] for line in lines for what, step, _, _ in line["sampler"]] == [
        *(["send", 1], ["draw", 1], ["draw", 2]),
    ]
    assert [name for name, _, _ in lines[0]["trainer"]] == ["data", "rollout", "distill", "update"]


def test_a_gathered_copy_of_the_student_is_not_kept_while_a_server_draws(toy, tmp_path, monkeypatch):
    """With FSDP2 the copy is as large as the whole model, and nothing draws from it."""
    monkeypatch.setattr(DrawingTrainer, "_copy_for_rollouts", lambda self, model, args: GatheredCopy(model))
    trainer, sizes = toy.trainer(tmp_path, 0, max_steps=2), []

    class Evaluates(TrainerCallback):
        def on_train_begin(self, *given, **more):
            trainer.half.refresh()

    def measured(run, *given):
        sizes.append(sum(weight.numel() for weight in trainer.half.module.parameters()))
        return run(*given)

    trainer.callback_handler.callbacks.insert(0, Evaluates())
    trainer._start_vllm = partial(measured, trainer._start_vllm)
    trainer._distill = partial(measured, trainer._distill)
    trainer.train()
    assert sizes == [0, 0, 0], "as vLLM starts, and in each step"


@pytest.mark.parametrize("lag", [1, 2])
def test_a_run_stopped_while_a_draw_is_in_flight_resumes_to_the_same_end(toy, tmp_path, lag):
    whole = toy.trainer(tmp_path / "whole", lag)
    whole.train()
    cut = toy.trainer(tmp_path / "cut", lag)
    cut.add_callback(After(2, stop))
    toy.server.slow_seconds = 0.2  # the save waits for the batch
    cut.train()
    assert rollout_threads() == []
    toy.server.slow_seconds, toy.versions = 0.0, {}
    again = toy.trainer(tmp_path / "cut", lag)
    again.train("auto")
    assert sorted(toy.versions) == list(range(3 + lag, 6))
    assert losses_of(again) == losses_of(whole)


def test_a_batch_lost_in_the_background_is_drawn_again_by_the_next_student(toy, tmp_path):
    trainer = toy.trainer(tmp_path, 1)
    generate, failed = toy.server._generate, []

    def fails(body):
        if toy.server.version == "step-2" and trainer.vllm._in_flight and not failed:
            failed.append(body)
            return 500, {"error": "CUDA out of memory"}
        return generate(body)

    toy.server._generate = fails
    trainer.train()
    assert len(failed) == 1
    assert toy.versions == {1: "step-1", 2: "step-1", 3: "step-3", 4: "step-3", 5: "step-4"}
    lags = [entry["rollout_lag"] for entry in trainer.state.log_history if "loss" in entry]
    assert lags == [0, 1, 0, 1, 1]
    assert trainer.num_steps_taken == 5


def test_a_server_restarted_during_a_draw_is_not_believed(toy, tmp_path):
    trainer = toy.trainer(tmp_path, 1)
    generate, restarted = toy.server._generate, []

    def restarts(body):
        result = generate(body)
        if toy.server.version == "step-2" and trainer.vllm._in_flight and not restarted:
            restarted.append(True)
            toy.server.restart()
        return result

    toy.server._generate = restarts
    trainer.train()
    assert restarted
    assert toy.versions[3] == "step-3"


def test_a_wrong_reply_stops_the_run_and_is_not_saved(toy, tmp_path):
    trainer = toy.trainer(tmp_path, 1)
    answer = toy.server.answer

    def other_prompt(path, body):
        status, reply = answer(path, body)
        if path == GENERATE and toy.server.version == "step-2" and trainer.vllm._in_flight:
            reply = {**reply, "prompt_token_ids": [1, 2, 3]}
        return status, reply

    toy.server.answer = other_prompt
    with pytest.raises(RunError, match="prompt"):
        trainer.train()
    assert trainer.state.global_step == 2
    assert (tmp_path / "checkpoint-2" / "waiting_rollouts.json").read_text() == "[]"
    assert rollout_threads() == []


def test_an_error_gives_up_the_requests_in_flight(toy, tmp_path):
    trainer = toy.trainer(tmp_path, 1)
    generate, released, waiting = toy.server._generate, threading.Event(), threading.Event()

    def hangs(body):
        if trainer.vllm is not None and trainer.vllm._in_flight:
            waiting.set()
            released.wait(120)
        return generate(body)

    def fail(control):
        assert waiting.wait(60)
        raise RunError("a monitor stops the run.")

    toy.server._generate = hangs
    trainer.add_callback(After(1, fail))
    try:
        with pytest.raises(RunError, match="a monitor stops the run"):
            trainer.train()
        assert not released.is_set()
        assert rollout_threads() == [], "nothing waits for the server any more"
    finally:
        released.set()


def test_a_lost_server_saves_the_batches_that_wait(toy, tmp_path):
    trainer = toy.trainer(tmp_path, 2, save_steps=100)
    trainer.add_callback(After(2, lambda control: toy.server.failures.update({"/start_weight_update": 1000})))
    with pytest.raises(RunError, match="step 3 has no rollouts after 4 attempts"):
        trainer.train()
    toy.server.failures.clear()
    toy.versions = {}
    again = toy.trainer(tmp_path, 2)
    again.train("auto")
    assert toy.versions == {5: "step-3"}
    assert again.num_steps_taken == 5
