"""A checkpoint's folder: written under a hidden name, flushed to disk and renamed, so that it is always complete.

A crash leaves the earlier checkpoints and a hidden folder, which the next checkpoint removes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, cast

from safetensors import safe_open

from vcsd.checkpoint.tensors import num_bytes, sync, write_tensors, write_text
from vcsd.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from torch import Tensor

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d+)")
_PARTIAL, _OLD, _DAMAGED = ".partial-", ".old-", "damaged-"
_LEFTOVER = re.compile(rf"({re.escape(_PARTIAL)}|{re.escape(_OLD)})checkpoint-\d+")
_SPARE_BYTES = 64 * 2**20
"""Disk space required besides the tensors: JSON, the processor's files, the file system's overhead."""


class DamagedCheckpointError(ConfigError):
    """A checkpoint that is not as it was written. An earlier one may be whole."""

    def __init__(self, folder: Path, damage: str) -> None:
        self.folder, self.damage = folder, damage
        super().__init__([f"{folder} is damaged: {damage}. Remove the folder to resume from the checkpoint before it."])


class FileEntry(TypedDict):
    """The size and hash of a file in a manifest."""

    bytes: int
    sha256: str


class Manifest(TypedDict):
    """What `manifest.json` holds."""

    format: int
    step: int
    identity: Mapping[str, object]
    files: dict[str, FileEntry]


@dataclass(frozen=True)
class Contents:
    """What goes into a checkpoint: tensors by file, texts by file, and a function that copies more files.

    `identity` identifies the run; a run with another identity cannot resume from the checkpoint.
    """

    tensors: Mapping[str, Mapping[str, Tensor]]
    texts: Mapping[str, str]
    identity: Mapping[str, object]
    copy_files: Callable[[Path], object] = field(default=lambda folder: None)

    @property
    def num_bytes(self) -> int:
        """How much disk space it needs."""
        texts = sum(len(text.encode()) for text in self.texts.values())
        return sum(num_bytes(tensors) for tensors in self.tensors.values()) + texts


def write_checkpoint(
    root: Path, step: int, contents: Contents, *, limit: int | None = None, protected: Collection[int] = ()
) -> Path:
    """Write a checkpoint, then remove the oldest ones beyond `limit`, except those of `protected` steps."""
    final = root / f"checkpoint-{step}"
    partial = root / f"{_PARTIAL}{final.name}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        remove_leftovers(root)
        refuse_full_disk(root, contents.num_bytes)
        _fill(partial, step, contents)
        if os.path.lexists(final):
            _remove(final)
        partial.rename(final)
        _sync_path(root)
    except OSError as error:  # a quota, another process that filled the disk, a folder that was removed
        shutil.rmtree(partial, ignore_errors=True)
        raise RunError(
            f"{final} could not be written: {error}. The earlier checkpoints are untouched; the same command resumes "
            "from the latest."
        ) from error
    _rotate(root, limit, {step, *protected})
    return final


def _fill(partial: Path, step: int, contents: Contents) -> None:
    """Write everything into a folder, the manifest last, and flush it to disk."""
    partial.mkdir()
    files: dict[str, tuple[int, str]] = {}
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
    entries: dict[str, FileEntry] = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in files.items()}
    manifest = Manifest(format=FORMAT, step=step, identity=contents.identity, files=entries)
    write_text(partial / MANIFEST, json.dumps(manifest, indent=1))
    _sync_path(partial)


def checkpoints_of(root: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step, in order."""
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return dict(sorted((int(match[1]), path) for path in folders if (match := _NAME.fullmatch(path.name))))


def latest_checkpoint(root: Path) -> Path | None:
    """Return the checkpoint of the latest step, or None."""
    return next(reversed(checkpoints_of(root).values()), None)


def check_checkpoint(
    folder: Path,
    identity: Mapping[str, object] | None = None,
    *,
    needs: Collection[str] = (),
) -> Manifest:
    """Return the manifest of a checkpoint. Raise a ConfigError if it is damaged or its run has another identity.

    `needs` names the files that it must have.
    """
    manifest = _read_manifest(folder)
    damaged = [f"{name} is not in its manifest" for name in needs if name not in manifest["files"]]
    damaged += [
        f"{name} {problem}" for name, entry in manifest["files"].items() if (problem := _damage(folder / name, entry))
    ]
    if damaged:
        raise DamagedCheckpointError(folder, "; ".join(damaged))
    if identity is not None:
        refuse_other_run(folder, manifest["identity"], identity)
    return manifest


