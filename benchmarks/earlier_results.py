"""Runs of the repository's history that were made twice: on a CPU and on a GPU, and with two readers of answers.

    python benchmarks/earlier_results.py --out benchmarks/results        # needs the whole history of the repository

The files of `docs/results/cells` were replaced as runs were made again, and the history keeps what they were. A file's
name is a hash of everything but the machine and the reader, so files of one name are results of one run.

devices     the first runs of the smallest Qwen3-VL: on two CPU cores, and a day later on a GPU
readers     runs that the first reader left partly unread, and the same after the reader was mended, all on a CPU, and
            whether the metrics of all their steps were the same in every digit that is kept
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from statistics import mean
from typing import Any

CELLS = "docs/results/cells"
FIRST, ON_GPU, NO_ANCHOR, MENDED = "ca5fb57", "884acb0", "e38eb4a", "00f8123"
"""Commits: the first runs, the same on a GPU, the first without the anchor, and those of the mended reader."""


def git(*arguments: str) -> str:
    root = Path(__file__).parents[1]
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def results_at(commit: str) -> dict[str, Any]:
    """The results of a commit by their key."""
    paths = git("ls-tree", "--name-only", commit, f"{CELLS}/").split()
    return {Path(path).stem: json.loads(git("show", f"{commit}:{path}")) for path in paths}


def twice(before: dict[str, Any], after: dict[str, Any], keys: list[str]) -> list[dict[str, Any]]:
    """A row for each run: its Acc and its unread answers before and after."""
    names = ("variant", "base", "seed", "num_questions")
    rows = []
    for key in keys:
        row = {"key": key, **{name: after[key][name] for name in names}}
        for when, result in (("before", before[key]), ("after", after[key])):
            row[when] = {name: result[name] for name in ("acc", "unresolved", "hardware")}
        rows.append(row)
    return sorted(rows, key=lambda row: (row["variant"], row["base"], row["seed"]))


def apart(one: list[float], other: list[float]) -> list[float]:
    """How far the losses of two runs are apart at each step, relative to the larger one, as `vcsd replay` has it."""
    return [abs(a - b) / max(a, b) for a, b in zip(one, other, strict=True)]


def losses_apart(before: dict[str, Any], after: dict[str, Any], pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Steps of two runs each, by how far their losses are apart."""
    by_run = [apart(before[one]["series"]["loss"], after[other]["series"]["loss"]) for one, other in pairs]
    steps = [distance for run in by_run for distance in run]
    return {
        "runs": len(by_run),
        "steps": len(steps),
        "within 0.01": sum(distance <= 0.01 for distance in steps),
        "within 0.05": sum(distance <= 0.05 for distance in steps),
        "largest": max(steps),
        "largest of the first 20": max(distance for run in by_run for distance in run[:20]),
        "steps before the first above 0.05": [([d > 0.05 for d in run] + [True]).index(True) for run in by_run],
    }


def devices() -> dict[str, Any]:
    """The runs that moved to a GPU, and how far losses of one run are apart, and those of two seeds of one base."""
    before, after = results_at(FIRST), results_at(ON_GPU)
    moved = [key for key in before if key in after and before[key]["hardware"] != after[key]["hardware"]]
    trained = [key for key in moved if before[key].get("series")]
    seeds = [
        (one, other)
        for one in trained
        for other in trained
        if all(before[one][name] == before[other][name] for name in ("variant", "base"))
        and before[one]["seed"] < before[other]["seed"]
    ]
    return {
        "runs": twice(before, after, moved),
        "one run": losses_apart(before, after, [(key, key) for key in trained]),
        "two seeds": losses_apart(before, before, seeds),
    }


def readers() -> dict[str, Any]:
    """The runs by their variant, with the means: those of the smallest Qwen3-VL that were made again on a CPU."""
    before, after = {**results_at(NO_ANCHOR), **results_at(FIRST)}, results_at(MENDED)
    again = [key for key, result in before.items() if key in after and result != after[key]]
    again = [key for key in again if before[key]["hardware"] == after[key]["hardware"]]
    answered = {}
    for variant in ("OPSD", "no anchor"):
        runs = twice(before, after, [key for key in again if before[key]["variant"] == variant])
        for run in runs:
            run["same_training"] = before[run["key"]]["series"] == after[run["key"]]["series"]
        means = {when: mean(run[when]["acc"] for run in runs) for when in ("before", "after")}
        answered[variant] = {"mean": means, "runs": runs}
    return answered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    result = {"devices": devices(), "readers": readers()}
    (out / "earlier_results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for variant, numbers in result["readers"].items():
        print(variant, {when: round(value, 2) for when, value in numbers["mean"].items()}, len(numbers["runs"]))
    print(result["devices"]["one run"], result["devices"]["two seeds"], sep="\n")


if __name__ == "__main__":
    main()
