"""A checkpoint's folder: written beside, synchronised, renamed. Whoever sees it sees all of it.

A crash leaves a hidden folder, which is removed when the next checkpoint is written, and the checkpoints before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from vcsd.checkpoint.tensors import num_bytes, sync, write_tensors, write_text
from vcsd.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from torch import Tensor

MANIFEST = "manifest.json"
FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d+)")
_PARTIAL, _OLD = ".partial-", ".old-"
_SPARE_BYTES = 64 * 2**20
"""Asked for on top of the tensors: JSON, the processor's files, the file system's own."""


@dataclass(frozen=True)
class Contents:
    """What goes into a checkpoint: tensors by file, texts by file, and one who copies further files into a folder.

    `identity` says whose run it is; a run with another identity cannot go on from it.
    """

    tensors: Mapping[str, Mapping[str, Tensor]]
    texts: Mapping[str, str]
    identity: Mapping[str, Any]
    copy_files: Callable[[Path], object] = field(default=lambda folder: None)

    @property
    def num_bytes(self) -> int:
        """How much room it needs on disk."""
        texts = sum(len(text.encode()) for text in self.texts.values())
        return sum(num_bytes(tensors) for tensors in self.tensors.values()) + texts


def write_checkpoint(
    root: Path, step: int, contents: Contents, *, limit: int | None = None, protected: Collection[int] = ()
) -> Path:
    """Write a checkpoint, then remove the oldest beyond `limit`, never one of the `protected` steps."""
    root.mkdir(parents=True, exist_ok=True)
    remove_leftovers(root)
    refuse_full_disk(root, contents.num_bytes)
    final = root / f"checkpoint-{step}"
    partial = root / f"{_PARTIAL}{final.name}"
    try:
        _fill(partial, step, contents)
    except OSError as error:  # a quota, or another process that took the room
        shutil.rmtree(partial, ignore_errors=True)
        raise RunError(
            f"{final} could not be written: {error}. The checkpoints before it are untouched; started again, the run "
            "goes on from the latest."
        ) from error
    if final.exists():
        _remove(final)
    partial.rename(final)
    _sync_path(root)
    _rotate(root, limit, {step, *protected})
    return final


def _fill(partial: Path, step: int, contents: Contents) -> None:
    """Write everything into a folder, the manifest last, and wait for the disk."""
    partial.mkdir()
    files = {}
    for name, tensors in contents.tensors.items():
        files[name] = write_tensors(partial / name, tensors)
    for name, text in contents.texts.items():
        files[name] = write_text(partial / name, text)
    contents.copy_files(partial)
    for path in sorted(path for path in partial.rglob("*") if path.is_file()):
        name = str(path.relative_to(partial))
        if name not in files:
            _sync_path(path)
            files[name] = (path.stat().st_size, _sha256(path))
    entries = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in files.items()}
    manifest = {"format": FORMAT, "step": step, "identity": contents.identity, "files": entries}
    write_text(partial / MANIFEST, json.dumps(manifest, indent=1))
    _sync_path(partial)


def checkpoints_of(root: Path) -> dict[int, Path]:
    """The checkpoints of a run by step, in order."""
    if not root.is_dir():
        return {}
    found = {int(match[1]): path for path in root.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()}
    return dict(sorted(found.items()))


def latest_checkpoint(root: Path) -> Path | None:
    """The checkpoint of the latest step, or None."""
    return next(reversed(checkpoints_of(root).values()), None)


def check_checkpoint(folder: Path, identity: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Prove that a checkpoint is whole, and of a run with this identity; its manifest. Raises ConfigError."""
    manifest = _read_manifest(folder)
    damaged = [
        f"{name} {problem}" for name, entry in manifest["files"].items() if (problem := _damage(folder / name, entry))
    ]
    if damaged:
        raise ConfigError(
            [f"{folder} is damaged: {'; '.join(damaged)}. Remove the folder to go on from the checkpoint before it."]
        )
    if identity is not None:
        differences = _differences(manifest["identity"], json.loads(json.dumps(identity)))
        if differences:
            raise ConfigError(
                [
                    f"{folder} belongs to another run: {'; '.join(differences)}. "
                    "Give back the old values, or choose another trainer.output_dir."
                ]
            )
    return manifest


class TensorFile(Mapping[str, "Tensor"]):
    """The tensors of a file, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        opened: Any = safe_open
        self._file = opened(str(path), framework="pt")
        self._names: list[str] = list(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def remove_leftovers(root: Path) -> None:
    """Remove what a crash inside a save or a removal has left."""
    for path in root.iterdir():
        if path.name.startswith((_PARTIAL, _OLD)):
            shutil.rmtree(path)


def refuse_full_disk(root: Path, needed: int) -> None:
    """Raise a RunError if the disk has no room, before anything is written."""
    free = shutil.disk_usage(root).free
    if free < needed + _SPARE_BYTES:
        raise RunError(
            f"a checkpoint needs {needed / 2**30:.2f} GiB, but {root} has {free / 2**30:.2f} GiB left. "
            "Make room, set trainer.save_total_limit, or choose another trainer.output_dir."
        )


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            [f"{folder} is not a whole checkpoint of vcsd: {error}. Remove the folder, or name another one."]
        ) from error
    if manifest.get("format") != FORMAT:
        raise ConfigError([f"{folder} has format {manifest.get('format')!r}; this version reads {FORMAT}."])
    return manifest


def _damage(path: Path, entry: Mapping[str, Any]) -> str | None:
    if not path.is_file():
        return "is missing"
    if path.stat().st_size != entry["bytes"]:
        return f"has {path.stat().st_size} bytes instead of {entry['bytes']}"
    return None if _sha256(path) == entry["sha256"] else "has other content than was written"


def _differences(before: Any, now: Any, path: str = "") -> list[str]:
    """What changed between two trees of plain values, as sentences."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted({*before, *now})
        return [
            line for key in keys for line in _differences(before.get(key), now.get(key), f"{path}.{key}".lstrip("."))
        ]
    return [] if before == now else [f"{path} was {before!r} and is now {now!r}"]


def _rotate(root: Path, limit: int | None, protected: Collection[int]) -> None:
    if limit is None or limit <= 0:
        return
    steps = list(checkpoints_of(root).items())
    for step, path in steps[: max(0, len(steps) - limit)]:
        if step not in protected:
            _remove(path)


def _remove(folder: Path) -> None:
    """Out of sight by one rename, then gone: a crash leaves no half of a checkpoint under its name."""
    hidden = folder.with_name(_OLD + folder.name)
    if hidden.exists():
        shutil.rmtree(hidden)
    folder.rename(hidden)
    shutil.rmtree(hidden)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
