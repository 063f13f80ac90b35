"""Teach a language model to see: first its tower alone, then tower and language model together, from true captions.

    python -m vcsd.emoji.teach --language smollm2 --sprites sprites.safetensors --seed 1 --out bases/emoji-1

    sight      the tower learns which thing is in which cell, and the mean colour of each patch; usual scenes only
    captions   the whole model learns to answer and to describe, while it rehearses its own English

It resumes from its latest checkpoint and leaves an ordinary model folder in bfloat16 with a processor and a card. The
rows of a step depend only on seed and step, so on a CPU a resumed run gives the same model bit for bit.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from vcsd.checkpoint import Contents, check_checkpoint, latest_checkpoint, write_checkpoint
from vcsd.checkpoint.lock import only_process
from vcsd.checkpoint.whole_file import write_whole
from vcsd.emoji.captions import CaptionSteps, Shares
from vcsd.emoji.emoji_exam import NUM_DEV, SceneExam, english_perplexity
from vcsd.emoji.emoji_scenes import CELL, GRID, PICTURE, ScenePainter, draw_scene
from vcsd.emoji.english import replayed_text
from vcsd.emoji.seeing_model import PATCH, PromptTokens, TowerSize, build_seeing_model, hidden_states, write_processor
from vcsd.emoji.smollm2 import language_identity
from vcsd.emoji.sprites import load_sprites, sprites_identity
from vcsd.emoji.things import THINGS
from vcsd.errors import ConfigError, RunError
from vcsd.kernels.device import sent
from vcsd.models.hub import without_bars
from vcsd.monitor.machine import hardware, versions
from vcsd.terminal import exit_on_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vcsd.emoji.captions import LessonRows

    Say = Callable[[str], None]

Stage = Literal["sight", "captions"]

CARD = "emoji_base.json"
SAY_EVERY = 50
SAVE_SECONDS = 120.0
MOST_SKIPPED = 10
"""Steps that may have a gradient that is not finite. A kernel's rare fault costs a step, a diverging run ends."""

_WORKERS = 4
_PICTURES = 40
"""Arrangements for the stage `sight`, in batches. They recur; sizes, places, light and noise do not."""


@dataclass(frozen=True)
class TeachingPlan:
    """What to teach, how long, and how fast."""

    seed: int = 1
    sight_steps: int = 500
    caption_steps: int = 800
    sight_batch: int = 512
    shares: Shares = field(default_factory=Shares)
    tower: TowerSize = field(default_factory=TowerSize)
    replay_rows: int = 1024
    sight_rate: float = 1e-3
    tower_rate: float = 8e-4
    language_rate: float = 1e-4

    def steps(self) -> dict[Stage, int]:
        """The number of steps of every stage."""
        return {"sight": self.sight_steps, "captions": self.caption_steps}

    def factor(self, stage: Stage, step: int) -> float:
        """The share of its highest learning rate that a step uses: a short warm-up, then a cosine."""
        total = self.steps()[stage]
        return min(1.0, (step + 1) / 50) * max(0.03, 0.5 * (1 + math.cos(math.pi * step / total)))


def made_of(plan: TeachingPlan, language: Path, sprites: Path) -> dict[str, object]:
    """What a base is made of, for its card and its checkpoints: the plan, and hashes of language model and sprites."""
    return {
        "plan": asdict(plan),
        "language": language_identity(language),
        "sprites": sprites_identity(load_sprites(sprites)),
    }


