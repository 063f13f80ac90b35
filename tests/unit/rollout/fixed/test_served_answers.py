"""A server of another model is refused; one that is lost is asked again, and compared again."""

import pytest
import torch

from tiny_groups import make_prompt
from tiny_models import build_model
from toy_vllm_server import ToyVLLMServer
from vcsd.errors import RunError
from vcsd.models.family import family_of
from vcsd.rollout.fixed.served_answers import ServedAnswers
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm.server_client import ServerClient, ServerRefusedError
from vcsd.rollout.vllm.vllm_requests import RequestRefusedError

GENERATE = "/inference/v1/generate"
SCORES = "vcsd.rollout.vllm.vllm_engine.student_log_probs"


class Case:
    """A model, a toy server whose replies the model would give the same probabilities, and the pauses made."""

    def __init__(self, monkeypatch):
        self.model, self.pauses, self.num_compared = build_model(), [], 0
        family_of(self.model).prepare(self.model)
        self.server = ToyVLLMServer(reply=(5, min(family_of(self.model).end_token_ids(self.model))))
        monkeypatch.setattr(SCORES, self._scores)
        client = ServerClient(self.server.url, key="--server")
        self.answers = ServedAnswers(
            *(self.model, "some/model", client),
            encode=lambda images: ["x"] * len(images.names),
            sleep=self.pauses.append,
        )

    def _scores(self, student, prompt, response):
        self.num_compared += 1
        return torch.full((len(response),), -1.0)

    def sample(self):
        return self.answers.sample([make_prompt()], Sampling(max_new_tokens=4), num_rollouts=2, seed=0).rollouts


@pytest.fixture
def case(monkeypatch):
    made = Case(monkeypatch)
    yield made
    made.server.stop()


def test_requests_are_token_ids_with_bans_and_end_tokens_and_weights_are_never_sent(case):
    assert [len(case.sample()), len(case.sample())] == [2, 2]
    assert case.num_compared == 1  # once is enough while the server is there
    body = case.server.bodies[-1]
    assert body["token_ids"] == make_prompt().input_ids.tolist()
    assert "messages" not in body
    family = family_of(case.model)
    assert set(body["sampling_params"]["logit_bias"]) == {str(token) for token in family.vision_token_ids(case.model)}
    assert body["sampling_params"]["stop_token_ids"] == sorted(family.end_token_ids(case.model))
    assert not [path for path in case.server.calls if "weight" in path and path != "/weight_info"]


def test_a_server_that_gives_other_probabilities_serves_another_model(case, monkeypatch):
    monkeypatch.setattr(SCORES, lambda student, prompt, response: torch.full((len(response),), -1.5))
    with pytest.raises(RunError, match=r"does not serve some/model: .* differ from the student's by 0.5 nats"):
        case.sample()
    assert case.pauses == []


def test_a_server_that_reads_another_prompt_serves_another_model(case, monkeypatch):
    whole = case.server._generate

    def shifted(body):
        status, reply = whole(body)
        return status, {**reply, "prompt_token_ids": [1, *reply["prompt_token_ids"]]}

    monkeypatch.setattr(case.server, "_generate", shifted)
    with pytest.raises(RunError, match=r"does not serve some/model: .* they differ"):
        case.sample()


def test_a_lost_server_is_asked_again_and_compared_again(case):
    case.sample()
    case.server.failures[GENERATE] = 2
    assert len(case.sample()) == 2
    assert case.pauses == [5.0, 10.0]
    assert case.num_compared == 2


def test_new_weights_on_the_server_are_compared_again(case):
    case.sample()
    case.server.version = "step-9"  # a trainer sent weights
    assert len(case.sample()) == 2
    assert case.num_compared == 2


def test_new_weights_during_the_probe_are_compared_again(case, monkeypatch):
    whole = case.server._generate

    def updated(body):
        monkeypatch.setattr(case.server, "_generate", whole)
        case.server.version = "step-9"  # a trainer sent weights
        return whole(body)

    monkeypatch.setattr(case.server, "_generate", updated)
    assert len(case.sample()) == 2
    assert case.num_compared == 1


