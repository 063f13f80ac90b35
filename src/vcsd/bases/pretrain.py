"""Pre-train a base: it learns to see, then to answer, then to trust its prior.

    python -m vcsd.bases.pretrain --family qwen3_vl --size small --seed 1 --out bases/qwen3_vl-small-1

This is `vcsd world pretrain` without the progress bar. It resumes from its latest checkpoint, and leaves an ordinary
model folder in bfloat16 with a processor and a card.

The rows of a step depend only on seed and step, so a resumed run gives the same model: on a CPU, bit for bit. On CUDA,
a step is recorded once per stage and replayed.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from itertools import combinations, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from vcsd.bases.card import CARD, read_card, write_card
from vcsd.bases.curriculum import Curriculum, command_line, refuse_another
from vcsd.bases.forward import Forward, Painter, gather, place
from vcsd.bases.lessons import STAGES, STEPS_AT_ONCE, Lessons, Shape, Stage
from vcsd.bases.measure import Speaker, gates, kind_scores, sight, suite_scores
from vcsd.bases.recorded import Work, in_bfloat16
from vcsd.bases.tiny_models import build_model
from vcsd.bases.tokenizer import write_processor_files
from vcsd.checkpoint import Contents, check_checkpoint, latest_checkpoint, write_checkpoint
from vcsd.checkpoint.lock import only_process
from vcsd.errors import RunError
from vcsd.models.processor import load_processor
from vcsd.terminal import exit_on_error
from vcsd.world.checks import refuse_no_folder, refuse_seed
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.suites import build_suites

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor
    from transformers import PreTrainedModel

    from vcsd.bases.card import BaseScores
    from vcsd.bases.forward import Placed, TokenRows
    from vcsd.bases.lessons import Block

Tell = Callable[[int, int, str], None]
"""Called every few steps with the number of finished steps, the total number, and a line of text."""

SAY_EVERY = 50
SAVE_SECONDS = 60.0
MOST_LOST = 10
"""The most steps with a gradient that is not finite, checked every few steps and after a stage. A kernel's rare fault
costs a step; a diverging run ends."""
NUM_MEASURED = 200
"""Questions per suite when a base is measured during pre-training."""
_AHEAD, _WORKERS = 4, 2
_GROUPS = 2
"""Groups of blocks per step on a GPU. With two groups, padding adds a fifth; with one, it would nearly double the size.
"""


class Pretraining:
    """A run: the model, its optimizer, its progress and what has been measured."""

    def __init__(
        self, plan: Curriculum, out: Path, device: torch.device, tell: Tell, pool: Executor | None = None
    ) -> None:
        self.plan, self.out, self.device, self.tell, self.pool = plan, out, device, tell, pool
        model: Any = build_model(plan.family, plan.size, plan.seed)
        self.model: PreTrainedModel = model.to(device)
        self.compute = self.model
        self.lessons = Lessons(plan.family, plan.parameters, plan.seed)
        self.painter = Painter(plan.parameters, device)
        is_cuda = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=torch.tensor(0.0, device=device) if is_cuda else 0.0,
            betas=(0.9, 0.95),
            weight_decay=plan.parameters.weight_decay,
            capturable=is_cuda,
        )
        self.num_measured = NUM_MEASURED
        self.done: dict[Stage, int] = dict.fromkeys(STAGES, 0)
        self.measured: dict[str, BaseScores] = {}
        self.seconds = 0.0
        self.num_lost = torch.zeros((), dtype=torch.long, device=device)
        write_processor_files(out, plan.family)
        self.processor = load_processor(out)
        self._resume()
        if is_cuda:  # compute in bfloat16, but train and save in float32
            self.compute = in_bfloat16(self._copy())

    @property
    def num_done(self) -> int:
        """The number of finished steps of all stages."""
        return sum(self.done.values())

    def run(self, stop_after: int | None = None) -> bool:
        """Run the stages. Return True when all are done, and False after `stop_after` steps."""
        started = saved = time.monotonic()
        before = self.seconds
        for stage in STAGES:
            for loss in self._steps(stage):
                self.seconds = before + time.monotonic() - started
                if self.done[stage] % SAY_EVERY == 0:
                    self._say(stage, loss)
                is_over = stop_after is not None and self.num_done >= stop_after
                if is_over or time.monotonic() - saved > SAVE_SECONDS:
                    self.save()
                    saved = time.monotonic()
                if is_over:
                    return False
            if self.plan.steps()[stage]:
                self._measure(stage)
        self.seconds = before + time.monotonic() - started
        return True

    def _steps(self, stage: Stage) -> Iterator[Tensor]:
        """Run the remaining steps of a stage and yield the loss of each."""
        total = self.plan.steps()[stage]
        if self.done[stage] >= total:
            return
        shapes = self.lessons.shapes(stage)
        # Padding costs time on a CPU, kernel launches on a GPU: blocks one by one on a CPU, a few groups on a GPU.
        groups = by_length(shapes, _GROUPS if self.device.type == "cuda" else len(shapes))
        self.compute.train()
        forwards = [Forward(self.compute, [shapes[i] for i in group]) for group in groups]
        work = Work(self.compute, self.optimizer, forwards, self.plan.parameters.clip, self.num_lost)
        wanted = range(self.done[stage] // STEPS_AT_ONCE, -(-total // STEPS_AT_ONCE))
        for index, blocks in _chunks(self.lessons, stage, wanted, self.pool):
            placed = [place(block, self.device) for block in blocks]
            for step in range(max(self.done[stage], index * STEPS_AT_ONCE), min(total, (index + 1) * STEPS_AT_ONCE)):
                own = [
                    block.step(step % STEPS_AT_ONCE, shape.rows) for block, shape in zip(placed, shapes, strict=True)
                ]
                loss = work.step(self._rows(stage, step, own, groups), self.plan.learning_rate(stage, step))
                self.done[stage] = step + 1
                yield loss

    def _rows(self, stage: Stage, step: int, blocks: list[Placed], groups: list[list[int]]) -> list[TokenRows]:
        generator = torch.Generator(self.device)
        generator.manual_seed((self.plan.seed * len(STAGES) + STAGES.index(stage)) * 2**24 + step)
        return gather(self.painter, [[blocks[i] for i in group] for group in groups], generator)

    def _say(self, stage: Stage, loss: Tensor) -> None:
        value = loss.item()
        if not math.isfinite(value):
            raise RunError(f"the loss at step {self.num_done} is {value}. Lower learning_rate; the checkpoint is kept.")
        self._refuse_many_lost()
        self.tell(self.num_done, sum(self.plan.steps().values()), f"{stage} loss {value:.4f}")

    def _refuse_many_lost(self) -> None:
        if (num_lost := int(self.num_lost)) > MOST_LOST:
            raise RunError(
                f"the gradient was not finite in {num_lost} of {self.num_done} steps. Lower learning_rate; "
                "the checkpoint is kept."
            )

    def _measure(self, stage: Stage) -> None:
        """Measure the model after a stage, once per stage."""
        if stage in self.measured:
            return
        self._refuse_many_lost()
        model, world = in_bfloat16(self._copy()).float(), self.plan.parameters  # as it will be shipped
        speaker = Speaker(model, self.processor)
        scores: BaseScores
        if stage == "sway":
            scores = gates(model, self.processor, num=self.num_measured, parameters=world)
        else:
            scores = {"sight": sight(speaker, self.num_measured, "dev", world)}
            if stage == "answer":
                scores["greedy"] = suite_scores(
                    speaker, build_suites(split="dev", num=self.num_measured, parameters=world)
                )
                scores["kinds"] = kind_scores(speaker, self.num_measured, world)
        self.measured[stage] = scores
        self.tell(self.num_done, sum(self.plan.steps().values()), f"{stage}: {json.dumps(scores)}")

    def _copy(self) -> Any:
        """Return a fresh copy of the model, without the patches that training or measuring installs."""
        model: Any = build_model(self.plan.family, self.plan.size)
        model.load_state_dict(self.model.state_dict())
        return model.to(self.device).eval()

    def save(self) -> None:
        """Write a checkpoint: weights, optimizer, progress."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        moments = {
            f"{names[id(parameter)]}/{key}": value.detach().contiguous()
            for parameter, fields in self.optimizer.state.items()
            for key, value in fields.items()
        }
        weights = {name: parameter.detach().contiguous() for name, parameter in self.model.named_parameters()}
        state = {"done": self.done, "measured": self.measured, "seconds": self.seconds, "num_lost": int(self.num_lost)}
        contents = Contents(
            tensors={"model.safetensors": weights, "optimizer.safetensors": moments},
            texts={"state.json": json.dumps(state)},
            identity=self.plan.identity(),
        )
        write_checkpoint(self.out / "checkpoints", self.num_done, contents, limit=1)

    def _resume(self) -> None:
        folder = latest_checkpoint(self.out / "checkpoints")
        if folder is None:
            return
        check_checkpoint(folder, self.plan.identity())
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        self.done, self.measured, self.seconds = state["done"], state["measured"], state["seconds"]
        self.num_lost.fill_(state.get("num_lost", 0))  # checkpoints of earlier versions do not count
        weights = load_file(folder / "model.safetensors")
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])
        for key, value in load_file(folder / "optimizer.safetensors", device=str(self.device)).items():
            name, _, field = key.rpartition("/")
            self.optimizer.state[parameters[name]][field] = value

    def finish(self, command: str) -> None:
        """Write the base in bfloat16 with its card, and remove the checkpoints."""
        self._copy().to(torch.bfloat16).save_pretrained(self.out)
        lost = [f"Steps whose gradient was not finite, and counted as zero: {n}."] if (n := int(self.num_lost)) else []
        write_card(self.out, self.plan, self.measured, self.seconds, command, notes=lost)
        shutil.rmtree(self.out / "checkpoints", ignore_errors=True)


