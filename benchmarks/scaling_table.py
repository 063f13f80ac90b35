"""Print the tables of docs/scaling.md: what fits on a card, which recipe on which machine, how time scales with GPUs.

python benchmarks/scaling_table.py           # seconds on a CPU; needs no weights
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from vcsd.config import load_recipe
from vcsd.projection.changes import changes_that_fit
from vcsd.projection.machines import parse_machine
from vcsd.projection.needs import empty_model, job_of
from vcsd.projection.project import Job, project
from vcsd.projection.spoken import duration, memory

RECIPES = (
    *("lora/qwen3_vl_2b_24gb", "lora/qwen3_vl_4b_24gb", "lora/qwen3_vl_8b_48gb", "lora/qwen3_vl_8b_80gb"),
    *(
        f"paper/{name}"
        for name in ("qwen3_vl_2b", "qwen3_vl_4b", "qwen3_vl_8b", "qwen3_5_2b", "qwen3_5_4b", "qwen3_5_9b")
    ),
    *("opsd_published/qwen3_vl_2b", "opsd/qwen3_vl_2b"),
)
MACHINES = ("24GB", "48GB", "a100-80", "h100", "h200", "8xa100-80", "8xh100", "8xh200", "8xb200")
CARDS, MODELS = ("24GB", "48GB", "a100-80", "h200", "8xh100"), ("qwen3_vl_2b", "qwen3_vl_4b", "qwen3_vl_8b")
FULL_STEP = Path(__file__).parent / "results" / "full_step.json"
SCALED, COUNTS = "paper/qwen3_5_9b", (8, 16, 32, 64)


@cache
def job(name: str) -> Job:
    recipe = load_recipe(name)
    return job_of(recipe, empty_model(recipe)[0])


def by_card() -> list[str]:
    """The smallest change to the paper's recipe that fits each card, its memory and time, and how that is known."""
    lines = ["| card | train | GiB per GPU | time | |", "|---" * 5 + "|"]
    for card in CARDS:
        for model in MODELS:
            lines.append(f"| {card} | {_what_fits(card, f'paper/{model}')} | projected |")
    measured = json.loads(FULL_STEP.read_text(encoding="utf-8"))["ours"]
    step, gib = measured["total_seconds"], max(measured["peak_gib"].values())
    what = "one step of `paper/qwen3_vl_2b` with 300-token responses, no checkpointing, random weights"
    return [*lines, f"| h200 | {what} | {gib:.0f} | {step:.1f} s | measured |"]


def _what_fits(card: str, name: str) -> str:
    """The recipe, or the recipe with the first change of `--dry-run --card` that keeps one card; memory and time."""
    machine = parse_machine(card)
    found, overrides = project(job(name), machine), list[str]()
    if not found.fits:
        changes = changes_that_fit(load_recipe(name), machine)
        change = next(change for change in changes if change.projection.machine == machine)
        found, overrides = change.projection, change.overrides
    seconds = found.step_seconds * 90
    return f"`{' '.join([name, *overrides])}` | {memory(found.needed_bytes).split()[0]} | {duration(seconds)}"


def by_machine() -> list[str]:
    """Hours of 90 steps, and GiB per GPU; the GiB that are missing where a recipe does not fit."""
    lines = [f"| recipe | {' | '.join(MACHINES)} |", f"|---|{'---|' * len(MACHINES)}"]
    for name in RECIPES:
        cells = []
        for text in MACHINES:
            found = project(job(name), parse_machine(text))
            gib = found.needed_bytes / 2**30
            cells.append(f"{found.step_seconds * 90 / 3600:.1f} h, {gib:.0f}" if found.fits else f"needs {gib:.0f}")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def by_count() -> list[str]:
    """Seconds of a step of the largest model by phase, on more and more H100."""
    lines = [
        "| H100 | GiB per GPU | rollout | teacher | student | loss | traffic | step | 90 steps |",
        "|---" * 9 + "|",
    ]
    for count in COUNTS:
        found = project(job(SCALED), parse_machine(f"{count}xh100"))
        phases = [f"{found.seconds[name]:.1f}" for name in ("rollout", "teacher", "student", "loss", "traffic")]
        total = f"{found.step_seconds:.0f} s | {found.step_seconds * 90 / 60:.0f} min"
        lines.append(f"| {count} | {found.needed_bytes / 2**30:.0f} | {' | '.join(phases)} | {total} |")
    return lines


def main() -> None:
    print("\n".join([*by_card(), "", *by_machine(), "", *by_count()]))


if __name__ == "__main__":
    main()
