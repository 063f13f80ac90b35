"""What vLLM in this process refuses: a prompt, which others survive, or the sampling values, which are those of all."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from vcsd.errors import RunError
from vcsd.rollout.vllm.in_process import InProcess
from vcsd.rollout.vllm.vllm_requests import RequestRefusedError


class ToySampling:
    """Refuses a temperature below zero, as vLLM does."""

    def __init__(self, temperature, output_kind):
        if temperature < 0:
            raise ValueError("temperature must be non-negative")


class ToyEngine:
    """Refuses prompts that say so, and answers no other."""

    def __init__(self):
        self.added, self.aborted = [], []

    def add_request(self, name, request, setting):
        if request == "too long":
            raise ValueError("longer than the maximum model length")
        self.added.append(name)

    def has_unfinished_requests(self):
        return False

    def abort_request(self, names):
        self.aborted += names


@pytest.fixture
def target(monkeypatch):
    modules = {name: ModuleType(name) for name in ("vllm", "vllm.exceptions", "vllm.sampling_params")}
    modules["vllm"].SamplingParams = ToySampling
    modules["vllm.exceptions"].VLLMClientError = type("VLLMClientError", (Exception,), {})
    modules["vllm.sampling_params"].RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return InProcess(SimpleNamespace(llm_engine=ToyEngine()))


def test_a_refused_prompt_is_one_request_refused(target):
    with pytest.raises(RequestRefusedError, match="longer than the maximum"):
        target.generate(["short", "too long"], [{"temperature": 1.0}] * 2, tell=lambda done: None)
    assert target._llm.llm_engine.aborted == ["rollout-0", "rollout-1"]


def test_a_refused_sampling_value_is_one_error_of_all(target):
    with pytest.raises(RunError, match="vLLM refuses the sampling values: temperature must be") as raised:
        target.generate(["short"], [{"temperature": -1.0}], tell=lambda done: None)
    assert not isinstance(raised.value, RequestRefusedError), "it would be counted question by question"
    assert target._llm.llm_engine.added == []
