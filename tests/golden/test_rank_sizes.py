"""A run that was saved by some number of ranks continues on another, and its shards can be exported."""

import json
import os
import shutil
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import torch.distributed as dist
from transformers import AutoModelForImageTextToText

from rank_cases import Case, Recorder, finish_ranks, start_ranks, trainer_of
from tiny_lora import write_base
from vcsd.checkpoint import TensorFile
from vcsd.checkpoint.export import export
from vcsd.lora.effective import effective_changes
from vcsd.parallel.ranks import leave
from vcsd.parallel.sharding import local_part
from vcsd.teacher import named_tensors

pytestmark = pytest.mark.slow

SAVED_AT, NUM_STEPS = 2, 3
KINDS = ("full", "LoRA")


def case_of(kind: str) -> Case:
    arguments = {"save_strategy": "steps", "save_steps": SAVED_AT}
    return Case(kind, kind="fsdp2", lora=kind == "LoRA", num_steps=NUM_STEPS, num_prompts=3, arguments=arguments)


def train(kind: str, folder: Path) -> dict[str, Any]:
    """Train to the last step, from a checkpoint if there is one; return the new steps and this rank's weights."""
    recorder, case = Recorder(), case_of(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trainer_of(replace(case, name=folder.name), folder, recorder)
        trainer.train("auto")
    tensors = {name: local_part(tensor).clone() for name, tensor in named_tensors(trainer.model).items()}
    return {"steps": recorder.steps, "tensors": tensors}


def saved(run: Path, where: Path) -> Path:
    """A copy of a run folder with the first checkpoint alone, as if the run had been killed after it."""
    shutil.copytree(run / f"checkpoint-{SAVED_AT}", where / f"checkpoint-{SAVED_AT}")
    return where


def main(root: Path, *pairs: str) -> None:
    """Train on this rank: `full=folder` and so on, one after the other."""
    torch.set_num_threads(1)
    number = os.environ["RANK"]
    for pair in pairs:
        kind, name = pair.split("=")
        if name.endswith("2-on-2"):
            if number == "0":
                saved(root / f"{kind}-two", root / name)
            dist.barrier()
        result = train(kind, root / name)
        tensors = result.pop("tensors")
        (root / f"{name}-{number}.json").write_text(json.dumps(result))
        torch.save(tensors, root / f"{name}-{number}.pt")
    leave()


def on_ranks(num_ranks: int, root: Path, *pairs: str) -> None:
    finish_ranks(start_ranks(num_ranks, __file__, root, *pairs))


def steps_of(root: Path, name: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = json.loads((root / f"{name}-0.json").read_text())["steps"]
    return steps


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sizes")


@pytest.fixture(scope="module")
def alone(root: Path) -> dict[str, list[dict[str, Any]]]:
    """The steps of one process."""
    return {kind: train(kind, root / f"{kind}-alone")["steps"] for kind in KINDS}


@pytest.fixture(scope="module")
def by_two(root: Path, alone: dict[str, Any]) -> Path:
    """Two ranks train without a break, and continue what they and what one process have saved."""
    for kind in KINDS:
        saved(root / f"{kind}-alone", root / f"{kind}-1-on-2")
    runs = [f"{kind}={kind}-{name}" for kind in KINDS for name in ("two", "2-on-2", "1-on-2")]
    on_ranks(2, root, *runs)
    return root


@pytest.fixture(scope="module")
def by_four(by_two: Path) -> Path:
    """Four ranks continue what two have saved."""
    for kind in KINDS:
        saved(by_two / f"{kind}-two", by_two / f"{kind}-2-on-4")
    on_ranks(4, by_two, *(f"{kind}={kind}-2-on-4" for kind in KINDS))
    return by_two


def assert_last_step_is_that_of(steps: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(steps) == NUM_STEPS - SAVED_AT
    assert steps[-1]["rollouts"] == expected[-1]["rollouts"]
    for name in ("loss", "divergence", "gradient_norm", "teacher_distance"):
        assert steps[-1][name] == pytest.approx(expected[-1][name], rel=1e-4), name


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_continue_on_one(kind: str, by_two: Path, alone: dict[str, Any], tmp_path: Path) -> None:
    assert (by_two / f"{kind}-two" / f"checkpoint-{SAVED_AT}" / "student").is_dir(), "the weights were not sharded"
    steps = train(kind, saved(by_two / f"{kind}-two", tmp_path / "run"))["steps"]
    assert_last_step_is_that_of(steps, alone[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_one_continues_on_two_ranks(kind: str, by_two: Path, alone: dict[str, Any]) -> None:
    assert_last_step_is_that_of(steps_of(by_two, f"{kind}-1-on-2"), alone[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_continue_on_four(kind: str, by_four: Path, alone: dict[str, Any]) -> None:
    assert_last_step_is_that_of(steps_of(by_four, f"{kind}-2-on-4"), alone[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_continue_on_two_bit_for_bit(kind: str, by_two: Path) -> None:
    for rank in range(2):
        resumed, straight = (
            torch.load(by_two / f"{kind}-{name}-{rank}.pt", weights_only=True) for name in ("2-on-2", "two")
        )
        assert resumed.keys() == straight.keys()
        assert all(torch.equal(resumed[name], tensor) for name, tensor in straight.items())


@pytest.mark.parametrize("what", ["student", "teacher"])
def test_shards_of_adapters_are_exported_as_an_adapter_and_merged(what: str, by_two: Path, tmp_path: Path) -> None:
    base, run = tmp_path / "base", by_two / "LoRA-two"
    plain = write_base(base)
    shards = TensorFile(run / f"checkpoint-{NUM_STEPS}" / f"{what}.safetensors")
    export(run, tmp_path / "adapter", what=what, adapter=True, base=base)
    adapted = peft.PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(base), tmp_path / "adapter")
    adapted = adapted.get_base_model()
    loaded = named_tensors(adapted)
    assert set(shards) <= set(loaded)
    assert all(torch.equal(loaded[name], shards[name]) for name in shards)
    export(run, tmp_path / "merged", what=what, base=base, dtype="float32")
    merged = AutoModelForImageTextToText.from_pretrained(tmp_path / "merged").state_dict()
    changes = effective_changes(adapted)
    for name, weight in plain.state_dict().items():
        change = changes.get(name.removesuffix(".weight"), 0)
        torch.testing.assert_close(merged[name], weight + change, rtol=0, atol=1e-7)
    assert max(float(change.norm()) for change in changes.values()) > 0


def test_shards_of_whole_weights_are_exported_as_they_were_saved(by_two: Path, tmp_path: Path) -> None:
    write_base(tmp_path / "base")
    shards = TensorFile(by_two / "full-two" / f"checkpoint-{NUM_STEPS}" / "student.safetensors")
    export(by_two / "full-two", tmp_path / "out", dtype="float32")
    weights = AutoModelForImageTextToText.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(weights[name], shards[name]) for name in shards if name in weights)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
