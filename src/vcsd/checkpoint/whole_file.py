"""Files that a reader sees whole or not at all."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file, and return its path. A kill or an error while writing leaves the previous one.

    Several processes may write the same file: a reader sees the content of one of them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        return partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is no such file, or if it holds anything else."""
    if not path.is_file():  # reading a pipe or a device may never end
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def value_at(tree: object, *keys: str) -> Any:
    """Return a value inside nested objects; None where a key is missing.

    >>> value_at({"method": {"alpha": 1.0}}, "method", "alpha"), value_at({"method": "vcsd"}, "method", "alpha")
    (1.0, None)
    """
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree
