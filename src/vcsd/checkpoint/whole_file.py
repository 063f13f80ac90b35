"""Text files that a reader sees whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> Path:
    """Write a file, and return its path. A kill or an error while writing leaves the previous one.

    Several processes may write the same file: a reader sees that of one of them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        return partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