def read_card(base: Path) -> dict[str, object]:
    """Read the card of a base. Raise a ConfigError if it is none."""
    try:
        card = json.loads((base / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError([f"{base / CARD} cannot be read: {error}. Teach the base again."]) from error
    if not isinstance(card, dict):
        raise ConfigError([f"{base / CARD} is not a card. Teach the base again."])
    return card


class SightHeads(nn.Module):
    """What the stage `sight` predicts: the thing in each cell, and the mean colour of each patch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.thing, self.rgb = nn.Linear(width, len(THINGS) + 1), nn.Linear(width, 3)

    def loss(self, patches_BPW: Tensor, sprites_B9: Tensor, pixels: Tensor) -> Tensor:
        """Cross entropy of the things plus the squared error of the colours."""
        num, _, width = patches_BPW.shape
        per_cell = CELL // PATCH
        cells = patches_BPW.view(num, GRID, per_cell, GRID, per_cell, width).mean((2, 4)).flatten(0, 2)
        things = torch.where(sprites_B9 < 0, len(THINGS), sprites_B9).flatten()
        patches = PICTURE // PATCH
        mean = pixels.view(num, 3, patches, PATCH, patches, PATCH).mean((3, 5)).flatten(2).transpose(1, 2)
        named = functional.cross_entropy(self.thing(cells).float(), things)
        return named + functional.mse_loss(self.rgb(patches_BPW).float(), 2 * mean - 1)


class Teaching:
    """A run: the model, its progress, and what it has learned."""

    def __init__(self, plan: TeachingPlan, language: Path, sprites: Path, out: Path, device: str, say: Say) -> None:
        self.plan, self.out, self.device, self.say = plan, out, torch.device(device), say
        out.mkdir(parents=True, exist_ok=True)
        self.made_of = made_of(plan, language, sprites)
        if (folder := latest_checkpoint(out / "checkpoints")) is not None:
            check_checkpoint(folder, self.made_of)  # before anything is written
        self.painter = ScenePainter(load_sprites(sprites), self.device)
        self.processor = write_processor(language, out)
        self.tokens = PromptTokens(self.processor.tokenizer)
        self.model = build_seeing_model(language, self.processor, plan.tower, plan.seed)
        self.model.to(device=self.device)  # type: ignore[call-arg]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seed)
            self.heads = SightHeads(plan.tower.width).to(self.device)
        self.done: dict[Stage, int] = {"sight": 0, "captions": 0}
        self.num_skipped = 0
        self.replay: list[list[int]] = []
        self.seconds, self._moments = 0.0, dict[str, Tensor]()
        self._resume()

    @property
    def num_done(self) -> int:
        """The number of finished steps of all stages."""
        return sum(self.done.values())

    def run(self, must_stop: Callable[[], bool] = lambda: False) -> bool:
        """Run the stages. Return True when all are done; save and return False as soon as `must_stop` says so."""
        started = saved = time.monotonic()
        before = self.seconds
        if not self.replay and self.plan.replay_rows:
            self.replay = replayed_text(self.model, self.tokens, self.plan.replay_rows, self.plan.seed)
            self.say(f"replay: {len(self.replay)} texts, {sum(map(len, self.replay))} tokens")
        for stage, total in self.plan.steps().items():
            for loss in self._steps(stage):
                now = time.monotonic()
                self.seconds = before + now - started
                if self.done[stage] % SAY_EVERY == 0 or self.done[stage] == total:
                    self._tell(stage, loss)
                is_over = must_stop()
                if is_over or now - saved > SAVE_SECONDS:
                    self._save(stage)
                    saved = time.monotonic()
                if is_over:
                    self.say(f"stopped after {self.num_done} steps; run the command again to resume")
                    return False
        return True

    def _steps(self, stage: Stage) -> Iterator[Tensor]:
        total = self.plan.steps()[stage]
        if self.done[stage] >= total:
            return
        self.optimizer = self._optimizer(stage)
        self.model.train()
        losses = self._sight_losses(total) if stage == "sight" else self._caption_losses(total)
        highest = [group["lr"] for group in self.optimizer.param_groups]
        for loss in losses:
            for group, rate in zip(self.optimizer.param_groups, highest, strict=True):
                group["lr"] = rate * self.plan.factor(stage, self.done[stage])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self._update()
            self.done[stage] += 1
            yield loss.detach()

    def _update(self) -> None:
        """Move the weights; not at all if the gradient is not finite, which would ruin every one of them."""
        norm = nn.utils.clip_grad_norm_([p for group in self.optimizer.param_groups for p in group["params"]], 1.0)
        if torch.isfinite(norm):
            self.optimizer.step()
            return
        self.num_skipped += 1
        self.say(f"the gradient of step {self.num_done + 1} is not finite; the step is skipped")
        if self.num_skipped > MOST_SKIPPED:
            raise RunError(f"the gradient was not finite in {self.num_skipped} steps. Lower the learning rates.")

    def _optimizer(self, stage: Stage) -> torch.optim.AdamW:
        tower = list(self.model.model.vision_model.parameters())
        if stage == "sight":
            groups = [{"params": [*tower, *self.heads.parameters()], "lr": self.plan.sight_rate, "weight_decay": 0.05}]
        else:
            eyes = [*tower, *self.model.model.connector.parameters()]
            known = {id(parameter) for parameter in eyes}
            words = [parameter for parameter in self.model.parameters() if id(parameter) not in known]
            groups = [
                {"params": words, "lr": self.plan.language_rate, "weight_decay": 0.01},
                {"params": eyes, "lr": self.plan.tower_rate, "weight_decay": 0.01},
            ]
        optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=self.device.type == "cuda")
        named = self._named()
        for key, value in self._moments.items():
            name, _, part = key.rpartition("/")
            optimizer.state[named[name]][part] = value
        self._moments = {}
        return optimizer

    def _sight_losses(self, total: int) -> Iterator[Tensor]:
        rng = random.Random(f"emoji sight {self.plan.seed}")
        scenes = [draw_scene(rng).arrays() for _ in range(_PICTURES * self.plan.sight_batch)]
        arrays = (torch.from_numpy(np.stack(each)) for each in zip(*scenes, strict=True))
        sprites, tints = (array.to(self.device) for array in arrays)
        for step in range(self.done["sight"], total):
            generator = self._generator("sight", step)
            shape = (self.plan.sight_batch,)
            chosen = torch.randint(len(sprites), shape, device=self.device, generator=generator)
            pixels = self.painter.paint(sprites[chosen], tints[chosen], generator)
            with self._autocast():
                patches = self.model.model.vision_model(
                    pixel_values=2 * pixels - 1, patch_attention_mask=self._whole(len(pixels))
                ).last_hidden_state
                loss = self.heads.loss(patches, sprites[chosen], pixels)
            yield loss

    def _caption_losses(self, total: int) -> Iterator[Tensor]:
        steps = CaptionSteps(self.tokens, self.plan.shares, self.replay, self.plan.seed, total)
        workers = _WORKERS if self.device.type == "cuda" else 0
        todo = range(self.done["captions"], total)
        rows: LessonRows
        for step, rows in zip(todo, DataLoader(steps, batch_size=None, sampler=todo, num_workers=workers), strict=True):
            pixels = self.painter.paint(rows.sprites_B9, rows.tints_B9, self._generator("captions", step))
            with self._autocast():
                hidden = hidden_states(self.model, rows, pixels.index_select(0, sent(rows.order_B, self.device)))
            yield functional.cross_entropy(self.model.lm_head(hidden.float()), sent(rows.taught_N, self.device))

    def _whole(self, num: int) -> Tensor:
        """Say that no patch of any picture is padding."""
        return torch.ones(num, PICTURE // PATCH, PICTURE // PATCH, dtype=torch.bool, device=self.device)

    def _generator(self, stage: Stage, step: int) -> torch.Generator:
        number = (self.plan.seed * 2 + (stage == "captions")) * 2**24 + step
        return torch.Generator(self.device).manual_seed(number)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def _tell(self, stage: Stage, loss: Tensor) -> None:
        value = loss.item()
        if not math.isfinite(value):
            raise RunError(f"the loss at step {self.num_done} is {value}. Lower the learning rates.")
        total = self.plan.steps()[stage]
        left = timedelta(
            seconds=round(self.seconds / self.num_done * (sum(self.plan.steps().values()) - self.num_done))
        )
        self.say(f"{stage} {self.done[stage]}/{total} loss {value:.4f}, about {left} left")

    def _named(self) -> dict[str, nn.Parameter]:
        own = {f"model.{name}": parameter for name, parameter in self.model.named_parameters()}
        return own | {f"heads.{name}": parameter for name, parameter in self.heads.named_parameters()}

    def _save(self, stage: Stage) -> None:
        """Write a checkpoint: weights, optimizer, progress. At the end of a stage its optimizer is not needed."""
        named = self._named()
        names = {id(parameter): name for name, parameter in named.items()}
        is_over = self.done[stage] == self.plan.steps()[stage]
        moments = {
            f"{names[id(parameter)]}/{key}": value.detach().contiguous()
            for parameter, fields in self.optimizer.state.items()
            for key, value in fields.items()
            if not is_over
        }
        weights = {name: parameter.detach().contiguous() for name, parameter in named.items()}
        state = {
            **{"done": self.done, "seconds": self.seconds, "replay": self.replay},
            "num_skipped": self.num_skipped,
        }
        contents = Contents(
            tensors={"model.safetensors": weights, "optimizer.safetensors": moments},
            texts={"state.json": json.dumps(state)},
            identity=self.made_of,
        )
        write_checkpoint(self.out / "checkpoints", self.num_done, contents, limit=1)

    def _resume(self) -> None:
        folder = latest_checkpoint(self.out / "checkpoints")
        if folder is None:
            return
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        self.done, self.seconds, self.replay = state["done"], state["seconds"], state["replay"]
        self.num_skipped = state["num_skipped"]
        weights = load_file(folder / "model.safetensors")
        with torch.no_grad():
            for name, parameter in self._named().items():
                parameter.copy_(weights[name])
        self._moments = load_file(folder / "optimizer.safetensors", device=str(self.device))
        self.say(f"resumed after {self.num_done} steps")

    def finish(self, num_dev: int = NUM_DEV) -> None:
        """Write the base in bfloat16, measure it on the split `dev` as it is written, and remove the checkpoints."""
        with without_bars():
            self.model.train(False).bfloat16().save_pretrained(self.out)
        model = self.model.float()  # type: ignore[no-untyped-call]
        exam = SceneExam(ScenePainter(self.painter.sprites.cpu()), self.processor, "dev", num_dev)
        scores, perplexity = exam.take(model), english_perplexity(model, self.processor.tokenizer)
        card = {
            **self.made_of,
            "dev": scores,
            "english_perplexity": perplexity,
            "seconds": round(self.seconds, 1),
            "num_skipped": self.num_skipped,
            "hardware": hardware(),
            "versions": versions(),
        }
        write_whole(self.out / CARD, json.dumps(card, indent=1) + "\n")
        shutil.rmtree(self.out / "checkpoints", ignore_errors=True)
        accuracies = ", ".join(f"{name} {score['right']:.1f}" for name, score in scores.items())
        self.say(f"dev, {num_dev} questions each: {accuracies}; perplexity of English {perplexity:.1f}")


def teach(
    plan: TeachingPlan,
    language: Path,
    sprites: Path,
    out: Path,
    *,
    device: str,
    say: Say,
    num_dev: int = NUM_DEV,
    must_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Teach a base into a folder, resuming an unfinished one. Return False if `must_stop` ended it before its end."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ConfigError([f"--device {device}: torch sees no GPU here. Leave it out to use the CPU."])
    if (out / CARD).exists():
        card, wanted = read_card(out), made_of(plan, language, sprites)
        if other := [name for name in wanted if card.get(name) != wanted[name]]:
            raise ConfigError([f"{out} holds a base of another {' and '.join(other)}. Choose another folder."])
        say(f"{out} is already done.")
        return True
    torch.backends.cuda.enable_cudnn_sdp(False)  # its gradients may not be finite
    with only_process(out):
        teaching = Teaching(plan, language, sprites, out, device, say)
        if not teaching.run(must_stop):
            return False
        teaching.finish(num_dev)
        return True


def timed_say() -> Say:
    """Return a function that prints a line at once, after the seconds since now."""
    started = time.monotonic()

    def say(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - started:6.1f} s  {line}\n")
        sys.stdout.flush()

    return say


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.teach", description="Teach a language model to see.")
    for name in ("--language", "--sprites", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--seed", type=int, default=TeachingPlan.seed)
    parser.add_argument("--sight-steps", type=int, default=TeachingPlan.sight_steps)
    parser.add_argument("--caption-steps", type=int, default=TeachingPlan.caption_steps)
    parser.add_argument("--facts", type=int, default=Shares.fact, help="Rows of a step with a usual colour in text.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    say = timed_say()
    with exit_on_error():
        shares = Shares(fact=options.facts)
        plan = TeachingPlan(options.seed, options.sight_steps, options.caption_steps, shares=shares)
        torch.set_float32_matmul_precision("high")
        teach(plan, options.language, options.sprites, options.out, device=options.device, say=say)


if __name__ == "__main__":
    main()
