"""Repeat the first step of VCSD on bases that still exist, to measure what their finished runs did not record.

    python -m vcsd.reproduce.planned.first_steps docs/results BASES...

Results of earlier versions do not say how often the target preferred another token. Before the first update, nothing
depends on training, so one step from the same base with the same seed measures it. Only bases with the weights of a
finished VCSD run count. Nothing on `test` is read. `first_steps.json` keeps the numbers, next to two that the runs did
record, so that both can be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from vcsd import run
from vcsd.checkpoint.whole_file import write_whole
from vcsd.errors import VcsdError
from vcsd.inspect.precheck.calibration import FIRST_STEPS
from vcsd.monitor.lines import read_lines
from vcsd.monitor.machine import hardware, versions
from vcsd.reproduce.base_folders import Base, grouped
from vcsd.reproduce.cell import Cell, full_sweep
from vcsd.reproduce.cell_result import read_results
from vcsd.reproduce.experiments import NUM_PROMPTS, VCSD
from vcsd.reproduce.training_prompts import write_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence

METRICS = ("argmax_changed", "kl_target_original", "student_entropy")


class FirstStep(TypedDict):
    """The metrics of a first step, and what it started from."""

    base: str
    digest: str
    seed: int
    metrics: dict[str, float]
    hardware: str
    versions: dict[str, str]


def finished_seeds(out: Path, base: Base) -> list[int]:
    """The seeds of the finished VCSD runs from exactly these weights."""
    own = [cell for cell in read_results(out) if cell["variant"] == VCSD.name and "abilities" not in cell]
    return sorted({cell["seed"] for cell in own if cell["identity"]["base"] == base.digest})


def first_step(base: Base, seed: int, work: Path, overrides: Sequence[str] = ()) -> FirstStep:
    """Train one step as the finished run did, and return its metrics."""
    cell = Cell(VCSD, base, seed, full_sweep(work, ("trainer.max_steps=1", *overrides)))
    own = work / "runs" / f"{base.folder.name}-{seed}"
    write_prompts(cell.prompts(own), NUM_PROMPTS, which=VCSD.prompts, parameters=cell.prompt_world)
    run.train(run.load(cell.recipe(own)))
    line = next(iter(read_lines(own / "metrics.jsonl")))
    return {
        "base": base.folder.name,
        "digest": base.digest,
        "seed": seed,
        "metrics": {name: float(f"{line[name]:.5g}") for name in METRICS},
        "hardware": hardware(),
        "versions": versions(),
    }


def measure(out: Path, folders: Sequence[str | Path]) -> Path:
    """Measure the first step for every finished VCSD run whose base is in a folder; known ones are not repeated."""
    path = out / FIRST_STEPS
    known: list[FirstStep] = json.loads(path.read_bytes()) if path.is_file() else []
    done = {(each["digest"], each["seed"]) for each in known}
    bases = [base for group in grouped(folders).values() for base in group]
    with tempfile.TemporaryDirectory() as work:
        for base in bases:
            for seed in finished_seeds(out, base):
                if (base.digest, seed) in done:
                    continue
                known.append(first_step(base, seed, Path(work)))
                known.sort(key=lambda each: (each["base"], each["seed"]))
                write_whole(path, json.dumps(known, indent=1) + "\n")
                sys.stdout.write(f"{base.folder.name}, seed {seed}.\n")
    return path


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vcsd.reproduce.planned.first_steps", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("bases", nargs="+", help="folders of bases, or folders that contain them")
    given = parser.parse_args()
    sys.stdout.write(f"Wrote {measure(given.results, given.bases)}.\n")


if __name__ == "__main__":
    try:
        _main()
    except VcsdError as error:
        sys.exit(str(error))
