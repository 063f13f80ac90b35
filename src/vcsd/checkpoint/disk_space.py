"""Disk space: what the checkpoints of a run need at most at one time, and what is left where they are written."""

from __future__ import annotations

import math
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.errors import RunError

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import TrainingArguments

SPARE_BYTES = 64 * 2**20
"""Disk space required besides the tensors: JSON, the processor's files, the file system's overhead."""

PARTIAL, OLD = ".partial-", ".old-"
"""Prefixes of hidden folders that the next save removes: a checkpoint that is not complete, or no longer wanted."""

_LEAST_KEPT = 2
"""Checkpoints that are kept at any limit: the latest, and the last one whose weights gave a finite loss."""


@dataclass(frozen=True)
class DiskNeeds:
    """The checkpoints that a run will write, those that its folder already holds, and an export of its last one.

    Old checkpoints are removed after a new one is written, so there is one more than are kept for a moment.

    >>> needs = DiskNeeds(checkpoint_bytes=10, export_bytes=2, num_there=0, num_saves=9, limit=2)
    >>> needs.num_more, needs.num_bytes
    (3, 30)
    >>> DiskNeeds(checkpoint_bytes=10, export_bytes=2, num_there=2, num_saves=7, limit=2).num_more
    1
    >>> DiskNeeds(checkpoint_bytes=10, export_bytes=2, num_there=0, num_saves=9, limit=2, num_protected=1).num_more
    4
    >>> DiskNeeds(checkpoint_bytes=10, export_bytes=50, num_there=0, num_saves=9, limit=None).num_bytes
    140
    """

    checkpoint_bytes: int
    export_bytes: int
    num_there: int
    num_saves: int
    """How many checkpoints the rest of the run writes, if nothing stops it."""
    limit: int | None
    """`save_total_limit`."""
    num_protected: int = 0
    """Checkpoints that are kept beyond the limit: the best one, and the last one before an alarm of a monitor."""
    saves_if_stopped: bool = False
    """Whether the only checkpoint is that of a run which is stopped before its end (`save_strategy=no`)."""

    @property
    def num_more(self) -> int:
        """How many checkpoints there will be at one time, beyond those that are there now."""
        num_at_once = min(self.num_there + self._num_written, self._num_kept + 1)
        return max(num_at_once - self.num_there, min(1, self._num_written))

    @property
    def num_bytes(self) -> int:
        """How much more disk space the run and an export after it need at one time."""
        at_once = self.num_more * self.checkpoint_bytes
        if self.saves_if_stopped:  # a run that ends leaves nothing to export
            return at_once
        return max(at_once, (self._num_kept - self.num_there) * self.checkpoint_bytes + self.export_bytes)

    @property
    def _num_kept(self) -> int:
        """How many checkpoints there are when the run has ended."""
        num_in_all = self.num_there + self._num_written
        if self.limit is None:
            return num_in_all
        return min(num_in_all, max(self.limit, _LEAST_KEPT) + self.num_protected)

    @property
    def _num_written(self) -> int:
        """How many checkpoints the rest of the run writes at most."""
        return max(self.num_saves, int(self.saves_if_stopped))

    def refuse(self, root: Path) -> None:
        """Raise a RunError if the next checkpoint does not fit. A run that plans none may start."""
        if self.num_saves:
            refuse_full_disk(root, self.checkpoint_bytes)

    def warning(self, root: Path) -> str | None:
        """Return a warning if not all checkpoints fit, or no export after them; None if all fit."""
        free = free_bytes(root)
        if not self._num_written or free >= self.num_bytes + SPARE_BYTES:
            return None
        num_fitting = max(0, free - SPARE_BYTES) // max(1, self.checkpoint_bytes)
        if num_fitting >= self.num_more:
            return (
                f"{root} has {_gib(free)} left: enough for the checkpoints of this run, but not for an export of "
                f"{_gib(self.export_bytes)} after it. Export to another disk with --out."
            )
        if self.saves_if_stopped:
            return (
                f"{root} has {_gib(free)} left: too little for the checkpoint of {_gib(self.checkpoint_bytes)} that is "
                "written if this run is stopped before its end. It writes no other: trainer.save_strategy=no."
            )
        could_keep_less = self._num_kept > _LEAST_KEPT + self.num_protected
        fewer = f"set trainer.save_total_limit={_LEAST_KEPT}, " if could_keep_less else ""
        return (
            f"{root} has {_gib(free)} left: enough for {num_fitting} of the {self.num_more} checkpoints of "
            f"{_gib(self.checkpoint_bytes)} that this run may add at one time. It will stop at the first that does not "
            f"fit. Free some space, {fewer}or choose another trainer.output_dir."
        )


def num_saves_after(step: int, args: TrainingArguments, steps_per_epoch: int) -> int:
    """Count the checkpoints that a run writes after a step. The last step is saved in any case."""
    max_steps = planned_steps(args, steps_per_epoch)
    if args.save_strategy == "no" or step >= max_steps:
        return 0
    ratio_or_steps = steps_per_epoch if args.save_strategy == "epoch" else args.save_steps
    every = int(ratio_or_steps) if ratio_or_steps >= 1 else math.ceil(ratio_or_steps * max_steps)
    return math.ceil(max_steps / every) - step // every


def planned_steps(args: TrainingArguments, steps_per_epoch: int) -> int:
    """Return how many steps a run has in all. One that is counted in epochs is rounded up, as transformers does."""
    return args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * steps_per_epoch)


def free_bytes(root: Path) -> int:
    """Return the free space where a folder is, or where it would be created.

    What a killed save left behind counts as free: the next save removes it first.
    """
    free = shutil.disk_usage(existing_folder(root)).free
    for prefix in (PARTIAL, OLD):
        with suppress(OSError):  # a run in another process may be removing it
            free += sum(path.stat().st_size for path in root.glob(f"{prefix}checkpoint-*/**/*") if path.is_file())
    return free


def existing_folder(root: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return next(folder for folder in (root, *root.resolve().parents) if folder.is_dir())


def refuse_full_disk(root: Path, num_bytes: int) -> None:
    """Raise a RunError if the disk lacks the space for a checkpoint of this size, before anything is written."""
    free, needed = free_bytes(root), num_bytes + SPARE_BYTES
    if free < needed:
        raise RunError(
            f"a checkpoint needs {_gib(needed)} with a reserve of {SPARE_BYTES // 2**20} MiB, but {root} has "
            f"{_gib(free)} left. Free some space, or choose another trainer.output_dir."
        )


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
