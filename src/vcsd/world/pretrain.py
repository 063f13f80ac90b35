"""Pre-training a base: it learns to see, then to answer, then to trust its prior.

    python -m vcsd.world.pretrain --family qwen3_vl --size small --seed 1 --out bases/qwen3_vl-small-1

is `vcsd world pretrain` without the terminal's colours. Started again, it goes on from its latest checkpoint. The
folder it leaves is a plain model folder in bfloat16 with its processor, a card and the gates that were measured.

Every step's rows are keyed by seed and step, so a run that was interrupted ends where it would have ended: bit for bit
on a CPU. On CUDA a step is recorded once per stage and replayed.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
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

from vcsd.checkpoint.folder import Contents, check_checkpoint, latest_checkpoint, write_checkpoint
from vcsd.errors import RunError, VcsdError
from vcsd.models.processor import load_processor
from vcsd.world.card import CARD, read_card, write_card
from vcsd.world.forward import Forward, Painter, gather, place
from vcsd.world.given import refuse_no_folder, refuse_seed
from vcsd.world.lessons import STAGES, STEPS_AT_ONCE, Lessons, Shape, Stage
from vcsd.world.measure import Speaker, gates, kind_scores, sight, suite_scores
from vcsd.world.models import build_model
from vcsd.world.parameters import PARAMETERS
from vcsd.world.plan import Plan, command_line, refuse_another
from vcsd.world.recorded import Work, in_bfloat16
from vcsd.world.suites import build_suites
from vcsd.world.tokenizer import write_processor_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from vcsd.world.forward import Placed, Rows
    from vcsd.world.lessons import Block

Tell = Callable[[int, int, str], None]
"""Called every few steps with the steps done, the steps in all, and a line of numbers."""

SAY_EVERY = 50
SAVE_SECONDS = 60.0
NUM_MEASURED = 200
"""Questions of each suite by which a base is measured on its way."""
_AHEAD, _WORKERS = 4, 2
_GROUPS = 2
"""Groups of blocks that a GPU takes in turn: two are padded by a fifth, one would be by nearly its own size."""


class Pretraining:
    """A run: the model, its optimizer, where it stands and what has been measured."""

    def __init__(self, plan: Plan, out: Path, device: torch.device, tell: Tell, pool: Executor | None = None) -> None:
        self.plan, self.out, self.device, self.tell, self.pool = plan, out, device, tell, pool
        model: Any = build_model(plan.family, plan.size, plan.seed)
        self.model: Any = model.to(device)
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
        self.done: dict[Stage, int] = dict.fromkeys(STAGES, 0)
        self.measured: dict[str, Any] = {}
        self.seconds = 0.0
        write_processor_files(out, plan.family)
        self.processor = load_processor(out)
        self._resume()
        if is_cuda:  # compute in bfloat16; what is trained and saved stays float32
            self.compute = in_bfloat16(self._copy())

    @property
    def num_done(self) -> int:
        """Steps that are done, of all stages."""
        return sum(self.done.values())

    def run(self, stop_after: int | None = None) -> bool:
        """Go through the stages; True when all is done, False after `stop_after` steps."""
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
        """The steps of a stage that are not done, one after the other; each yields its loss."""
        total = self.plan.steps()[stage]
        if self.done[stage] >= total:
            return
        shapes = self.lessons.shapes(stage)
        # A CPU pays for padding, a GPU for calls as well: blocks one by one there, in a few groups here.
        groups = by_length(shapes, _GROUPS if self.device.type == "cuda" else len(shapes))
        self.compute.train()
        forwards = [Forward(self.compute, [shapes[i] for i in group]) for group in groups]
        work = Work(self.compute, self.optimizer, forwards, self.plan.parameters.clip)
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

    def _rows(self, stage: Stage, step: int, blocks: list[Placed], groups: list[list[int]]) -> list[Rows]:
        generator = torch.Generator(self.device)
        generator.manual_seed((self.plan.seed * len(STAGES) + STAGES.index(stage)) * 2**24 + step)
        return gather(self.painter, [[blocks[i] for i in group] for group in groups], generator)

    def _say(self, stage: Stage, loss: Tensor) -> None:
        value = loss.item()
        if not math.isfinite(value):
            raise RunError(f"the loss of step {self.num_done} is {value}. Lower learning_rate; the checkpoint is kept.")
        self.tell(self.num_done, sum(self.plan.steps().values()), f"{stage} loss {value:.4f}")

    def _measure(self, stage: Stage) -> None:
        """What the model can do after a stage; once per stage."""
        if stage in self.measured:
            return
        model, world = in_bfloat16(self._copy()).float(), self.plan.parameters  # as it will be shipped
        speaker = Speaker(model, self.processor)
        found: dict[str, Any]
        if stage == "sway":
            found = gates(model, self.processor, num=NUM_MEASURED, parameters=world)
        else:
            found = {"sight": sight(speaker, NUM_MEASURED, "dev", world)}
            if stage == "answer":
                found["greedy"] = suite_scores(speaker, build_suites(split="dev", num=NUM_MEASURED, parameters=world))
                found["kinds"] = kind_scores(speaker, NUM_MEASURED, world)
        self.measured[stage] = found
        self.tell(self.num_done, sum(self.plan.steps().values()), f"{stage}: {json.dumps(found)}")

    def _copy(self) -> Any:
        """The model as transformers makes it: neither training nor measuring may leave its ways in the other's."""
        model: Any = build_model(self.plan.family, self.plan.size)
        model.load_state_dict(self.model.state_dict())
        return model.to(self.device).eval()

    def save(self) -> None:
        """Write a checkpoint: weights, optimizer, where the run stands."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        moments = {
            f"{names[id(parameter)]}/{key}": value.detach().contiguous()
            for parameter, fields in self.optimizer.state.items()
            for key, value in fields.items()
        }
        weights = {name: parameter.detach().contiguous() for name, parameter in self.model.named_parameters()}
        state = {"done": self.done, "measured": self.measured, "seconds": self.seconds}
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
        weights = load_file(folder / "model.safetensors")
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])
        for key, value in load_file(folder / "optimizer.safetensors", device=str(self.device)).items():
            name, _, field = key.rpartition("/")
            self.optimizer.state[parameters[name]][field] = value

    def finish(self, command: str) -> None:
        """Leave the base in bfloat16 with its card."""
        self._copy().to(torch.bfloat16).save_pretrained(self.out)
        write_card(self.out, self.plan.identity(), self.plan.parameters, self.measured, self.seconds, command)
        shutil.rmtree(self.out / "checkpoints", ignore_errors=True)


def by_length(shapes: Sequence[Shape], most: int) -> list[list[int]]:
    """Blocks in at most so many groups of similar length, so that the least is padded; each in the blocks' own order.

    >>> by_length([Shape(3, "plain", 9, 50), Shape(3, "hint", 1, 100), Shape(5, "plain", 8, 60)], most=2)
    [[0, 2], [1]]
    """
    order = sorted(range(len(shapes)), key=lambda i: shapes[i].length)
    cuts = combinations(range(1, len(order)), min(most, len(order)) - 1)
    splits = ([order[a:b] for a, b in pairwise((0, *cut, len(order)))] for cut in cuts)
    best = min(splits, key=lambda groups: sum(_padded([shapes[i] for i in group]) for group in groups))
    return sorted(sorted(group) for group in best)


def _padded(shapes: Sequence[Shape]) -> int:
    return sum(shape.rows for shape in shapes) * max(shape.length for shape in shapes)


def _chunks(lessons: Lessons, stage: Stage, wanted: range, pool: Executor | None) -> Iterator[tuple[int, list[Block]]]:
    """The chunks of a stage in order; with a pool they are drawn ahead by its processes."""
    if pool is None:
        yield from ((index, lessons.chunk(stage, index)) for index in wanted)
        return
    ahead: dict[int, Future[list[Block]]] = {}
    for index in wanted:
        for coming in range(index, min(index + _AHEAD, wanted.stop)):
            if coming not in ahead:
                ahead[coming] = pool.submit(lessons.chunk, stage, coming)
        yield index, ahead.pop(index).result()


def refuse_unfit(plan: Plan, out: Path) -> None:
    """Raise for a seed that no generator takes, and for a place that is no folder or holds something else."""
    refuse_seed("--seed", plan.seed)
    refuse_no_folder(out)
    if (out / CARD).exists():
        refuse_another(plan, out, read_card(out))


def pretrain(
    plan: Plan, out: Path, *, device: str | None = None, tell: Tell, command: str, stop_after: int | None = None
) -> bool:
    """Pre-train a base into a folder, or go on with it. True when it is done."""
    refuse_unfit(plan, out)
    if (out / CARD).exists():
        tell(0, 0, f"{out} is done already.")
        return True
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.set_float32_matmul_precision("high")
    # Beside a GPU, rows are drawn by other processes: its steps are shorter than their drawing.
    pool = ProcessPoolExecutor(_WORKERS, mp_context=get_context("spawn")) if chosen.type == "cuda" else None
    try:
        run = Pretraining(plan, out, chosen, tell, pool)
        if not run.run(stop_after):
            return False
        run.finish(command)
    finally:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
    return True


def main() -> None:
    """The command without typer and rich: one line of numbers every few steps."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.world.pretrain", description="Pre-train a base of the world.")
    parser.add_argument("--family", default="qwen3_vl")
    parser.add_argument("--size", default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default=None)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    started = time.monotonic()

    def tell(done: int, total: int, line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - started:6.1f} s  {done}/{total}  {line}\n")
        sys.stdout.flush()

    try:
        plan = Plan(given.family, given.size, given.seed, PARAMETERS.changed(given.overrides))
        command = command_line("python -m vcsd.world.pretrain", plan, given.overrides)
        pretrain(plan, given.out, device=given.device, tell=tell, command=command)
    except VcsdError as error:
        sys.stderr.write(f"error: {type(error).__name__}: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
