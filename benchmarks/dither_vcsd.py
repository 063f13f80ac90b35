"""VCSD in bfloat16 at small learning rates, with and without `model.dither`: what the rounded student learns.

    python benchmarks/dither_vcsd.py --out benchmarks/results --jobs 12             # two and a half minutes on an H200
    python benchmarks/dither_vcsd.py --out /tmp/b --rates 1e-4 --seeds 0 --quick    # check that it runs

Each run is `vcsd train` with the recipe of `vcsd reproduce` on the shipped base, whose weights are bfloat16 numbers,
with `trainer.bf16=true`. Its student answers questions of the world during training, by weights that are rounded as
`vcsd export` rounds them. The result has the scores of the suites in percent, by step; the table prints their mean.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from shapes import command_line
from vcsd.bases.shipped_bases import shipped_base
from vcsd.config.shipped import recipe_path
from vcsd.evaluation.live_lines import FILE as EVALUATIONS
from vcsd.reproduce.training_prompts import FILE, write_prompts

QUICK = ("trainer.max_steps=2", "prompts_per_step=2", "rollout.num_per_prompt=2")


@dataclass(frozen=True)
class Setting:
    """One run."""

    rate: str
    has_dither: bool
    seed: int

    @property
    def name(self) -> str:
        return f"{self.rate}-{'dither' if self.has_dither else 'plain'}-{self.seed}"


def train(setting: Setting, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train in a process of its own, and return what came out."""
    run = work / setting.name
    overrides = [
        *(f"model.path={shipped_base()}", f"data.path={work / 'prompts' / FILE}", f"trainer.output_dir={run}"),
        *("trainer.bf16=true", f"model.dither={str(setting.has_dither).lower()}", f"trainer.seed={setting.seed}"),
        *([] if torch.cuda.is_available() else ["trainer.use_cpu=true"]),
        f"trainer.learning_rate={setting.rate}",
        *("evaluation.benchmarks=[world]", f"evaluation.every={1 if options.quick else 30}"),
        *(f"evaluation.limit={4 if options.quick else 128}", *(QUICK if options.quick else ())),
    ]
    command = [sys.executable, "-m", "vcsd", "train", str(recipe_path("world/reproduce")), *overrides]
    with (work / f"{setting.name}.txt").open("wb") as log:
        process = subprocess.run(
            command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
        )
    if process.returncode:
        raise SystemExit(f"{setting.name} failed: see {log.name}")
    lines = [json.loads(line) for line in (run / EVALUATIONS).read_text(encoding="utf-8").splitlines()]
    return {**asdict(setting), "evaluations": {line["step"]: suites(line) for line in lines}}


def suites(line: dict[str, Any]) -> dict[str, float]:
    """The scores of an evaluation by suite."""
    return {name.removeprefix("world/"): round(score["entry"], 2) for name, score in line["benchmarks"].items()}


def as_markdown(runs: list[dict[str, Any]]) -> str:
    steps = list(runs[0]["evaluations"])
    lines = ["| learning rate | dither | seed | " + " | ".join(f"step {step}" for step in steps) + " |"]
    lines.append("|---|---|--:|" + "--:|" * len(steps))
    for run in runs:
        scores = " | ".join(f"{mean(scores.values()):.1f}" for scores in run["evaluations"].values())
        dither = "yes" if run["has_dither"] else "no"
        lines.append(f"| {run['rate']} | {dither} | {run['seed']} | {scores} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/dither_vcsd"), help="Folder for the runs.")
    parser.add_argument("--rates", nargs="+", default=["2e-6", "5e-6", "2e-5"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--jobs", type=int, default=1, help="Runs at a time.")
    parser.add_argument("--quick", action="store_true", help="Two tiny steps, to check that it runs.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    write_prompts(options.work / "prompts", 64 if options.quick else 3072)
    settings = [
        Setting(rate, has_dither, seed)
        for rate in options.rates
        for has_dither in (False, True)
        for seed in options.seeds
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = list(pool.map(partial(train, work=options.work, options=options), settings))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    about = {"torch": torch.__version__, "device": device, "argv": command_line()}
    (options.out / "dither_vcsd.json").write_text(json.dumps({"about": about, "runs": runs}, indent=1) + "\n")
    print(as_markdown(runs))


if __name__ == "__main__":
    main()
