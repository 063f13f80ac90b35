"""Print the projected tables of docs/scaling.md: which recipe on which machine, and how time scales with GPUs.

python benchmarks/scaling_table.py           # seconds on a CPU; needs no weights
"""

from __future__ import annotations

from functools import cache

from vcsd.config import load_recipe
from vcsd.projection.machines import parse_machine
from vcsd.projection.needs import empty_model, job_of
from vcsd.projection.project import Job, project

RECIPES = (
    *("lora/qwen3_vl_2b_24gb", "lora/qwen3_vl_4b_24gb", "lora/qwen3_vl_8b_48gb"),
    *(
        f"paper/{name}"
        for name in ("qwen3_vl_2b", "qwen3_vl_4b", "qwen3_vl_8b", "qwen3_5_2b", "qwen3_5_4b", "qwen3_5_9b")
    ),
)
MACHINES = ("24GB", "48GB", "a100-80", "h100", "h200", "8xa100-80", "8xh100", "8xh200", "8xb200")
SCALED, COUNTS = "paper/qwen3_5_9b", (8, 16, 32, 64)


@cache
def job(name: str) -> Job:
    recipe = load_recipe(name)
    return job_of(recipe, empty_model(recipe)[0])


def by_machine() -> list[str]:
    """Hours of 90 steps, and GiB per GPU; the GiB that are missing where a recipe does not fit."""
    lines = [f"| recipe | {' | '.join(MACHINES)} |", f"|---|{'---|' * len(MACHINES)}"]
    for name in RECIPES:
        cells = []
        for text in MACHINES:
            found = project(job(name), parse_machine(text))
            gib = found.smallest_bytes / 2**30
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
        lines.append(f"| {count} | {found.smallest_bytes / 2**30:.0f} | {' | '.join(phases)} | {total} |")
    return lines


def main() -> None:
    print("\n".join([*by_machine(), "", *by_count()]))


if __name__ == "__main__":
    main()
