"""End a command on Ctrl-C or SIGTERM, at any time, with one sentence and exit code 130 or 143.

    with stoppable():
        ...

A signal raises `Stopped`, so that temporary folders are removed and other processes are ended. A library may replace
it by another error, as pydantic does in a serializer and typer at a prompt, or catch it, as gradio does while it waits;
`as_stopped` raises it again. The process ends at once where raising is not possible: while a module is imported, since
an exception that crosses libraries in C++ or Rust aborts the process; in a callback whose exceptions Python drops; and
at a second signal.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from vcsd.terminal.output import is_replica

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from types import FrameType

    Handler = Callable[[int, FrameType | None], None]

STOPS = (signal.SIGTERM, signal.SIGINT)

SAME_SECONDS = 0.5
"""Signals this close together count as one: `timeout` and some launchers signal a process, then its whole group."""

SHOW_CURSOR = "\x1b[?25h"
"""Progress bars hide it, and have no time to show it again where the process ends at once."""


class Stopped(KeyboardInterrupt):
    """A signal stopped the command. `exit_code` is the one that shells use: 143 for SIGTERM, 130 for SIGINT."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(f"stopped by {self.signal.name}")

    @property
    def exit_code(self) -> int:
        """128 plus the number of the signal."""
        return 128 + self.signal


def exit_code_of(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code of a command that ends with an interrupt.

    >>> exit_code_of(Stopped(signal.SIGTERM)), exit_code_of(KeyboardInterrupt())
    (143, 130)
    """
    return interrupt.exit_code if isinstance(interrupt, Stopped) else 128 + signal.SIGINT


def how_stopped(interrupt: KeyboardInterrupt) -> str:
    """Say what ended a command.

    >>> how_stopped(Stopped(signal.SIGTERM)), how_stopped(KeyboardInterrupt())
    ('Stopped by SIGTERM.', 'Stopped.')
    """
    return f"Stopped by {interrupt.signal.name}." if isinstance(interrupt, Stopped) else "Stopped."


class _Command:
    """What signals have done to the command of this process."""

    is_running = False
    stopped: Stopped | None = None
    time = 0.0


@contextmanager
def handled_by(handler: Handler, numbers: Collection[signal.Signals] = STOPS) -> Iterator[None]:
    """Handle signals inside this context. Those that the program ignores or handles itself are left alone."""
    is_main = threading.current_thread() is threading.main_thread()  # only it may set handlers
    defaults = (signal.SIG_DFL, signal.default_int_handler, stop)
    before = {number: old for number in numbers if is_main and (old := signal.getsignal(number)) in defaults}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let signals stop what runs in this context."""
    drop = sys.unraisablehook

    def end_if_dropped(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, Stopped):
            _end(dropped.exc_value.signal)
        drop(dropped)

    _Command.is_running, _Command.stopped, sys.unraisablehook = True, None, end_if_dropped
    try:
        with handled_by(stop):
            yield
    finally:
        _Command.is_running, _Command.stopped, sys.unraisablehook = False, None, drop


def stop(number: int, frame: FrameType | None) -> None:
    """Raise Stopped, or end the process at once where that must not be raised."""
    if not _Command.is_running:
        raise Stopped(number)
    if _Command.stopped is not None and time.monotonic() - _Command.time < SAME_SECONDS:
        return
    if _Command.stopped is not None or _is_importing(frame):
        _end(number)
    _Command.stopped, _Command.time = Stopped(number), time.monotonic()
    raise _Command.stopped


@contextmanager
def as_stopped() -> Iterator[None]:
    """Raise Stopped again if a library caught it, or replaced it by another error."""
    try:
        yield
    except Exception:
        if _Command.stopped is None:
            raise
    if _Command.stopped is not None:
        raise _Command.stopped


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


def _end(number: int) -> NoReturn:
    said = "" if is_replica() else f"Stopped by {signal.Signals(number).name}.\n"
    with suppress(Exception):  # the signal may have interrupted a write to stdout
        sys.stdout.flush()
    with suppress(OSError):  # nobody may read it
        os.write(2, ((SHOW_CURSOR if os.isatty(2) else "") + said).encode())
    os._exit(128 + number)