def by_length(shapes: Sequence[Shape], most: int) -> list[list[int]]:
    """Split blocks into at most `most` groups of similar length with the least padding; groups keep the blocks' order.

    >>> by_length([Shape(3, "plain", 9, 50), Shape(3, "hint", 1, 100), Shape(5, "plain", 8, 60)], most=2)
    [[0, 2], [1]]
    """
    order = sorted(range(len(shapes)), key=lambda i: shapes[i].length)
    cuts = combinations(range(1, len(order)), min(most, len(order)) - 1)
    splits = ([order[a:b] for a, b in pairwise((0, *cut, len(order)))] for cut in cuts)

    def padded(group: list[int]) -> int:
        return sum(shapes[i].rows for i in group) * max(shapes[i].length for i in group)

    best = min(splits, key=lambda groups: sum(map(padded, groups)))
    return sorted(sorted(group) for group in best)


def _chunks(lessons: Lessons, stage: Stage, wanted: range, pool: Executor | None) -> Iterator[tuple[int, list[Block]]]:
    """The chunks of a stage in order. The processes of a pool, if there is one, draw them ahead of time."""
    if pool is None:
        yield from ((index, lessons.chunk(stage, index)) for index in wanted)
        return
    ahead: dict[int, Future[list[Block]]] = {}
    for index in wanted:
        for upcoming in range(index, min(index + _AHEAD, wanted.stop)):
            if upcoming not in ahead:
                ahead[upcoming] = pool.submit(lessons.chunk, stage, upcoming)
        yield index, ahead.pop(index).result()


