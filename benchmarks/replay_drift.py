"""How far the losses of a replay drift where rounding differs, and which other runs a tolerance would let pass.

    python benchmarks/replay_drift.py --out benchmarks/results       # half an hour on two busy cores

Each run is `recipes/world/demo.yaml` from the shipped base for 20 steps of 4 prompts, on one thread unless its
name says otherwise. `rounding` are runs that a replay should accept: torch, oneDNN and MKL are told to use other vector
instructions, as another CPU would, or sums are split over two threads. `other` are runs that it should refuse. Each is
compared with the first run step by step, as `vcsd replay` does: the relative difference of losses and gradient norms.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from vcsd.bases.shipped_bases import shipped_base
from vcsd.monitor.machine import hardware, versions
from vcsd.reproduce.training_prompts import write_prompts

STEPS = 20
RECIPE = Path(__file__).parents[1] / "recipes/world/demo.yaml"
ROUNDING: dict[str, dict[str, str]] = {
    "two threads": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
    "torch with AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "oneDNN with AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL as on any CPU": {"MKL_CBWR": "COMPATIBLE"},
    "all three": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}
"""What differs in the environment of a run that is otherwise the same."""

OTHER = {
    "another seed": ["trainer.seed=1"],
    "learning rate doubled": ["trainer.learning_rate=2e-4"],
    "alpha 0.5": ["method.alpha=0.5"],
}
"""What differs in the recipe of another run."""


def train(folder: Path, table: Path, family: str, overrides: list[str], environment: dict[str, str]) -> list[Any]:
    """Train, and return the metrics of every step."""
    own = [f"model.path={shipped_base(family)}", f"data.path={table}", f"trainer.output_dir={folder}"]
    own += [f"trainer.max_steps={STEPS}", f"trainer.save_steps={STEPS}", "prompts_per_step=4", *overrides]
    command = [sys.executable, "-m", "vcsd", "train", str(RECIPE), *own]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    subprocess.run(command, check=True, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def compared(first: list[Any], other: list[Any]) -> dict[str, Any]:
    """The differences of each step, and how many steps there are before the first with another number of tokens."""
    pairs = list(zip(first, other, strict=True))
    same = [one["num_tokens"] == two["num_tokens"] for one, two in pairs]
    result: dict[str, Any] = {"same_tokens": ([*same, False]).index(False)}
    for name in ("loss", "gradient_norm"):
        # as math.isclose has it: relative to the larger one
        result[name] = [abs(one[name] - two[name]) / max(abs(one[name]), abs(two[name])) for one, two in pairs]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    result: dict[str, Any] = {"hardware": hardware(), "versions": versions(), "steps": STEPS, "families": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = write_prompts(folder / "data", 256)
        for family in ("qwen3_vl", "qwen3_5"):
            first = train(folder / family, table, family, [], {})
            runs = {
                kind: {
                    case: compared(first, train(folder / f"{family} {case}", table, family, *given))
                    for case, given in cases.items()
                }
                for kind, cases in {
                    "rounding": {case: ([], settings) for case, settings in ROUNDING.items()},
                    "other": {case: (overrides, {}) for case, overrides in OTHER.items()},
                }.items()
            }
            result["families"][family] = runs
            for case, numbers in {**runs["rounding"], **runs["other"]}.items():
                largest = [max(numbers[of]) for of in ("loss", "gradient_norm")]
                print(f"{family} {case}: {numbers['same_tokens']} steps, {largest[0]:.1e}, {largest[1]:.1e}")
    (out / "replay_drift.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
