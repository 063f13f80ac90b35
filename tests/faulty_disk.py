"""A disk that fails: file-system events below a folder raise an error, as on a full or read-only disk."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir", "shutil.rmtree"}
_NEED_NO_ROOM = {"os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir", "shutil.rmtree"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_watching: list[Callable[[str, tuple[object, ...]], None]] = []
"""What looks at events now. Python cannot remove an audit hook, so there is one, which does nothing without these."""


def _hook(event: str, given: tuple[object, ...]) -> None:
    for watch in _watching:
        watch(event, given)


@contextmanager
def watched(watch: Callable[[str, tuple[object, ...]], None]) -> Iterator[None]:
    """Call a function at each event; an error that it raises is the event's. Nothing is flushed, to save time."""
    if not getattr(sys, "_has_disk_hook", False):
        sys._has_disk_hook = True  # type: ignore[attr-defined]
        sys.addaudithook(_hook)
    sync = os.fsync

    def watched_sync(descriptor: int) -> None:
        watch("fsync", (Path(f"/proc/self/fd/{descriptor}").readlink(), None, _WRITES))

    os.fsync = watched_sync
    _watching.append(watch)
    try:
        yield
    finally:
        _watching.remove(watch)
        os.fsync = sync


@contextmanager
def half_written_files() -> Iterator[None]:
    """Stop each file that `write_whole` writes in the middle, as a kill or a full disk does."""
    write = Path.write_bytes

    def half(path: Path, content: bytes) -> None:
        write(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    Path.write_bytes = half  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Path.write_bytes = write  # type: ignore[method-assign]


@contextmanager
def faulty_disk(folder: Path, first: int = 0, *, code: int = errno.ENOSPC, once: bool = False) -> Iterator[list[str]]:
    """Fail all that needs room below a folder from the event of a number on; with `once`, that event, whatever it is.

    Yields the list of events that failed.
    """
    count, failed = [0], []

    def watch(event: str, given: tuple[object, ...]) -> None:
        if event not in {*EVENTS, "fsync"} or not str(given[0]).startswith(str(folder)):
            return
        is_write = event not in _NEED_NO_ROOM and (event != "open" or bool(int(given[2] or 0) & _WRITES))  # type: ignore[call-overload]
        number = count[0]
        count[0] += 1
        if number == first if once else (number >= first and is_write):
            failed.append(event)
            raise OSError(code, os.strerror(code), str(given[0]))

    with watched(watch):
        yield failed
