"""A lost server is tried again with growing pauses; then the run stops, with a checkpoint and no half batch."""

import pytest
import torch

from faulty_disk import faulty_disk
from tiny_groups import make_prompt
from tiny_models import build_model
from tiny_step import losses_of, make_trainer
from toy_vllm_server import ToyVLLMServer
from vcsd.errors import NoRoomError, RunError
from vcsd.models.family import family_of
from vcsd.parallel.ranks import where_it_fits
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm import proven_rollouts
from vcsd.rollout.vllm.proven_rollouts import ProvenRollouts, RolloutsLostError
from vcsd.rollout.vllm.server_client import ServerClient, ServerLostError
from vcsd.rollout.vllm.server_target import SendsFiles, ServerTarget
from vcsd.rollout.vllm.start_target import RunningTarget, VLLMSettings

GENERATE = "/inference/v1/generate"


class Case:
    """A student, a toy server whose replies the student would give the same probabilities, and what was recorded."""

    def __init__(self, monkeypatch, tmp_path):
        self.model = build_model()
        family_of(self.model).prepare(self.model)
        end = min(family_of(self.model).end_token_ids(self.model))
        self.server, self.lines, self.pauses = ToyVLLMServer(reply=(5, end)), [], []
        client = ServerClient(self.server.url, sleep=lambda seconds: None)
        target = ServerTarget(client, SendsFiles(), encode=lambda images: ["x"] * len(images.names))
        monkeypatch.setattr(proven_rollouts, "start_target", lambda *given: RunningTarget(target))
        scores = "vcsd.rollout.vllm.vllm_engine.student_log_probs"
        monkeypatch.setattr(scores, lambda student, prompt, response: torch.full((len(response),), -1.0))
        self.rollouts = ProvenRollouts(
            self.model,
            None,
            VLLMSettings(tmp_path),
            bf16=False,
            record=self.lines.append,
            sleep=self.pauses.append,
        )

    def draw(self, step=1):
        prompt = make_prompt()
        sampling = Sampling(max_new_tokens=4)
        draw = lambda engine: engine.sample([prompt], sampling, num_rollouts=3, seed=0)  # noqa: E731
        return self.rollouts.draw([prompt], step, draw).rollouts


@pytest.fixture
def case(monkeypatch, tmp_path):
    made = Case(monkeypatch, tmp_path)
    yield made
    made.rollouts.close()
    made.server.stop()


def test_every_step_is_recorded_with_its_version(case):
    assert [len(case.draw(step)) for step in (1, 2)] == [3, 3]
    assert [line["version"] for line in case.lines] == ["step-1", "step-2"]
    assert case.lines[0]["sent_bytes"] == case.lines[0]["num_bytes"]


@pytest.mark.parametrize("path", [GENERATE, "/update_weights", "/reset_encoder_cache", "/weight_info"])
def test_a_failure_repeats_the_sync_and_the_whole_batch(case, path):
    case.draw(1)
    case.server.failures[path] = 1
    assert len(case.draw(2)) == 3
    assert case.server.version == "step-2"
    assert case.pauses == [5.0]


@pytest.mark.parametrize("where", ["the probe", "the record", "the draw"])
def test_an_error_of_any_kind_is_told_to_the_other_ranks(case, monkeypatch, where):
    """They fail with it, ask each other whether to try again, and would wait for a rank that left without a word."""
    verdicts = []

    def with_another(verdict):
        verdicts.append(verdict)
        return [verdict, None]

    def fails(*given, **named):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(proven_rollouts, "gathered", with_another)
    if where == "the probe":
        monkeypatch.setattr("vcsd.rollout.vllm.vllm_engine.student_log_probs", fails)
    case.rollouts._record = fails if where == "the record" else case.rollouts._record
    with pytest.raises(torch.OutOfMemoryError):
        case.rollouts.draw([make_prompt()], 1, fails)
    assert verdicts == [False]
    assert case.pauses == []


@pytest.mark.parametrize("lacks", [True, False])
def test_a_lack_of_memory_in_vllm_on_any_rank_is_one_of_all_ranks(case, monkeypatch, lacks):
    """The trainer then saves, which takes all of them. Only the rank that lacked memory had asked whether all fit."""

    def fails(*given, **named):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    def draw(engine):
        if lacks:
            monkeypatch.setattr(case.rollouts._engine, "sample", fails)
        else:
            monkeypatch.setattr(proven_rollouts, "gathered", lambda value: [value, False])  # the other rank
        return where_it_fits(lambda: engine.sample([make_prompt()], Sampling(), num_rollouts=1, seed=0))

    with pytest.raises(NoRoomError, match=r"vLLM ran out of memory .* rollout\.vllm_memory_share"):
        case.rollouts.draw([make_prompt()], 1, draw)


def test_a_server_restarted_in_mid_batch_gets_its_weights_again(case, monkeypatch):
    answer = case.server.answer
    monkeypatch.setattr(case.server, "answer", restarting(case.server, answer, at=2))
    assert len(case.draw(1)) == 3
    assert case.server.weights
    assert case.pauses == [5.0]


def restarting(server, answer, at):
    """Let the server restart after so many replies to requests."""
    seen = []

    def restarted(path, body):
        result = answer(path, body)
        if path == GENERATE:
            seen.append(path)
            if len(seen) == at:
                server.restart()
        return result

    return restarted


def test_after_four_attempts_the_run_stops(case):
    case.server.failures[GENERATE] = 1000
    with pytest.raises(RolloutsLostError, match=r"step 1 has no rollouts after 4 attempts: the vLLM server .* failed"):
        case.draw()
    assert case.pauses == [5.0, 10.0, 20.0]


def test_what_would_fail_again_is_not_tried_again(case, monkeypatch):
    monkeypatch.setattr(case.server, "reply", (5,))
    with pytest.raises(RunError, match="do not agree"):
        case.draw()
    assert case.pauses == []


class Losing:
    """Draws with the trainer's own engine, and loses its server at one step."""

    def __init__(self, trainer, at):
        self.trainer, self.at = trainer, at

    def draw(self, prompts, step, draw):
        if step == self.at:
            raise RolloutsLostError("no server.") from ServerLostError("gone")
        return draw(self.trainer.engine)

    def close(self):
        self.is_closed = True


def test_a_run_without_rollouts_saves_its_last_step_and_resumes_to_the_same_end(tmp_path, monkeypatch):
    arguments = {"max_steps": 4, "save_strategy": "steps", "save_steps": 100}
    whole = make_trainer(tmp_path / "whole", arguments=arguments)
    whole.train()
    lost = make_trainer(tmp_path / "lost", arguments=arguments)
    lost.vllm = Losing(lost, at=3)
    with pytest.raises(RolloutsLostError):
        lost.train()
    assert lost.vllm.is_closed
    assert (tmp_path / "lost" / "checkpoints" / "2").exists() or (tmp_path / "lost" / "checkpoint-2").exists()
    again = make_trainer(tmp_path / "lost", arguments=arguments)
    again.train("auto")
    assert losses_of(again)[-2:] == losses_of(whole)[-2:]
    assert again.stream.skips.state() == whole.stream.skips.state()  # the lost step's rows are counted once


def test_a_run_without_rollouts_that_cannot_save_says_both(tmp_path):
    lost = make_trainer(tmp_path / "lost", arguments={"max_steps": 4, "save_strategy": "steps", "save_steps": 100})
    lost.vllm = Losing(lost, at=2)
    told = r"no server\. .* could not be saved either: .*checkpoint-1"
    with faulty_disk(tmp_path / "lost" / ".partial"), pytest.raises(RolloutsLostError, match=told):
        lost.train()
