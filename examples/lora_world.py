"""Compare LoRA with training whole weights on a base of the offline world, at several learning rates and seeds.

    python examples/lora_world.py --out runs/lora --rates 1e-3 3e-3 --seeds 1             # choose a rate, minutes a run
    python examples/lora_world.py --out runs/lora --rates 3e-3 --seeds 1 2 3 4 5 --whole  # and compare
    python examples/lora_world.py --out runs/lora --rates 3e-3 --both                     # train both factors
    python examples/lora_world.py --out /tmp/l --rates 1e-3 --tiny                        # two steps, as a smoke test

Each run has the steps of `vcsd demo`. With --both, the script also follows the exact average of the student's effective
weights, and reports how far the teacher, whose factors are averaged apart, is from it.
"""

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import TrainerCallback

from vcsd import run
from vcsd.bases.shipped_bases import shipped_base
from vcsd.config.shipped import recipe_path
from vcsd.evaluation.scoring.compare import spread
from vcsd.evaluation.scoring.student_t import quantile
from vcsd.lora.effective import effective_changes, relative_error
from vcsd.models.family import base_model
from vcsd.models.hub import load_to_answer
from vcsd.reproduce.base_folders import Base
from vcsd.reproduce.cell import Cell, Sweep
from vcsd.reproduce.experiments import Variant
from vcsd.reproduce.paired_runs import shown
from vcsd.reproduce.runners import exam_of, scores
from vcsd.reproduce.training_prompts import write_prompts


class ExactAverage(TrainerCallback):
    """The moving average of the student's effective weights, next to the teacher's average of factors."""

    def __init__(self, rate: float) -> None:
        self.rate, self.average = rate, {}

    def on_train_begin(self, args, state, control, model=None, **others) -> None:
        """Start from the student."""
        self.average = effective_changes(model)

    def on_step_end(self, args, state, control, model=None, **others) -> None:
        """Follow the student after each step."""
        for name, change in effective_changes(model).items():
            self.average[name].lerp_(change, self.rate)


def train(cell: Cell, work: Path) -> str:
    """Run a cell, and describe its student and teacher."""
    write_prompts(cell.prompts(work), cell.sweep.num_prompts)
    loaded, start = run.load(cell.recipe(work)), time.monotonic()
    exact = ExactAverage(loaded.recipe.method.ema_rate)
    trainer = run.train(loaded, callbacks=[exact] if loaded.recipe.lora.rank is not None else [])
    seconds = time.monotonic() - start
    exam = exam_of(cell.base.folder, cell.sweep.num_questions, cell.sweep.split)
    result = scores(exam, exam.take(base_model(trainer.model), name=cell.key))
    ACC.setdefault(cell.variant.name, []).append(result["acc"])
    error = relative_error(effective_changes(trainer.teacher.module), exact.average) if exact.average else 0.0
    line = f"Acc {result['acc']:.2f}, usual {result['usual']:.2f}, {seconds:.0f} s"
    return line + (f", error of the teacher's effective change {error:.2e}" if exact.average else "")


ACC: dict[str, list[float]] = {}
"""Accuracies by variant, in the order of the seeds."""


def difference(gaps: Sequence[float]) -> str:
    """The mean of paired differences, and from two seeds on their spread and the interval by Student's t."""
    gap = spread(gaps)
    if gap.sd is None:
        return shown(gap)
    half = quantile(0.95, len(gaps) - 1) * gap.sd / math.sqrt(len(gaps))
    return f"{shown(gap)}, 95% interval {gap.mean - half:+.2f} to {gap.mean + half:+.2f}"


def variants(options: argparse.Namespace) -> list[Variant]:
    """The runs to do for each seed."""
    factors = ("lora.train_a=true",) if options.both else ()
    vision = ("lora.vision=true",) if options.vision else ()
    found = [
        Variant(
            f"LoRA, rank {options.rank}, lr {rate}{', both factors' * options.both}{', vision too' * options.vision}",
            overrides=(f"lora.rank={options.rank}", f"trainer.learning_rate={rate}", *factors, *vision),
        )
        for rate in options.rates
    ]
    return [*([Variant("whole weights")] if options.whole else []), *found]


def main() -> None:
    """Train every variant with every seed and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for prompts and runs")
    parser.add_argument("--rates", nargs="*", default=[], help="learning rates of LoRA")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--both", action="store_true", help="train both factors")
    parser.add_argument("--vision", action="store_true", help="adapt the vision tower too")
    parser.add_argument("--whole", action="store_true", help="train whole weights too, at the recipe's rate")
    parser.add_argument("--base", type=Path, default=shipped_base("qwen3_vl"), help="default: the shipped Qwen3-VL")
    parser.add_argument("--questions", type=int, default=256, help="per suite")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true", help="run two steps, as a smoke test")
    options = parser.parse_args()
    changes = [f"trainer.max_steps={2 if options.tiny else options.steps}", "resume=never"]
    changes += ["prompts_per_step=4"] if options.tiny else []
    num_prompts = 64 if options.tiny else 1024
    sweep = Sweep(recipe_path("world/demo"), options.out, options.questions, num_prompts, tuple(changes))
    exam = exam_of(options.base, options.questions)
    base = scores(exam, exam.take(load_to_answer(options.base, dtype=torch.float32), name="base"))
    print(f"base: Acc {base['acc']:.2f}, usual {base['usual']:.2f}", flush=True)
    for seed in options.seeds:
        for number, variant in enumerate(variants(options)):
            work = options.out / f"seed-{seed}-{variant.name.replace(', ', '-').replace(' ', '-')}"
            line = train(Cell(variant, Base(options.base), seed, sweep), work)
            print(f"seed {seed}, {variant.name}: {line}", flush=True)
            if number and "whole weights" in ACC:
                print(f"    minus whole weights: {ACC[variant.name][-1] - ACC['whole weights'][-1]:+.2f}", flush=True)
    for name, values in ACC.items():
        gaps = [mine - whole for mine, whole in zip(values, ACC.get("whole weights", []), strict=False)]
        compared = f", minus whole weights {difference(gaps)}" if gaps and name != "whole weights" else ""
        print(f"{name}: Acc {shown(spread(values))}{compared}, mean ± standard deviation over {len(values)} seeds")


if __name__ == "__main__":
    main()
