"""How far two runs of 20 steps drift apart by rounding alone: on ranks, and in one process that adds in another order.

    PYTHONPATH=src:tests python benchmarks/rank_drift.py --out benchmarks/results       # minutes on two cores

The model is the tests' tiny Qwen3.5 with whole weights, every prompt in a row of its own. Each run is compared with one
process of the same precision: two gloo ranks with DDP and with FSDP2, and one process that runs the rows of a step in
reverse order, which changes nothing but the order of sums. One row compares float32 with float64 in one process.

A rollout can only change where a draw lies close to the border between two tokens. `closest draw` is the smallest such
distance in the run of one process, as a probability; float32 resolves 6e-8 near 1.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

import vcsd.step
from rank_cases import Case, run, run_on_ranks
from vcsd.models.packed.packing import PackingPlan
from vcsd.rollout import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

PRECISIONS = ("float32", "float64")
Steps = list[dict[str, Any]]


def case_of(precision: str, kind: str, seed: int) -> Case:
    """The case of the tests, for 20 steps at a learning rate of 1e-4."""
    name = f"{kind} {precision} {seed}"
    is_exact = precision == "float64"
    return Case(name, "qwen3_5", kind, num_steps=20, num_prompts=3, token_budget=60, seed=seed, exact=is_exact)


@contextmanager
def reversed_rows() -> Iterator[None]:
    """Run the rows of a step in reverse order."""
    plan_ranks = vcsd.step.plan_ranks

    def backwards(*given: Any) -> list[PackingPlan]:
        return [PackingPlan(tuple(reversed(plan.rows))) for plan in plan_ranks(*given)]

    with patch.object(vcsd.step, "plan_ranks", backwards):
        yield


@contextmanager
def watched_draws(distances: list[float]) -> Iterator[None]:
    """Note how far each uniform number is from the nearest border between two tokens."""
    draw = engine.draw

    def watched(logits_RV: torch.Tensor, uniform_R: torch.Tensor, *given: Any) -> torch.Tensor:
        cumulative_RV = logits_RV.softmax(-1).cumsum(-1, dtype=torch.float64)
        border_RV = cumulative_RV / cumulative_RV[:, -1:]
        distances.append(float((border_RV - uniform_R[:, None]).abs().min()))
        return draw(logits_RV, uniform_R, *given)

    with patch.object(engine, "draw", watched):
        yield


def compared(name: str, ours: Steps, theirs: Steps) -> dict[str, Any]:
    """The largest relative differences of the steps whose rollouts are the same, and how many those are."""
    same = 0
    while same < len(ours) and ours[same]["rollouts"] == theirs[same]["rollouts"]:
        same += 1

    def largest(number: str) -> float:
        pairs = zip(ours[:same], theirs[:same], strict=True)
        return max(abs(one[number] - other[number]) / abs(other[number]) for one, other in pairs)

    return {
        "run": name,
        "steps with the same rollouts": same,
        **{n: largest(n) for n in ("divergence", "gradient_norm")},
    }


def measured(seed: int, folder: Path) -> dict[str, Any]:
    """All comparisons of one seed, and the closest draw of one process in each precision."""
    distances: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    alone, rows = {}, []
    for precision in PRECISIONS:
        case = case_of(precision, "ddp", seed)
        with watched_draws(distances[precision]):
            alone[precision] = run(case, folder)["steps"]
        with reversed_rows():
            backwards = run(replace(case, name=f"reversed {case.name}"), folder)["steps"]
        rows.append(compared(f"{precision}, one process, rows reversed", backwards, alone[precision]))
    cases = [case_of(precision, kind, seed) for precision in PRECISIONS for kind in ("ddp", "fsdp2")]
    first = run_on_ranks(2, cases, folder)[0]
    rows += [
        compared(
            f"{'float64' if case.exact else 'float32'}, two ranks, {case.kind}",
            first[case.name]["steps"],
            alone["float64" if case.exact else "float32"],
        )
        for case in cases
    ]
    rows.append(compared("one process, float32 against float64", alone["float32"], alone["float64"]))
    return {"seed": seed, "closest draw": {name: min(found) for name, found in distances.items()}, "rows": rows}


def main() -> None:
    """Measure, write `rank_drift.json` and print a table per seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        results = [measured(seed, Path(folder)) for seed in given.seeds]
    (given.out / "rank_drift.json").write_text(json.dumps(results, indent=1) + "\n")
    for result in results:
        print(f"\nseed {result['seed']}, closest draw {result['closest draw']}")
        for row in result["rows"]:
            print("| " + " | ".join(f"{x:.1e}" if isinstance(x, float) else str(x) for x in row.values()) + " |")


if __name__ == "__main__":
    main()
