"""Go back to an earlier checkpoint of a run: later ones are set aside, because a run resumes from the latest.

`checkpoint-N` becomes `set-aside-checkpoint-N`. It is whole: rename it back to use it again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vcsd.checkpoint.check import SET_ASIDE, moved_aside
from vcsd.checkpoint.folder import checkpoints_of
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)


def require_step(run: Path, step: int) -> None:
    """Raise a ConfigError if a run has no checkpoint of a step."""
    checkpoints = checkpoints_of(run)
    if step not in checkpoints:
        listed = ", ".join(map(str, checkpoints)) or "none"
        raise ConfigError([f"resume = {step}: {run} has no checkpoint-{step}. Its checkpoints are of steps: {listed}."])


def rewind(run: Path, step: int) -> None:
    """Make the checkpoint of a step the latest of a run."""
    require_step(run, step)
    for later, folder in checkpoints_of(run).items():
        if later > step:
            aside = moved_aside(folder, SET_ASIDE)
            log.warning("%s is now %s: the run resumes from checkpoint-%d.", folder, aside, step)


def good_checkpoint(run: Path, records: Iterable[Mapping[str, object]]) -> tuple[int, int | None]:
    """Return the last step that was taken without an alarm of the guard, and the latest checkpoint at or before it.

    `records` are the lines of metrics.jsonl. The step is 0 if there is none.
    """
    good = max((int(str(r["step"])) for r in records if r.get("is_taken") and "guard" not in r), default=0)
    return good, max((step for step in checkpoints_of(run) if step <= good), default=None)


def last_good_step(run: Path, records: Iterable[Mapping[str, object]]) -> int:
    """Return the latest checkpoint at or before the last step without an alarm, or raise a ConfigError."""
    good, step = good_checkpoint(run, records)
    if step is None:
        raise ConfigError(
            [
                f"{run} has no checkpoint at or before step {good}, the last one without an alarm. Start again in "
                "another trainer.output_dir, with a lower method.alpha or a smaller trainer.save_steps."
            ]
        )
    return step
