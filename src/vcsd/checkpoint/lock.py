"""Allow one process per run folder: two of them would overwrite each other's checkpoints and logs."""

from __future__ import annotations

import logging
import os
import random
import shutil
import socket
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, RunError

try:
    import fcntl
except ImportError:  # Windows has no flock
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

log = logging.getLogger(__name__)

NAME = ".lock"
_LOOKS, _LONGEST_LOOK = 50, 0.02
"""How often locking is tried while others probe the lock, and the longest pause between two tries in seconds."""

_held: set[Path] = set()
"""Folders that this process has locked: locking one again would conflict with its own lock."""


class InUseError(RunError):
    """A folder that another process has locked: nothing in it may be changed."""

    def __init__(self, folder: Path, process: str) -> None:
        super().__init__(f"{folder} is in use by {process}. Wait for it, stop it, or choose another folder.")
        self.folder, self.process = folder, process


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Lock a run's folder. Raise an InUseError if another process has locked it. A crash or kill releases the lock."""
    folder = folder.resolve()
    if folder in _held or fcntl is None:
        yield
        return
    with _opened(folder) as file:
        try:
            _lock(file)
        except BlockingIOError:
            file.seek(0)
            raise InUseError(folder, file.read().strip() or "another process") from None
        except OSError as error:  # some network file systems lack locks
            log.warning("%s cannot be locked (%s). Make sure that no other process writes there.", folder, error)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        _held.add(folder)
        try:
            yield
        finally:
            _held.discard(folder)


def _lock(file: TextIO) -> None:
    """Lock a file for this process alone. Raise a BlockingIOError if another process has it.

    A process that only looks whether the file is locked (`process_in`) shares a lock on it for a moment.
    """
    for _ in range(_LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # raises if another process has locked it exclusively
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(random.uniform(0, _LONGEST_LOOK))
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def empty(folder: Path) -> None:
    """Remove everything in a folder but its lock. Create the folder if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != NAME:
            path.unlink()


def refuse_in_use(folder: Path) -> None:
    """Raise an InUseError if another process has locked a folder."""
    folder = folder.resolve()
    if folder not in _held and (process := process_in(folder)) is not None:
        raise InUseError(folder, process)


def process_in(folder: Path) -> str | None:
    """Return the process that has locked a run's folder, such as "process 7 on HOST"; None if the folder is free."""
    path = folder / NAME
    if fcntl is None or not path.is_file():
        return None
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError:  # another user's file
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().strip() or "another process"
        except OSError:  # some network file systems lack locks
            return None
    return None


def is_abandoned(folder: Path) -> bool:
    """Whether the process that locked a folder has certainly ended. False where locks do not work."""
    if fcntl is None:
        return False
    try:
        with (folder / NAME).open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # locked, another user's, or on a network file system that lacks locks
        return False
    return True


def _opened(folder: Path) -> TextIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / NAME).open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{folder} cannot be written to: {error}. Choose another folder."]) from error
