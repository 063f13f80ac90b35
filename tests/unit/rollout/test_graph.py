"""Which steps are recorded, tested without a GPU by simulating torch's warnings about waiting."""

import warnings
from typing import Any

import pytest
import torch

from vcsd.rollout import graph
from vcsd.rollout.graph import GraphedStep

WAIT = "called a synchronizing CUDA operation (Triggered internally)"


class OnGpu:
    is_cuda = True


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The modes that were set, the last one last."""
    seen: list[Any] = [0]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: seen[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", seen.append)
    graph._warn_once.cache_clear()
    return seen


def steps(step: GraphedStep, said: list[list[str]]) -> list[int]:
    """Take a step for every list of warnings; the results tell how many were taken."""
    results = []
    for index, texts in enumerate(said):

        def forward(token: Any, position: Any, index: int = index, texts: list[str] = texts) -> Any:
            for text in texts:
                warnings.warn(text, stacklevel=1)
            return index

        results.append(step(forward, OnGpu(), OnGpu()))  # type: ignore[arg-type]
    return results


def test_steps_that_wait_run_as_usual_and_this_is_said_once(modes: list[Any]) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert steps(GraphedStep(), [[WAIT], [WAIT], [], [], [WAIT]]) == [0, 1, 2, 3, 4]
        again = GraphedStep()
        assert steps(again, [[WAIT], [WAIT], []]) == [0, 1, 2]
    told = [str(warning.message) for warning in found]
    assert [text for text in told if "cannot be recorded" in text] == [told[0]]
    assert told[1:] == [WAIT], "after two waits in a row steps are no longer watched"
    assert not again.is_recorded
    assert modes == [0, *4 * ["warn", 0]], "the mode is as before"


def test_the_first_step_may_wait_alone(modes: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    step = GraphedStep()
    monkeypatch.setattr(step, "_replayed", lambda *_: "replayed")
    monkeypatch.setattr(graph, "on_device_of", lambda _: warnings.catch_warnings())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert steps(step, [[WAIT], [], []]) == [0, 1, "replayed"]
        step.forget()
        assert steps(step, [[], []]) == [0, "replayed"]


def test_what_else_is_said_in_a_step_is_passed_on(modes: list[Any]) -> None:
    with pytest.warns(UserWarning, match="look here"):
        steps(GraphedStep(), [["look here"]])


def test_a_step_that_fails_leaves_the_mode_as_it_was(modes: list[Any]) -> None:
    def forward(token: Any, position: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError):
        GraphedStep()(forward, OnGpu(), OnGpu())  # type: ignore[arg-type]
    assert modes[-1] == 0
