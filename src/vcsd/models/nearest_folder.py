"""What a user may have meant by a path at which there is no folder."""

from __future__ import annotations

import difflib
import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

_MOST_ENTRIES = 2000
"""Folders with more entries are not searched further."""

_FEW = 5


def nearest(path: str, *, wants_file: bool = False) -> str:
    """Return a sentence that names the existing folder nearest to a path, or the nearest file; empty if none is near.

    Each part of the path that does not exist is replaced by the most similar name. Where none is similar, the sentence
    says what the folder holds.
    """
    parts = _expanded(path).parts
    reached = Path(parts[0]) if parts and Path(parts[0]).is_absolute() else Path()
    rest = parts[1:] if reached.is_absolute() else parts
    for place, part in enumerate(rest):
        is_last = place == len(rest) - 1
        following = _step(reached, part, wants_file=wants_file and is_last)
        if following is None:
            return _holds(reached, wants_file=wants_file) if place else ""
        reached = following
    return f" Did you mean {_written(path, reached)!r}?" if rest else ""


def first_part_exists(path: str) -> bool:
    """Whether the first part of a path is a folder here, so that no model of the hub is meant."""
    first = _expanded(path).parts[:1]
    return bool(first) and _is_folder(Path(first[0]))


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # ~nobody
        return Path(path)


def _step(folder: Path, name: str, *, wants_file: bool) -> Path | None:
    """Return the entry of this name, or else the most similar one."""
    if name == ".." or (_is_folder(folder / name) and not wants_file):
        return folder / name
    names = _names(folder, wants_file=wants_file)
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return folder / by_lower[close[0]] if close else None


def _holds(folder: Path, *, wants_file: bool) -> str:
    names = _names(folder, wants_file=wants_file)
    if not names:
        return f" The nearest folder is {str(folder)!r}."
    listed = ", ".join(names[:_FEW]) + (", ..." if len(names) > _FEW else "")
    return f" {str(folder)!r} holds {listed}."


def _names(folder: Path, *, wants_file: bool) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        chosen = [each.name for each in islice(entries, _MOST_ENTRIES) if wants_file or each.is_dir()]
        return sorted(name for name in chosen if not name.startswith("."))
    return []


def _written(path: str, found: Path) -> str:
    """Write a path the way the user does: with ./ or ~ if they did."""
    if path.startswith("~"):
        with suppress(ValueError, RuntimeError):
            return str(Path("~") / found.relative_to(Path.home()))
    return f"./{found}" if path.startswith("./") else str(found)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long
        return False