def test_a_probe_that_cannot_be_scored_proves_nothing(case, monkeypatch):
    """An evaluation asks question by question when memory runs out: the next one must be compared too."""

    def too_large(student, prompt, response):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with monkeypatch.context() as patch:
        patch.setattr(SCORES, too_large)
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError):
                case.sample()
    assert len(case.sample()) == 2
    assert case.num_compared == 1


def test_after_four_attempts_the_evaluation_stops(case):
    case.server.failures[GENERATE] = 99
    with pytest.raises(RunError, match=r"no answers after 4 attempts: .* the same command resumes"):
        case.sample()
    assert case.pauses == [5.0, 10.0, 20.0]


def test_a_server_without_the_endpoint_is_told_how_to_start(case, monkeypatch):
    monkeypatch.setattr(case.server, "_generate", lambda body: (404, {}))
    with pytest.raises(RunError, match=r"has no /inference/v1/generate\. Start the server with .* --for-evaluation"):
        case.sample()


def test_a_server_is_asked_for_no_more_tokens_than_it_has_room_for(case):
    length = len(make_prompt().input_ids)
    case.server.room = length + 3
    assert case.answers.room == length + 3
    case.sample()
    assert [body["sampling_params"]["max_tokens"] for body in case.server.bodies] == [3, 3]  # the probe, the prompt


def test_a_server_that_refuses_one_prompt_is_not_lost(case):
    case.sample()
    case.server.room = len(make_prompt().input_ids)
    with pytest.raises(RequestRefusedError, match="longer than the maximum model length"):
        case.sample()
    assert case.pauses == []


def test_a_server_that_tells_no_version_may_answer(case, monkeypatch):
    answer = case.server.answer
    monkeypatch.setattr(
        case.server, "answer", lambda path, body: (404, {}) if path == "/weight_info" else answer(path, body)
    )
    assert len(case.sample()) == 2


def test_a_moment_without_the_server_does_not_end_the_question_of_its_room(case):
    case.server.room = 50
    case.server.failures["/v1/models"] = 2
    assert case.answers.room == 50
    assert case.pauses == [5.0, 10.0]


def test_after_four_attempts_the_room_stays_unknown_and_the_evaluation_stops(case):
    case.server.failures["/v1/models"] = 99
    with pytest.raises(RunError, match=r"no answers after 4 attempts: .* the same command resumes"):
        assert case.answers.room


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
def test_a_server_that_refuses_to_tell_its_room_may_answer(case, monkeypatch, status):
    replied(monkeypatch, case.server, "/v1/models", status)
    assert case.answers.room is None
    assert len(case.sample()) == 2
    assert case.pauses == []


def test_a_server_that_was_lost_is_asked_for_its_room_again(case):
    case.server.room = len(make_prompt().input_ids) + 3
    case.sample()
    case.server.failures[GENERATE] = 1
    case.server.room += 1  # restarted with another limit
    case.sample()
    assert case.answers.room == case.server.room
    assert case.server.bodies[-1]["sampling_params"]["max_tokens"] == 4


def test_a_probe_that_is_refused_is_one_prompt_refused(case):
    case.server.room = len(make_prompt().input_ids)
    with pytest.raises(RequestRefusedError, match="longer than the maximum model length"):
        case.sample()
    assert case.num_compared == 0
    case.server.room = None
    assert len(case.sample()) == 2
    assert case.num_compared == 1, "the next prompts are compared"


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_a_key_ends_the_evaluation_and_says_so(case, monkeypatch, status):
    replied(monkeypatch, case.server, GENERATE, status)
    with pytest.raises(ServerRefusedError, match=rf"refuses {GENERATE} \({status}\).* Put its key into VLLM_API_KEY\."):
        case.sample()
    assert not issubclass(ServerRefusedError, RequestRefusedError), "it would be counted question by question"


@pytest.mark.parametrize("status", [408, 429])
def test_a_busy_server_is_asked_again(case, monkeypatch, status):
    replied(monkeypatch, case.server, GENERATE, status)
    with pytest.raises(RunError, match="no answers after 4 attempts"):
        case.sample()
    assert case.pauses == [5.0, 10.0, 20.0]


def replied(monkeypatch, server, path, status):
    """Let a server answer a path with a status."""
    answer = server.answer
    monkeypatch.setattr(server, "answer", lambda asked, body: (status, {}) if asked == path else answer(asked, body))
