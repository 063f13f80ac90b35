"""Out of memory on one of two ranks: the step is repeated, or all ranks stop with a checkpoint and advice."""

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from rank_cases import Case, Recorder, finish_ranks, run_alone, start_ranks, trainer_of
from vcsd.errors import RunError
from vcsd.parallel.ranks import leave
from vcsd.rollout.engine import TransformersEngine

pytestmark = pytest.mark.slow

FAILS_AT = 2
"""The number of finished steps when rank 1 runs out of memory."""

NUM_STEPS = 4
BUDGET = 200

STARTS = [["ddp forward", "ddp backward", "ddp rollout"], ["fsdp2 rollout"], ["fsdp2 forward"], ["fsdp2 backward"]]
"""Cases that share processes: once ranks have formed a new group, they cannot train any more."""

CASES = [name for names in STARTS for name in names]
REPEATED = ["ddp forward", "ddp backward"]


def case_of(name: str) -> Case:
    arguments = {"save_strategy": "steps", "save_steps": 100}
    return Case(
        name, kind=name.split()[0], num_steps=NUM_STEPS, num_prompts=3, token_budget=BUDGET, arguments=arguments
    )


def run_out_of_memory(trainer: Any, where: str) -> None:
    """Let a trainer fail in a rollout, or once in the middle of a layer's forward or backward."""
    todo = [True]

    def fail(*given: Any) -> None:
        if trainer.state.global_step == FAILS_AT and todo:
            if where != "rollout":
                todo.clear()
            raise torch.OutOfMemoryError("no room")

    def hook(module: Any, given: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        if where == "forward":
            fail()
        elif tensor.requires_grad:
            tensor.register_hook(fail)

    if where == "rollout":
        draw = TransformersEngine._draw_batch
        TransformersEngine._draw_batch = lambda self, *given: fail() or draw(self, *given)  # type: ignore[method-assign]
    else:
        trainer.model.model.language_model.layers[0].register_forward_hook(hook)


def main(folder: Path, names: list[str]) -> None:
    """Train the cases on this rank; rank 1 fails."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = {}
    for name in names:
        recorder = Recorder()
        trainer = trainer_of(case_of(name), folder / name, recorder)
        if os.environ["RANK"] == "1":
            run_out_of_memory(trainer, name.split()[1])
        message, start = "", time.monotonic()
        try:
            trainer.train()
        except RunError as error:
            message = str(error)
        seconds = time.monotonic() - start
        results[name] = {"message": message, "steps": recorder.steps, "seconds": seconds}
    (folder / f"{names[0]}-{os.environ['RANK']}.json").write_text(json.dumps(results))
    if not message:
        leave()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("no-room")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What each rank says, by case."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CASES}
    for names in STARTS:
        finish_ranks(start_ranks(2, __file__, folder, *names))
        for rank in range(2):
            for name, result in json.loads((folder / f"{names[0]}-{rank}.json").read_text()).items():
                found[name].append(result)
    return found


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The steps of one process with memory for everything."""
    case = case_of("ddp calm")
    steps: list[dict[str, Any]] = run_alone([case], tmp_path_factory.mktemp("calm"))[case.name]["steps"]
    return steps


def assert_same_steps(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    assert [step["rollouts"] for step in ours] == [step["rollouts"] for step in theirs]
    assert [step["loss"] for step in ours] == pytest.approx([step["loss"] for step in theirs], rel=1e-4)


@pytest.mark.parametrize("name", REPEATED)
def test_ranks_with_all_weights_repeat_the_step_with_smaller_rows(name, ranks, calm):
    assert [result["message"] for result in ranks[name]] == ["", ""]
    assert_same_steps(ranks[name][0]["steps"], calm)


@pytest.mark.parametrize("name", [name for name in CASES if name not in REPEATED])
def test_all_ranks_stop_with_a_checkpoint_and_advice_and_the_run_resumes(name, ranks, calm, folder):
    for result in ranks[name]:
        advice = "Lower max_pixels" if "rollout" in name else f"Set token_budget={BUDGET // 2}"
        assert "out of memory" in result["message"]
        assert advice in result["message"]
        assert f"checkpoint-{FAILS_AT} holds the last finished step" in result["message"]
    assert [path.name for path in (folder / name).glob("checkpoint-*")] == [f"checkpoint-{FAILS_AT}"]
    recorder = Recorder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trainer_of(case_of(name), folder / name, recorder)
        trainer.train("auto")
    assert trainer.progress.token_budget == (BUDGET if "rollout" in name else BUDGET // 2)
    assert_same_steps(ranks[name][0]["steps"] + recorder.steps, calm)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
