"""Checks of command-line options: a folder to write into, a seed, a count, a split."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from vcsd.world.scenes import Split

LARGEST_SEED = 2**32 - 1
"""The largest seed that NumPy's generators accept; the smallest is 0."""


def refuse_seed(option: str, seed: int) -> None:
    """Raise for a seed that some random generator does not accept.

    >>> refuse_seed("--seed", -1)
    Traceback (most recent call last):
        ...
    vcsd.errors.ConfigError: --seed -1 is not a seed. Give a whole number from 0 to 4294967295.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError([f"{option} {seed} is not a seed. Give a whole number from 0 to {LARGEST_SEED}."])


def refuse_none(option: str, count: int, most: int | None = None) -> None:
    """Raise for a count below one, or above what any run needs.

    >>> refuse_none("--jobs", 0)
    Traceback (most recent call last):
        ...
    vcsd.errors.ConfigError: --jobs 0 must be at least 1.
    """
    if count < 1:
        raise ConfigError([f"{option} {count} must be at least 1."])
    if most is not None and count > most:
        raise ConfigError([f"{option} {count} must be at most {most:,}."])


def checked_split(split: str) -> Split:
    """Return the split of the questions to ask, or raise."""
    splits: dict[str, Split] = {"dev": "dev", "test": "test"}
    if split not in splits:
        raise ConfigError([f"--split {split!r} is not a split to ask questions from. Allowed: test, dev."])
    return splits[split]


def refuse_no_folder(out: Path) -> None:
    """Raise unless the folder exists or can be created. Does not create it, since other checks may still fail."""
    path = out.absolute()
    nearest = next(ancestor for ancestor in (path, *path.parents) if os.path.lexists(ancestor))
    if not nearest.is_dir():
        raise ConfigError([f"--out {out} cannot be a folder: {nearest} is a file. Choose another folder."])
    if not os.access(nearest, os.W_OK):
        raise ConfigError([f"--out {out}: no permission to write to {nearest}. Choose another folder."])