def refuse_other_run(folder: Path, before: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Raise a ConfigError that names what differs between a checkpoint's run and this one."""
    differences = _differences(before, json.loads(json.dumps(now)))
    if differences:
        raise ConfigError(
            [
                f"{folder} belongs to another run: {'; '.join(differences)}. "
                "Restore the old values, or choose another trainer.output_dir."
            ]
        )


class TensorFile(Mapping[str, "Tensor"]):
    """The tensors of a safetensors file, each read on access."""

    def __init__(self, path: Path) -> None:
        untyped: Any = safe_open
        self._file = untyped(str(path), framework="pt")
        self._names: list[str] = list(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def latest_whole(root: Path, check: Callable[[Path], Manifest]) -> tuple[Path | None, list[DamagedCheckpointError]]:
    """Return the latest checkpoint that is whole, and the damage of the later ones. `check` is `check_checkpoint`.

    A checkpoint of another run stops the search with an error: going further back would not make it this run's.
    """
    damaged: list[DamagedCheckpointError] = []
    for step, folder in reversed(checkpoints_of(root).items()):
        try:
            manifest = check(folder)
            if manifest["step"] == step:
                return folder, damaged
            damaged.append(DamagedCheckpointError(folder, f"its manifest is that of step {manifest['step']}"))
        except DamagedCheckpointError as error:
            damaged.append(error)
    return None, damaged


def move_aside(folder: Path) -> Path:
    """Rename a damaged checkpoint so that no run resumes from it, and return its new path."""
    names = (f"{_DAMAGED}{folder.name}{'' if number == 1 else f'-{number}'}" for number in itertools.count(1))
    aside = next(path for name in names if not os.path.lexists(path := folder.with_name(name)))
    try:
        folder.rename(aside)
    except OSError as error:
        raise ConfigError([f"{folder} is damaged and cannot be moved aside: {error}. Move it away."]) from error
    return aside


def remove_leftovers(root: Path) -> None:
    """Remove what a crash during a save or a removal left behind. Other files are none of our business."""
    for path in root.iterdir():
        if _LEFTOVER.fullmatch(path.name):
            try:
                _delete(path)
            except OSError as error:
                log.warning("%s is left from an earlier run and cannot be removed: %s.", path, error)


def _delete(path: Path) -> None:
    """Delete a folder, a file or a link; of a link, not what it points to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def refuse_full_disk(root: Path, needed: int) -> None:
    """Raise a RunError if the disk lacks the space, before anything is written."""
    free = shutil.disk_usage(root).free
    if free < needed + _SPARE_BYTES:
        raise RunError(
            f"a checkpoint needs {needed / 2**30:.2f} GiB, but {root} has {free / 2**30:.2f} GiB left. "
            "Free some space, set trainer.save_total_limit, or choose another trainer.output_dir."
        )


def _read_manifest(folder: Path) -> Manifest:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(folder, f"its manifest cannot be read: {error}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise DamagedCheckpointError(folder, "its manifest is not one")
    if manifest["format"] != FORMAT:
        raise ConfigError([f"{folder} has format {manifest['format']!r}; this version reads {FORMAT}."])
    kinds = {"step": int, "identity": dict, "files": dict}
    lacking = [key for key, kind in kinds.items() if not isinstance(manifest.get(key), kind)]
    lacking += [] if lacking else [name for name, entry in manifest["files"].items() if not _is_entry(entry)]
    if lacking:
        raise DamagedCheckpointError(folder, f"its manifest lacks {', '.join(lacking)}")
    return cast("Manifest", manifest)


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and isinstance(entry.get("sha256"), str)


def _damage(path: Path, entry: FileEntry) -> str | None:
    try:
        if not path.is_file():
            return "is missing"
        if path.stat().st_size != entry["bytes"]:
            return f"has {path.stat().st_size} bytes instead of {entry['bytes']}"
        return None if _sha256(path) == entry["sha256"] else "has a different hash"
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        return f"cannot be read: {error}"


def _differences(before: object, now: object, path: str = "") -> list[str]:
    """Describe what changed between two trees of plain values."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted({*before, *now})
        return [
            line for key in keys for line in _differences(before.get(key), now.get(key), f"{path}.{key}".lstrip("."))
        ]
    return [] if before == now else [f"{path} was {before!r} and is now {now!r}"]


def _rotate(root: Path, limit: int | None, protected: Collection[int]) -> None:
    if limit is None or limit <= 0:
        return
    whole = [(step, path) for step, path in checkpoints_of(root).items() if (path / MANIFEST).is_file()]
    for step, path in whole[: max(0, len(whole) - limit)]:
        if step not in protected:
            try:
                _remove(path)
            except OSError as error:  # the new checkpoint is safe, so the run continues
                log.warning("%s is beyond trainer.save_total_limit, but cannot be removed: %s.", path, error)


def _remove(folder: Path) -> None:
    """Hide a checkpoint by a rename, then delete it, so that a crash leaves no partial one under its name."""
    hidden = folder.with_name(_OLD + folder.name)
    if os.path.lexists(hidden):
        _delete(hidden)
    folder.rename(hidden)
    _delete(hidden)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
