"""A checkpoint's folder: written under a hidden name, flushed to disk and renamed, so that it is always complete.

A crash leaves the earlier checkpoints and a hidden folder, which the next checkpoint removes. If a step is saved again,
its old checkpoint is hidden before the new one gets its name. A crash between the two leaves the old one under its
hidden name, where `checkpoints_of` finds it.

With several ranks, all of them call `write_checkpoint` and `check_checkpoint`. Tensors that are spread over ranks are
written by all of them, everything else by rank 0, which also makes the manifest and renames the folder, once every rank
has written its part.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from vcsd.checkpoint.disk_space import OLD, PARTIAL, refuse_full_disk
from vcsd.checkpoint.saved import shards_of
from vcsd.checkpoint.shards import has_shards, write_shards
from vcsd.checkpoint.tensors import num_bytes, sha256, sync_path, write_tensors, write_text
from vcsd.errors import RunError
from vcsd.parallel.ranks import OtherRankError, gathered, is_first, on_every, on_first, this_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from torch import Tensor

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FORMAT = 1
SHARDED_FORMAT = 2
"""The format of a checkpoint whose tensors are spread over several files each."""

_NAME = re.compile(r"checkpoint-(\d+)")
_REPLACED = ".replaced-"
"""Prefix of a hidden folder that is complete but about to be replaced."""

_LEFTOVER = re.compile(rf"({re.escape(PARTIAL)}|{re.escape(OLD)}|{re.escape(_REPLACED)})(checkpoint-\d+)")


class FileEntry(TypedDict):
    """The size and hash of a file in a manifest."""

    bytes: int
    sha256: str


class Manifest(TypedDict):
    """The content of `manifest.json`."""

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
    of_rank: Collection[str] = ()
    """Files whose tensors differ between ranks. Each rank writes its own, under a name of its own (`own_file`)."""

    @property
    def num_bytes(self) -> int:
        """How much disk space it needs."""
        texts = sum(len(text.encode()) for text in self.texts.values())
        return sum(num_bytes(tensors) for tensors in self.tensors.values()) + texts


def own_file(name: str, rank: int) -> str:
    """Return the name of a rank's own file.

    >>> own_file("random.safetensors", 0), own_file("random.safetensors", 3)
    ('random.safetensors', 'random-rank-3.safetensors')
    """
    stem, dot, suffix = name.rpartition(".")
    return name if rank == 0 else f"{stem}-rank-{rank}{dot}{suffix}"


def write_checkpoint(
    root: Path, step: int, contents: Contents, *, limit: int | None = None, protected: Collection[int] = ()
) -> Path:
    """Write a checkpoint, then remove the oldest ones beyond `limit`, except those of `protected` steps.

    All ranks call it. If one of them fails, all raise a RunError, and no checkpoint is made.
    """
    final = root / f"checkpoint-{step}"
    partial = root / f"{PARTIAL}{final.name}"
    try:
        on_first(lambda: _prepare(root, partial, contents))
        files = _write_all_tensors(partial, contents)
        on_first(lambda: _complete(partial, final, _manifest(partial, step, contents, files)))
    except (OSError, OtherRankError) as error:  # a quota, a disk that another process filled, a folder that was removed
        if is_first():
            shutil.rmtree(partial, ignore_errors=True)
        kept = "The earlier checkpoints are untouched; the same command resumes from the latest."
        with suppress(OSError):  # the folder cannot be listed, either
            kept = kept if checkpoints_of(root) else "There is no earlier one; the same command starts again."
        raise RunError(f"{final} could not be written: {error}. {kept}") from error
    on_first(lambda: _rotate(root, limit, {step, *protected}))
    return final


def _prepare(root: Path, partial: Path, contents: Contents) -> None:
    root.mkdir(parents=True, exist_ok=True)
    remove_leftovers(root)
    refuse_full_disk(root, contents.num_bytes)
    partial.mkdir()


def _write_all_tensors(partial: Path, contents: Contents) -> dict[str, tuple[int, str]]:
    """Write the tensors of all ranks, and return the size and hash of every file."""
    files: dict[str, tuple[int, str]] = {}
    for name, tensors in contents.tensors.items():
        if has_shards(tensors):
            files |= write_shards(shards_of(partial / name), tensors)
        else:
            files |= _write_whole(partial, name, tensors, is_own=name in contents.of_rank)
    return {name: (size, digest) for of_rank in gathered(files) for name, (size, digest) in of_rank.items()}


def _write_whole(
    partial: Path, name: str, tensors: Mapping[str, Tensor], *, is_own: bool
) -> dict[str, tuple[int, str]]:
    """Write one file, or one of each rank's own."""
    if not is_own:
        return on_first(lambda: {name: write_tensors(partial / name, tensors)})
    own = own_file(name, this_rank())
    return on_every(lambda: {own: write_tensors(partial / own, tensors)})


