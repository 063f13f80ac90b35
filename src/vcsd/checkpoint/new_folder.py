"""A folder that is written as a whole or not at all: under a hidden name, locked, and renamed when it is complete.

A failure removes it. A kill leaves it behind without its lock, and the next new folder in the same place removes it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from vcsd.checkpoint.lock import NAME, empty, is_abandoned, only_process
from vcsd.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PARTIAL = ".partial-"
_WRITE_ERRORS = {errno.ENOSPC, errno.EROFS, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
"""Errors of a write, whichever file they name: copying names its source."""

_OWNER = re.compile(r"process \d+ on .+\n")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder to write into, which gets the name of `folder` at the end.

    Raise a ConfigError if `folder` is not new or empty, and a RunError if it cannot be written.
    """
    folder = new_place(folder)
    partial = folder.with_name(_PARTIAL + folder.name)
    try:
        partial.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder.parent)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        with only_process(partial):
            try:
                empty(partial)  # a killed process may have left files
                yield partial
                partial.rename(folder)  # an empty folder of this name is replaced
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
            with suppress(OSError):  # last: without its lock, the hidden folder could be another process's
                (folder / NAME).unlink()
    except (OSError, SafetensorError) as error:  # safetensors reports a full disk with an error of its own
        shutil.rmtree(partial, ignore_errors=True)  # also if not even the lock could be written
        raise _failed(folder, partial, error) from error


def new_place(folder: Path, option: str | None = None) -> Path:
    """Return the folder without links. Raise unless it is new or empty; the error names the `option` to change it."""
    try:
        folder = folder.resolve()
        is_new = not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir()))
    except (OSError, RuntimeError) as error:  # a link to itself is a RuntimeError
        raise _unwritable(folder, error) from error
    if not is_new:
        by = "" if option is None else f" ({option})"
        raise ConfigError([f"{folder} is not an empty folder. Choose a new one{by}, or remove it."])
    return folder


def _failed(folder: Path, partial: Path, error: OSError | SafetensorError) -> RunError:
    """Return an error for what could not be written or, when files are copied from another folder, read."""
    names = [error.filename, error.filename2] if isinstance(error, OSError) else []
    paths = [os.fsdecode(name) for name in names if isinstance(name, str | bytes)]
    is_read = bool(paths) and not any(path.startswith(str(partial)) for path in paths)
    if is_read and isinstance(error, OSError) and error.errno not in _WRITE_ERRORS:
        return RunError(f"{paths[0]} cannot be read: {error.strerror}. Nothing is left of {folder}.")
    return _unwritable(folder, error)


def _unwritable(folder: Path, error: Exception) -> RunError:
    return RunError(
        f"{folder} cannot be written: {error}. Nothing is left of it. Check its place and the free space, or choose "
        "another folder."
    )


def _remove_abandoned(parent: Path) -> None:
    """Remove the hidden folders of processes that were killed: their lock names a process, and is free."""
    for path in parent.glob(f"{_PARTIAL}*"):
        try:
            if _OWNER.fullmatch((path / NAME).read_text(encoding="utf-8")) and is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
        except (OSError, ValueError):  # not such a folder
            continue
