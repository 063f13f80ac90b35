"""Short training runs of tiny models, alone or on several ranks, and what they leave behind to compare.

    results = run_alone(cases)                      in this process
    results = run_on_ranks(2, cases, folder)        in processes of their own, over gloo

A case names a model, how weights are held ("ddp" or "fsdp2") and the number of steps.
"""

import json
import os
import socket
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from forked_python import Python, start_python
from rank_watch import Watch
from tiny_fallbacks import build_fallback
from tiny_lora import EVERYWHERE, lora_model
from tiny_models import build_model, exact_arithmetic, rounded
from tiny_processor import build_processor
from tiny_step import losses_of, make_examples, make_trainer
from vcsd.method import METHODS
from vcsd.monitor.observation import Observation
from vcsd.parallel.ranks import leave
from vcsd.parallel.sharding import local_part, whole
from vcsd.rollout.engine import Sampled, TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings
from vcsd.teacher import fingerprint, named_tensors
from vcsd.trainer import VCSDTrainer
from vcsd.types import Example

SECONDS = 3000
"""A hang, not a slow machine."""


@dataclass(frozen=True)
class Case:
    """One run. `text_only` is the number of examples without an image; `freezes` the tower; `lora` trains adapters.

    `base_dtype` is the type of the weights below the adapters. `seed` is that of the rollouts. With `exact`, everything
    but the sum of a step's losses is in float64. If there is a `speaker`, only the responses to this example have
    tokens. At most `max_rows` rollouts are decoded at once. With `dither`, the model's weights are bfloat16 numbers.
    """

    name: str
    family: str = "qwen3_vl"
    kind: str = "ddp"
    num_steps: int = 3
    num_prompts: int = 5
    tied: bool = True
    text_only: int = 0
    freezes: bool = False
    lora: bool = False
    base_dtype: str = "float32"
    offload: bool = False
    dither: bool = False
    token_budget: int | None = 400
    method: str = "vcsd"
    teacher: str = "ema"
    seed: int = 0
    exact: bool = False
    speaker: str | None = None
    max_rows: int | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


class Recorder:
    """Keeps the loss, the numbers and the rollouts of every step. The first rank alone has monitors."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def observe(self, seen: Observation) -> dict[str, float]:
        rollouts = seen.batch.rollouts
        num_positions = sum(len(statistics.divergence) for statistics in seen.statistics)
        divergence = sum(float(statistics.divergence.sum()) for statistics in seen.statistics)
        self.steps.append(
            {
                "loss": seen.loss,
                "rollouts": [[r.example_id, r.index, list(r.token_ids)] for r in rollouts],
                "num_positions": num_positions,
                "divergence": divergence,
                "gradient_norm": seen.metrics["gradient_norm"],
                "teacher_distance": seen.metrics["teacher_distance"],
                "is_watched": any(thread.name == "vcsd-heartbeat" for thread in threading.enumerate()),
            }
        )
        return {}

    def state(self) -> dict[str, object]:
        return {}

    def restore(self, state: object, step: int) -> None:
        pass


def _model(case: Case) -> Any:
    if case.lora:
        return lora_model(case.family, EVERYWHERE, both=True, dtype=getattr(torch, case.base_dtype))
    if case.family in ("llava", "qwen3_vl", "qwen3_5"):
        model = build_model(case.family, tie_word_embeddings=case.tied)
        return rounded(model) if case.dither else model
    return build_fallback(case.family)


def _only(speaker: str | None) -> AbstractContextManager[object]:
    """Empty the responses to all other examples."""
    if speaker is None:
        return nullcontext()
    sample = TransformersEngine.sample

    def muted(*given: Any, **named: Any) -> Sampled:
        drawn = sample(*given, **named)
        rollouts = [each if each.example_id == speaker else replace(each, token_ids=()) for each in drawn.rollouts]
        return replace(drawn, rollouts=tuple(rollouts))

    return patch.object(TransformersEngine, "sample", muted)


def _decoded_in(max_rows: int | None) -> AbstractContextManager[object]:
    """Limit the rollouts that engines decode at once."""
    start = TransformersEngine.__init__
    limit = {} if max_rows is None else {"max_rows": max_rows}
    return patch.object(TransformersEngine, "__init__", lambda *given, **named: start(*given, **named, **limit))


def _examples(case: Case) -> list[Example]:
    examples = make_examples(max(5, case.num_prompts))
    text = [{"type": "text", "text": "what colour is the square?"}]
    blind = [replace(e, images=(), boxes=(), prompt=({"role": "user", "content": text},)) for e in examples]
    return [*blind[: case.text_only], *examples[case.text_only :]]


def trainer_of(case: Case, folder: Path, recorder: Recorder, **more: Any) -> VCSDTrainer:
    """Build the trainer of a case, of its model or a given one."""
    model = more.pop("model", None) or _model(case)
    if case.freezes:
        model.model.visual.requires_grad_(False)
    arguments: dict[str, Any] = {"max_steps": case.num_steps, "learning_rate": 1e-4, **case.arguments}
    if case.kind == "fsdp2" and "RANK" in os.environ:
        arguments["fsdp"] = True
    return make_trainer(
        folder,
        arguments=arguments,
        model=model,
        train_dataset=_examples(case),
        processing_class=build_processor(case.family if case.family in ("llava", "qwen3_5") else "qwen3_vl"),
        rollout=RolloutSettings(Sampling(max_new_tokens=6), 2, seed=case.seed),
        prompts_per_step=case.num_prompts,
        token_budget=case.token_budget,
        offload=case.offload,
        dither=case.dither,
        method=replace(METHODS[case.method], teacher=case.teacher),
        monitors=[recorder],
        **more,
    )


def run(case: Case, folder: Path) -> dict[str, Any]:
    """Train, and return what was recorded, what each step of this rank did, and the final weights."""
    recorder, watch, model = Recorder(), Watch(), _model(case)
    exactly = exact_arithmetic(model) if case.exact else nullcontext()
    with warnings.catch_warnings(), exactly, _only(case.speaker), _decoded_in(case.max_rows), watch.counting():
        warnings.simplefilter("ignore")
        trainer = trainer_of(case, folder / case.name, recorder, model=model)
        watch.attach(trainer)
        before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
        shares = shares_memory(trainer)
        trainer.train()
    teacher = trainer.teacher.weights or trainer.model
    return {
        "steps": recorder.steps,
        "losses": losses_of(trainer),
        "rank_steps": watch.steps,
        "starts_with_one_copy": shares,
        "starts_from": fingerprint(before),
        "ends_with": [fingerprint(named_tensors(each)) for each in (trainer.model, teacher)],
        "student_norm": norms_of(trainer.model),
        "teacher_norm": norms_of(teacher),
        **how_far(trainer, before),
    }


def shares_memory(trainer: VCSDTrainer) -> bool:
    """Whether all weights of the teacher are in the memory of the student's."""
    models = (trainer.model, trainer.teacher.weights or trainer.model)
    student, teacher = ([weight.data_ptr() for weight in model.parameters()] for model in models)
    return student == teacher