def _manifest(partial: Path, step: int, contents: Contents, files: dict[str, tuple[int, str]]) -> Manifest:
    """Write everything but the tensors, check that the tensors of all ranks are here, and list all files."""
    for name, text in contents.texts.items():
        files[name] = write_text(partial / name, text)
    contents.copy_files(partial)
    missing = [name for name in files if not (partial / name).is_file()]
    if missing:
        raise OSError(
            f"{missing[0]} was written by another rank, but rank 0 does not see it. All machines of a run must share "
            "the file system of trainer.output_dir"
        )
    for path in sorted(partial.rglob("*")):
        name = str(path.relative_to(partial))
        if name not in files:
            sync_path(path)
        if path.is_file() and name not in files:
            files[name] = (path.stat().st_size, sha256(path))
    entries: dict[str, FileEntry] = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in files.items()}
    version = SHARDED_FORMAT if any(map(has_shards, contents.tensors.values())) else FORMAT
    return Manifest(format=version, step=step, identity=contents.identity, files=entries)


def _complete(partial: Path, final: Path, manifest: Manifest) -> None:
    """Write the manifest, flush the folder to disk, and give it its name."""
    write_text(partial / MANIFEST, json.dumps(manifest, indent=1))
    sync_path(partial)
    hidden = _hide(final, _REPLACED) if os.path.lexists(final) else None
    try:
        partial.rename(final)
    except OSError:
        if hidden is not None:
            hidden.rename(final)
        raise
    sync_path(final.parent)
    if hidden is not None:  # if it cannot be deleted, the next save tries again
        _delete_or_warn(hidden)


def checkpoints_of(root: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step, in order."""
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    hidden_first = sorted(folders, key=lambda path: not path.name.startswith(_REPLACED))
    names = ((path.name.removeprefix(_REPLACED), path) for path in hidden_first)
    return dict(sorted({int(match[1]): path for name, path in names if (match := _NAME.fullmatch(name))}.items()))


def latest_checkpoint(root: Path) -> Path | None:
    """Return the checkpoint of the latest step, or None."""
    return next(reversed(checkpoints_of(root).values()), None)


def remove_leftovers(root: Path) -> None:
    """Remove what a crash during a save or a removal left behind, and no other files.

    If the crash came before a new checkpoint replaced the old one of the same step, the old one gets its name back.
    """
    for path in root.iterdir():
        match = _LEFTOVER.fullmatch(path.name)
        if match is None:
            continue
        final = path.with_name(match[2])
        if match[1] == _REPLACED and path.is_dir() and not os.path.lexists(final):
            path.rename(final)
        else:
            _delete_or_warn(path)


def _delete_or_warn(path: Path) -> None:
    try:
        _delete(path)
    except OSError as error:
        log.warning("%s is left from an earlier run and cannot be removed: %s.", path, error)


def _delete(path: Path) -> None:
    """Delete a folder, a file or a link, without following the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _rotate(root: Path, limit: int | None, protected: Collection[int]) -> None:
    if limit is None or limit <= 0:
        return
    try:
        whole = [(step, path) for step, path in checkpoints_of(root).items() if (path / MANIFEST).is_file()]
    except OSError as error:
        log.warning("%s cannot be listed, so no earlier checkpoint is removed: %s.", root, error)
        return
    for step, path in whole[: max(0, len(whole) - limit)]:
        if step not in protected:
            try:
                _remove(path)
            except OSError as error:  # the new checkpoint is safe, so the run continues
                log.warning("%s is beyond save_total_limit, but cannot be removed: %s.", path, error)


def _remove(folder: Path) -> None:
    """Hide a checkpoint by a rename, then delete it, so that a crash leaves no partial one under its name."""
    _delete(_hide(folder, OLD))


def _hide(folder: Path, prefix: str) -> Path:
    """Give a checkpoint a hidden name, and return its new path."""
    hidden = folder.with_name(prefix + folder.name)
    if os.path.lexists(hidden):
        _delete(hidden)
    return folder.rename(hidden)
