"""Sleep mode around the update, with an engine that has vLLM's methods. A CPU has none; not run on a GPU."""

from types import SimpleNamespace

from vcsd.rollout.vllm.in_process import InProcess


class ToyLLM:
    """The methods of vLLM's LLM that put it to sleep, and what they were called with."""

    def __init__(self, *, can_sleep):
        config = SimpleNamespace(model_config=SimpleNamespace(enable_sleep_mode=can_sleep))
        self.llm_engine, self.calls = SimpleNamespace(vllm_config=config), []

    def sleep(self, level):
        self.calls.append(("sleep", level))

    def wake_up(self):
        self.calls.append("wake")


def test_between_two_phases_weights_and_caches_are_given_back():
    target = InProcess(llm := ToyLLM(can_sleep=True))
    target.wake()
    target.sleep()
    assert target.is_asleep
    target.wake()
    assert llm.calls == [("sleep", 2), "wake"]
    assert not target.is_asleep


def test_an_engine_without_sleep_mode_stays_awake():
    target = InProcess(llm := ToyLLM(can_sleep=False))
    target.sleep()
    assert (llm.calls, target.is_asleep) == ([], False)
