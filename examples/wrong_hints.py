"""Measure what matched OPSD gains when some of its hints are wrong, on a base of the offline world.

    python examples/wrong_hints.py --out runs/wrong --share 0 0.5             # the shipped Qwen3.5, minutes per run
    python examples/wrong_hints.py --out runs/wrong --share 1 --base my/base --seed 2
    python examples/wrong_hints.py --out /tmp/w --tiny                        # two steps, as a smoke test

A hint is the reference answer in the teacher's prompt. A wrong hint is another possible answer to the question: another
option letter, no instead of yes, another number or colour. Questions are of the split `dev`.
"""

import argparse
import json
import random
from pathlib import Path

from vcsd.bases.shipped_bases import shipped_base
from vcsd.config.shipped import recipe_path
from vcsd.reproduce.base_folders import Base
from vcsd.reproduce.cell import Cell, Sweep
from vcsd.reproduce.experiments import BASE, OPSD
from vcsd.reproduce.runners import RUNNERS
from vcsd.reproduce.training_prompts import FILE, write_prompts

COLOURS = ("white", "purple", "red", "blue", "orange", "cyan", "green", "yellow")
FULL, TINY = (64, 3072, ()), (1, 64, ("trainer.max_steps=2", "prompts_per_step=4"))
"""Questions per suite, prompts, overrides of the recipe."""


def offered(question: str, answer: str) -> list[str]:
    """The possible answers to a question.

    >>> offered("Which? A. left B. right", "B"), offered("Is it?", "no"), offered("How many?", "0")[:2]
    (['A', 'B'], ['yes', 'no'], ['0', '1'])
    """
    if answer in ("yes", "no"):
        return ["yes", "no"]
    if answer.isdigit():
        return [str(number) for number in range(6)]
    return [letter for letter in "ABCD" if f"{letter}. " in question] if answer in "ABCD" else list(COLOURS)


def spoil(folder: Path, share: float, seed: int) -> int:
    """Replace a share of the answers by wrong ones, and return how many."""
    draw, num_wrong = random.Random(seed), 0
    rows = [json.loads(line) for line in (folder / FILE).read_text(encoding="utf-8").splitlines()]
    for row in rows:
        if draw.random() < share:
            others = [answer for answer in offered(row["question"], row["answer"]) if answer != row["answer"]]
            row["answer"] = draw.choice(others)
            num_wrong += 1
    (folder / FILE).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return num_wrong


def main() -> None:
    """Train with each share of wrong hints and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a new folder for prompts and runs")
    parser.add_argument("--share", type=float, nargs="*", default=[0.0, 0.5], help="shares of wrong hints to try")
    parser.add_argument("--base", type=Path, default=shipped_base("qwen3_5"), help="default: the shipped Qwen3.5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="run two steps, as a smoke test")
    options = parser.parse_args()
    num_questions, num_prompts, changes = TINY if options.tiny else FULL
    for share in options.share:
        out = options.out / f"share-{share:g}-seed-{options.seed}"
        if out.exists():
            parser.error(f"{out} already exists: choose another --out")
        sweep = Sweep(recipe_path("world/reproduce"), out, num_questions, num_prompts, changes, split="dev")
        cells = {variant.name: Cell(variant, Base(options.base), options.seed, sweep) for variant in (BASE, OPSD)}
        folder = cells["OPSD"].prompts(out / "OPSD")
        write_prompts(folder, num_prompts)
        num_wrong = spoil(folder, share, options.seed)
        acc = {name: RUNNERS[cell.variant.kind](cell, out / name)["acc"] for name, cell in cells.items()}
        print(f"{num_wrong} of {num_prompts} hints wrong: base {acc['base']:.1f}, OPSD {acc['OPSD']:.1f}", flush=True)


if __name__ == "__main__":
    main()