def how_far(trainer: VCSDTrainer, before: dict[str, torch.Tensor]) -> dict[str, Any]:
    """How many values of the trained weights of this rank differ from before, of how many, and their types."""
    trained = {name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    changes = [local_part(weight.detach() - _like(before[name], weight)) for name, weight in trained.items()]
    return {
        "num_moved": sum(int(change.count_nonzero()) for change in changes),
        "num_trained": sum(change.numel() for change in changes),
        "trained_dtypes": sorted({str(weight.dtype) for weight in trained.values()}),
        "frozen_dtypes": sorted({str(p.dtype) for p in trainer.model.parameters() if not p.requires_grad}),
    }


def _like(tensor: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return distribute_tensor(tensor, weight.device_mesh, weight.placements) if isinstance(weight, DTensor) else tensor


def norms_of(model: nn.Module) -> list[float]:
    """The norm of every weight."""
    return [float(whole(weight.detach()).double().norm()) for weight in model.parameters()]


def run_alone(cases: Sequence[Case], folder: Path) -> dict[str, dict[str, Any]]:
    """Run cases in this process."""
    return {case.name: run(case, folder) for case in cases}


def run_on_ranks(num_ranks: int, cases: Sequence[Case], folder: Path) -> list[dict[str, dict[str, Any]]]:
    """Run cases on several ranks, one after the other in the same processes; return the results of each rank."""
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in cases]))
    finish_ranks(start_ranks(num_ranks, __file__, folder))
    return read_results(num_ranks, folder)


def read_results(num_ranks: int, folder: Path) -> list[dict[str, dict[str, Any]]]:
    """Read what each rank left in a folder."""
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(num_ranks)]


def start_ranks(num_ranks: int, *command: object) -> list[Python]:
    """Start a Python program once per rank, with the environment that torchrun gives it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(num_ranks)}
    numbers = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(num_ranks)]
    return [start_python(*command, environment={**shared, **number}) for number in numbers]


def finish_ranks(ranks: Sequence[Python]) -> None:
    """Wait for all ranks, which must not fail. Ranks that hang are killed."""
    ended = [rank.wait(SECONDS) for rank in ranks]
    assert not any(rank.returncode for rank in ended), "\n---\n".join(rank.stdout + rank.stderr for rank in ended)


def main(folder: Path) -> None:
    """Run the cases of a folder on this rank."""
    torch.set_num_threads(1)
    cases = [Case(**case) for case in json.loads((folder / "cases.json").read_text())]
    results = run_alone(cases, folder)
    (folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(results))
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
