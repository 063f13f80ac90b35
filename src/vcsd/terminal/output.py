"""Print plain text on the terminal. Rich's markup and emoji codes in it are never interpreted."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
import warnings
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from vcsd.errors import VcsdError
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator


def plain(text: str, style: str = "") -> Text:
    """Return text for rich to print as it is, in one style.

    >>> plain("x[/red] :bug: \\x1b[31m").plain
    'x[/red] :bug: \\\\x1b[31m'
    """
    return Text(visible(text), style=style)


def say(text: str, *, style: str = "", to_stderr: bool = False) -> None:
    """Print text; the terminal wraps long lines, so that a path can be copied."""
    console = Console(stderr=to_stderr)
    encodable = visible(text).encode(console.encoding, "backslashreplace").decode(console.encoding)
    console.print(plain(encodable, style), soft_wrap=True)


def say_prose(text: str, *, style: str = "") -> None:
    """Print sentences, wrapped between words at the terminal's width. A long path stays in one piece."""
    lines = textwrap.wrap(text, Console().width, break_long_words=False, break_on_hyphens=False)
    say("\n".join(lines), style=style)


def is_replica() -> bool:
    """Whether this process is a rank other than 0 of a launcher. Only rank 0 prints."""
    return os.environ.get("RANK", "0") != "0"


def say_once(text: str) -> None:
    """Print text, on rank 0 only."""
    if not is_replica():
        say(text)


class _VisibleRecord(logging.LogRecord):
    def getMessage(self) -> str:
        return visible(super().getMessage())


def guard_terminal() -> None:
    """Escape control characters in every log message and warning of this process, including those of libraries.

    Pillow's warning about large images is dropped: our limit is lower, and its error names the example.
    """
    logging.setLogRecordFactory(_VisibleRecord)
    warnings.formatwarning = _visible_warning
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")


def _visible_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return visible(_format_warning(message, category, filename, lineno, line))


_format_warning = warnings.formatwarning


def show_log() -> None:
    """Show the package's log on the terminal. Ranks other than 0 show errors only."""
    level = logging.ERROR if is_replica() else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("vcsd").setLevel(logging.ERROR if is_replica() else logging.INFO)


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End a module's command (`python -m ...`) with exit code 2 and one line for an error of this package."""
    try:
        yield
    except VcsdError as error:
        sys.stderr.write(visible(f"error: {type(error).__name__}: {error}\n"))
        sys.exit(2)


class _SlowImport(MetaPathFinder):
    """Finds no module; it sees each import before the other finders do."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch" and self in sys.meta_path:
            sys.meta_path.remove(self)
            say("Loading torch and transformers ...", style="dim", to_stderr=True)


def announce_slow_import() -> None:
    """Print a line when torch is imported, which takes seconds: on rank 0, and only on a terminal."""
    if "torch" not in sys.modules and sys.stderr.isatty() and not is_replica():
        sys.meta_path.insert(0, _SlowImport())
