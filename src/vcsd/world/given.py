"""What the world's commands are given, checked before anything is done: a folder to write into, a seed, a count."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_SEED = 2**32 - 1
"""NumPy's generators take no larger one, and none below 0."""


def refuse_seed(option: str, seed: int) -> None:
    """Raise for a seed that not every random generator takes.

    >>> refuse_seed("--seed", -1)
    Traceback (most recent call last):
        ...
    vcsd.errors.ConfigError: --seed -1 is not a seed. Give a whole number from 0 to 4294967295.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError([f"{option} {seed} is not a seed. Give a whole number from 0 to {LARGEST_SEED}."])


def refuse_none(option: str, count: int) -> None:
    """Raise for a count below one.

    >>> refuse_none("--jobs", 0)
    Traceback (most recent call last):
        ...
    vcsd.errors.ConfigError: --jobs 0 must be at least 1.
    """
    if count < 1:
        raise ConfigError([f"{option} {count} must be at least 1."])


def refuse_no_folder(out: Path) -> None:
    """Raise where no folder is and none can be made. Nothing is made here: the command may be refused for more."""
    path = out.absolute()
    nearest = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not nearest.is_dir():
        raise ConfigError([f"--out {out} cannot be a folder: {nearest} is a file. Choose another one."])
    if not os.access(nearest, os.W_OK):
        raise ConfigError([f"--out {out}: {nearest} may not be written to. Choose another folder."])
