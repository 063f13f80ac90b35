"""What matched OPSD gains when some of its hints are wrong, from a base of the offline world.

    python examples/wrong_hints.py --out runs/wrong --share 0 0.5             # the shipped Qwen3.5, minutes a run
    python examples/wrong_hints.py --out runs/wrong --share 1 --base my/base --seed 2
    python examples/wrong_hints.py --out /tmp/w --tiny                        # two steps: does it run?

A hint is the reference answer in the teacher's prompt. A wrong one is an answer that was given to another question of
the same kind: another letter among those offered, no for yes, another number or colour. Asked is the split `dev`.
"""

import argparse
import json
import random
from pathlib import Path

from vcsd.reproduce.bases import Base
from vcsd.reproduce.cell import Cell, Plan
from vcsd.reproduce.experiments import BASE, OPSD
from vcsd.reproduce.prompts import FILE, write_prompts
from vcsd.reproduce.recipes import recipe_path
from vcsd.reproduce.runners import RUNNERS
from vcsd.world.bases import shipped_base

COLOURS = ("white", "purple", "red", "blue", "orange", "cyan", "green", "yellow")
FULL, TINY = (64, 3072, ()), (1, 64, ("trainer.max_steps=2", "prompts_per_step=4"))
"""Questions of a suite, prompts, changes to the recipe."""


def offered(question: str, answer: str) -> list[str]:
    """The answers that a question of this kind could have.

    >>> offered("Which? A. left B. right", "B"), offered("Is it?", "no"), offered("How many?", "0")[:2]
    (['A', 'B'], ['yes', 'no'], ['0', '1'])
    """
    if answer in ("yes", "no"):
        return ["yes", "no"]
    if answer.isdigit():
        return [str(number) for number in range(6)]
    return [letter for letter in "ABCD" if f"{letter}. " in question] if answer in "ABCD" else list(COLOURS)


def spoil(folder: Path, share: float, seed: int) -> int:
    """Replace the answers of so many prompts by wrong ones; how many."""
    draw, num_wrong = random.Random(seed), 0
    rows = [json.loads(line) for line in (folder / FILE).read_text(encoding="utf-8").splitlines()]
    for row in rows:
        if draw.random() < share:
            others = [each for each in offered(row["question"], row["answer"]) if each != row["answer"]]
            row["answer"] = draw.choice(others)
            num_wrong += 1
    (folder / FILE).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return num_wrong


def main() -> None:
    """Train with every share and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a new folder for prompts and runs")
    parser.add_argument("--share", type=float, nargs="*", default=[0.0, 0.5], help="of the hints that are wrong")
    parser.add_argument("--base", type=Path, default=shipped_base("qwen3_5"), help="default: the shipped Qwen3.5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="two steps: does the script run?")
    options = parser.parse_args()
    num_questions, num_prompts, changes = TINY if options.tiny else FULL
    for share in options.share:
        out = options.out / f"share-{share:g}-seed-{options.seed}"
        if out.exists():
            parser.error(f"{out} is there already: give another --out")
        plan = Plan(recipe_path("reproduce"), out, num_questions, num_prompts, changes, split="dev")
        cells = {variant.name: Cell(variant, Base(options.base), options.seed, plan) for variant in (BASE, OPSD)}
        folder = cells["OPSD"].prompts(out / "OPSD")
        write_prompts(folder, num_prompts)
        num_wrong = spoil(folder, share, options.seed)
        acc = {name: RUNNERS[cell.variant.kind](cell, out / name)["acc"] for name, cell in cells.items()}
        print(f"{num_wrong} of {num_prompts} hints wrong: base {acc['base']:.1f}, OPSD {acc['OPSD']:.1f}", flush=True)


if __name__ == "__main__":
    main()
