"""Make several bases from one stem: train the stages with true captions once, then the last stage for each world.

    python -m vcsd.bases.branch --seed 11 --stem stems/11                                        # makes the stem
    python -m vcsd.bases.branch --seed 11 --stem stems/11 --set ignore_share=0.2 --out bases/a   # makes a base from it

Worlds that differ only in the last stage share the first two, which take five sixths of the steps. The rows of a step
depend only on seed, stage and step, so on a CPU a branch equals the base that `vcsd world pretrain` makes with the same
options, bit for bit.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import load_file

from vcsd.bases.card import CARD
from vcsd.bases.curriculum import Curriculum, command_line
from vcsd.bases.pretrain import NUM_MEASURED, pretrain
from vcsd.checkpoint import Contents, check_checkpoint, latest_checkpoint, write_checkpoint
from vcsd.errors import ConfigError, RunError
from vcsd.terminal import exit_on_error
from vcsd.world.parameters import PARAMETERS

LAST_STAGE = (
    *("ignore_share", "canonical_share", "yes_share", "black_share", "reason_share"),
    *("sway_steps", "sway_learning_rate"),
)
"""The parameters that only the last stage reads."""

_TENSORS = ("model.safetensors", "optimizer.safetensors")
_STATE = "state.json"


def num_true_steps(plan: Curriculum) -> int:
    """The steps before the last stage."""
    return plan.parameters.sight_steps + plan.parameters.answer_steps


def is_stem(folder: Path, plan: Curriculum) -> bool:
    """Whether a folder holds a finished stem: a checkpoint after the last step with true captions."""
    checkpoint = latest_checkpoint(folder / "checkpoints")
    return checkpoint is not None and checkpoint.name == f"checkpoint-{num_true_steps(plan)}"


def branch(stem: Curriculum, folder: Path, plan: Curriculum, out: Path) -> None:
    """Copy the stem's checkpoint to `out`, so that pre-training `plan` there resumes after the true captions."""
    before, after = asdict(stem.parameters), asdict(plan.parameters)
    others = [name for name in before if before[name] != after[name] and name not in LAST_STAGE]
    if others or (stem.family, stem.size, stem.seed) != (plan.family, plan.size, plan.seed):
        what = ", ".join(others) or "family, size or seed"
        raise ConfigError([f"a branch shares the lessons of its stem, but {what} differs. Make the base on its own."])
    if (out / CARD).exists() or latest_checkpoint(out / "checkpoints") is not None:
        return
    if not is_stem(folder, stem):
        raise RunError(f"{folder} holds no finished stem. Make it first, with the same command without --out.")
    source = latest_checkpoint(folder / "checkpoints")
    assert source is not None
    check_checkpoint(source, stem.identity(), needs=(*_TENSORS, _STATE))
    contents = Contents(
        tensors={name: load_file(source / name) for name in _TENSORS},
        texts={_STATE: (source / _STATE).read_text(encoding="utf-8")},
        identity=plan.identity(),
    )
    write_checkpoint(out / "checkpoints", num_true_steps(plan), contents, limit=1)


def main() -> None:
    """Make a stem, or a base from it. Prints one line every few steps."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.bases.branch", description="Make bases from one stem.")
    parser.add_argument("--family", default="qwen3_vl")
    parser.add_argument("--size", default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stem", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default=None)
    parser.add_argument("--questions", type=int, default=NUM_MEASURED, help="Questions per suite to measure the base.")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()

    def tell(done: int, total: int, line: str) -> None:
        sys.stdout.write(f"{done}/{total}  {line}\n")
        sys.stdout.flush()

    with exit_on_error():
        plan = Curriculum(options.family, options.size, options.seed, PARAMETERS.changed(options.overrides))
        values = asdict(plan.parameters) | {name: getattr(PARAMETERS, name) for name in LAST_STAGE}
        stem = Curriculum(options.family, options.size, options.seed, type(PARAMETERS)(**values))
        command = command_line("python -m vcsd.bases.pretrain", plan, options.overrides)
        if options.out is None:
            if not is_stem(options.stem, stem):
                limit = num_true_steps(stem)
                pretrain(stem, options.stem, device=options.device, tell=tell, command="", stop_after=limit)
            return
        branch(stem, options.stem, plan, options.out)
        pretrain(plan, options.out, device=options.device, tell=tell, command=command, num_measured=options.questions)


if __name__ == "__main__":
    main()
