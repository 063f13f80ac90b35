"""Fit the projection's numbers of time to measured steps, and say how well it projects a step that it has not seen.

    PYTHONPATH=src:tests python benchmarks/time_model.py --out benchmarks/results          # seconds on a CPU

Steps are those of cards.json (the last of each case) and full_step.json. Each is also projected with numbers that were
fitted to all other steps. The traffic of scoring is fitted first, to all steps; then a layer in decoding, to steps that
train all weights; then what adapters add to it, to steps with LoRA. Each fit minimises the squares of relative errors.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import cards
from vcsd.config import load_recipe
from vcsd.projection.machines import CARDS, Machine
from vcsd.projection.needs import empty_model, job_of
from vcsd.projection.project import FITTED, Job, TimeModel, project

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RESULTS = Path(__file__).parent / "results"
SCORING = ("teacher", "student", "backward")
PARTS = ("data", "rollout", "scoring", "update")


@dataclass(frozen=True, eq=False)
class MeasuredStep:
    """A step that was measured: what a projection needs to know of it, and its seconds by part."""

    job: Job
    machine: Machine
    seconds: Mapping[str, float]

    def projected(self, times: TimeModel) -> dict[str, float]:
        """The parts as projected; those that were not measured are left out."""
        found = project(self.job, self.machine, times).seconds
        parts = {
            "data": found["data"],
            "rollout": found["rollout"],
            "scoring": found["teacher"] + found["student"] + found["loss"],
            "update": found["update"] + found["offload"],
        }
        return {name: parts[name] for name in self.seconds}

    def error(self, times: TimeModel) -> float:
        """The relative error of the whole step."""
        return sum(self.projected(times).values()) / sum(self.seconds.values()) - 1


def measured_steps() -> dict[str, MeasuredStep]:
    """Return every measured step by its name."""
    found = json.loads((RESULTS / "cards.json").read_text(encoding="utf-8"))
    steps = {}
    for name, case in cards.CASES.items():
        recipe = load_recipe(case.recipe, [*case.changes, f"token_budget={case.token_budget}"])
        machine = Machine(replace(CARDS["h200"], gib=float(case.gib)))
        steps[name] = MeasuredStep(_job(recipe), machine, _parts(found[name]["phases"]))
    changes = ["trainer.gradient_checkpointing=false", "rollout.max_new_tokens=300"]
    plain = json.loads((RESULTS / "full_step.json").read_text(encoding="utf-8"))["ours"]["seconds"]
    plain = {**plain, "update": plain["optimizer"] + plain["teacher update"]}
    recipe = load_recipe("paper/qwen3_vl_2b", changes)
    steps["full_step"] = MeasuredStep(_job(recipe), Machine(CARDS["h200"]), _parts(plain))
    return steps


def _job(recipe: object) -> Job:
    job = job_of(recipe, empty_model(recipe)[0], cards.PROMPT_TOKENS)  # type: ignore[arg-type]
    return replace(job, longest_prompt=cards.PROMPT_TOKENS)


def _parts(phases: Mapping[str, float]) -> dict[str, float]:
    scoring = sum(phases[name] for name in SCORING)
    return {name: scoring if name == "scoring" else phases[name] for name in PARTS if name in {*phases, "scoring"}}


def fitted(steps: Iterable[MeasuredStep]) -> TimeModel:
    """Fit the three numbers. Seconds are linear in each, so that two projections give the line."""
    steps = list(steps)
    adapted = [step for step in steps if step.job.sizes.num_adapter]
    whole = [step for step in steps if not step.job.sizes.num_adapter]
    between = _slope(steps, "scoring", lambda value: TimeModel(value, 0.0, 0.0))
    layer = _slope(whole, "rollout", lambda value: TimeModel(between, value, 0.0))
    return TimeModel(between, layer, _slope(adapted, "rollout", lambda value: TimeModel(between, layer, value)))


def _slope(steps: list[MeasuredStep], part: str, model: object) -> float:
    above = below = 0.0
    for step in steps:
        start, end = (step.projected(model(value))[part] for value in (0.0, 1.0))  # type: ignore[operator]
        per_unit, left = (end - start) / step.seconds[part], 1 - start / step.seconds[part]
        above, below = above + per_unit * left, below + per_unit**2
    return above / below


def compared() -> dict[str, object]:
    """Return the fitted numbers and, for each step, its seconds, its projection and both errors."""
    steps = measured_steps()
    times, rows = fitted(steps.values()), {}
    for name, step in steps.items():
        unseen = fitted(other for key, other in steps.items() if key != name)
        rows[name] = {
            "measured": dict(step.seconds),
            "projected": step.projected(times),
            "error": step.error(times),
            "error_unseen": step.error(unseen),
        }
    return {**asdict(times), "steps": rows}


def as_markdown(found: Mapping[str, object]) -> str:
    """A table: measured seconds with projected ones in brackets, and the errors of the whole step."""
    heads = ("step", "data", "rollout", "scoring", "update", "all", "error", "error if not fitted to it")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, row in found["steps"].items():  # type: ignore[attr-defined]
        cells = [
            f"{row['measured'][part]:.1f} ({row['projected'][part]:.1f})" if part in row["measured"] else "-"
            for part in PARTS
        ]
        whole = [f"{sum(row[kind].values()):.1f}" for kind in ("measured", "projected")]
        errors = [f"{row[kind]:+.0%}" for kind in ("error", "error_unseen")]
        lines.append(f"| {name} | {' | '.join([*cells, f'{whole[0]} ({whole[1]})', *errors])} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    found = compared()
    parser.parse_args().out.joinpath("time_model.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"fitted: { ({key: value for key, value in found.items() if key != 'steps'}) }")
    print(f"in use: {FITTED}")
    print(as_markdown(found))


if __name__ == "__main__":
    main()