def _drawing_processes() -> ProcessPoolExecutor:
    """Start processes that ignore Ctrl-C, which reaches every process: this one ends the others."""
    ignore = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(_WORKERS, get_context("spawn"), initializer=signal.signal, initargs=ignore)


def refuse_unfit(plan: Curriculum, out: Path) -> None:
    """Raise for an invalid seed, and for a folder that cannot be created or holds another base."""
    refuse_seed("--seed", plan.seed)
    refuse_no_folder(out)
    if (out / CARD).exists():
        refuse_another(plan, out, read_card(out))


def pretrain(
    plan: Curriculum,
    out: Path,
    *,
    device: str | None = None,
    tell: Tell,
    command: str,
    stop_after: int | None = None,
    num_measured: int | None = None,
) -> bool:
    """Pre-train a base into a folder, resuming an unfinished one. Return whether it is done."""
    refuse_unfit(plan, out)
    if (out / CARD).exists():
        tell(0, 0, f"{out} is already done.")
        return True
    on = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.set_float32_matmul_precision("high")
    # With a GPU, other processes draw the rows, since drawing takes longer than a step.
    pool = _drawing_processes() if on.type == "cuda" else None
    try:
        with only_process(out):
            run = Pretraining(plan, out, on, tell, pool)
            run.num_measured = num_measured or run.num_measured
            if not run.run(stop_after):
                return False
            run.finish(command)
    finally:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
    return True


def main() -> None:
    """Run the command without typer and rich: it prints one line every few steps."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.bases.pretrain", description="Pre-train a base of the world.")
    parser.add_argument("--family", default="qwen3_vl")
    parser.add_argument("--size", default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default=None)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    started = time.monotonic()

    def tell(done: int, total: int, line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - started:6.1f} s  {done}/{total}  {line}\n")
        sys.stdout.flush()

    with exit_on_error():
        plan = Curriculum(options.family, options.size, options.seed, PARAMETERS.changed(options.overrides))
        command = command_line("python -m vcsd.bases.pretrain", plan, options.overrides)
        pretrain(plan, options.out, device=options.device, tell=tell, command=command)


if __name__ == "__main__":
    main()
