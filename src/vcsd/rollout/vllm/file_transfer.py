"""Weights by way of files in memory: for a vLLM server on the trainer's machine.

The trainer writes safetensors files into a folder of its own under /dev/shm, one at a time, tells the server the name
of each, and removes it. The server's worker opens no other files: the folder must be directly in one of `ROOTS`, belong
to the same user, and not be a link. With `sends_changes`, the files hold only what changed since the last sync.

A trainer holds a lock in its folder until it ends. A folder whose lock is free belongs to a trainer that was killed,
and other trainers remove it at their next sync. While a trainer makes its folder and has not locked it yet, it shares a
second lock with others that do the same. Whoever holds that lock exclusively knows that unfinished folders are left
over.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from vcsd.errors import RunError
from vcsd.rollout.vllm.weight_delta import DeltaReceiver, DeltaSender, WeightPatch, make_patch

try:
    import fcntl
except ImportError:  # Windows has no flock
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TextIO

    from torch import Tensor

    from vcsd.rollout.vllm.weight_sync import Named

log = logging.getLogger(__name__)

ROOTS = ("/dev/shm", tempfile.gettempdir())
PREFIX = "vcsd-weights-"
LOCK = "owner.lock"
_UNFINISHED = "new-"
_FILE = re.compile(r"[0-9]+\.safetensors")
_FILE_BYTES = 2**28
"""A file holds tensors up to this size together, or one larger tensor."""


class FileSender:
    """Writes weights, file by file. `close` removes the folder."""

    def __init__(self, *, sends_changes: bool = False) -> None:
        root = next(root for root in ROOTS if Path(root).is_dir() and os.access(root, os.W_OK))
        remove_left_behind(Path(root))
        self.folder, self._lock = _locked_folder(Path(root))
        self._delta = DeltaSender() if sends_changes else None
        self._number = 0
        self.num_bytes = 0
        """Bytes written for the last sync."""

    @property
    def init_info(self) -> dict[str, object]:
        """The settings that the worker gets once."""
        return {"folder": str(self.folder), "keeps_copy": self._delta is not None}

    @property
    def sends_changes(self) -> bool:
        """Whether only changes are sent after the first sync."""
        return self._delta is not None

    def forget(self) -> None:
        """Send everything next time."""
        if self._delta is not None:
            self._delta.forget()

    def updates(self, weights: Iterable[Named]) -> Iterator[dict[str, object]]:
        """Write files, and yield the message to the worker for each. A file is removed when the next is requested."""
        self.num_bytes = 0
        remove_left_behind(self.folder.parent)
        waiting: list[WeightPatch] = []
        for patch in self._patches(weights):
            if waiting and sum(part.num_bytes for part in waiting) + patch.num_bytes > _FILE_BYTES:
                yield from self._written(waiting)
                waiting = []
            waiting.append(patch)
        if waiting:
            yield from self._written(waiting)

    def _patches(self, weights: Iterable[Named]) -> Iterator[WeightPatch]:
        if self._delta is not None:
            return self._delta.patches(weights)
        return (make_patch(name, tensor.detach(), None) for name, tensor in weights)

    def _written(self, patches: list[WeightPatch]) -> Iterator[dict[str, object]]:
        self._number += 1
        path = self.folder / f"{self._number}.safetensors"
        tensors: dict[str, Tensor] = {}
        for place, patch in enumerate(patches):
            tensors[f"{place}.values"] = _on_host(patch.values)
            if patch.places is not None:
                tensors[f"{place}.places"] = _on_host(patch.places)
        try:
            save_file(tensors, path)
        except (OSError, SafetensorError) as error:  # safetensors reports a full disk with an error of its own
            path.unlink(missing_ok=True)
            raise RunError(
                f"the weights cannot be written to {self.folder}: {error}. Make room there (in a container, start it "
                "with a larger --shm-size), or set rollout.engine: vllm."
            ) from error
        self.num_bytes += sum(patch.num_bytes for patch in patches)
        try:
            yield {
                "file": path.name,
                "names": [patch.name for patch in patches],
                "forms": [patch.form for patch in patches],
                "checksums": [patch.checksum for patch in patches],
            }
        finally:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def _locked_folder(root: Path) -> tuple[Path, TextIO]:
    """Make a folder with a locked file in it. It is renamed once it is locked, so that no trainer removes it."""
    with _makers_lock(root, is_maker=True):
        unnamed = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{PREFIX}", dir=root))
        lock = (unnamed / LOCK).open("w")
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        return unnamed.rename(unnamed.with_name(unnamed.name.removeprefix(_UNFINISHED))), lock


@contextmanager
def _makers_lock(root: Path, *, is_maker: bool) -> Iterator[bool]:
    """Hold the lock on making folders, shared by makers, else exclusively. Yields whether it could be acquired."""
    path = root / f".{PREFIX}{os.getuid()}.lock" if fcntl is not None else root
    with ExitStack() as stack:
        is_locked = False
        with suppress(OSError):  # another user's file of that name, or somebody makes a folder right now
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH if is_maker else fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
        yield is_locked


def remove_left_behind(root: Path) -> list[Path]:
    """Remove the weights of this user's trainers that were killed, and return the folders."""
    removed = [folder for folder in root.glob(f"{PREFIX}*") if _is_removed(folder, is_unfinished=False)]
    unfinished = f"{_UNFINISHED}{PREFIX}*"
    if any(root.glob(unfinished)):
        with _makers_lock(root, is_maker=False) as is_locked:
            removed += [path for path in root.glob(unfinished) if is_locked and _is_removed(path, is_unfinished=True)]
    if removed:
        log.warning("Removed the weights of %d trainers that were killed, from %s.", len(removed), root)
    return removed


def _is_removed(folder: Path, *, is_unfinished: bool) -> bool:
    """Remove a folder if it is this user's and its maker is gone. Return whether it was."""
    with suppress(OSError):  # in use, without a lock, or removed by another trainer meanwhile
        if fcntl is None or folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        if is_unfinished and not (folder / LOCK).exists():  # its maker was killed before it could lock anything
            shutil.rmtree(folder)
            return True
        with (folder / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        return True
    return False


class FileReceiver:
    """The worker's side: reads the files of one sender, and refuses those that are not its own."""

    def __init__(self, folder: str, *, keeps_copy: bool) -> None:
        self._folder = _checked_folder(Path(folder))
        self._receiver = DeltaReceiver()
        self._keeps_copy = keeps_copy

    def read(self, update: Mapping[str, Any]) -> Iterator[Named]:
        """Yield the weights of one file, whole and checked."""
        if not _FILE.fullmatch(update["file"]):
            raise ValueError(f"{update['file']!r} is not a file of weights.")
        with safe_open(self._folder / update["file"], framework="pt") as tensors:
            known = set(tensors.keys())
            for place, name in enumerate(update["names"]):
                places = tensors.get_tensor(f"{place}.places") if f"{place}.places" in known else None
                values = tensors.get_tensor(f"{place}.values")
                if self._keeps_copy:  # the tensor maps the file, whose memory stays in use as long as the tensor
                    values = values.clone()
                patch = WeightPatch(name, update["forms"][place], values, places, update["checksums"][place])
                yield self._receiver.apply(patch)
                if not self._keeps_copy:
                    self._receiver = DeltaReceiver()


def _on_host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True).contiguous()  # tied or shared memory cannot be saved


def _checked_folder(folder: Path) -> Path:
    """Return the folder of a sender. Raise a ValueError for any other path."""
    is_known = str(folder.parent) in ROOTS and folder.name.startswith(PREFIX) and not folder.is_symlink()
    if not is_known or not folder.is_dir() or folder.stat().st_uid != os.getuid():
        raise ValueError("this folder does not hold a trainer's weights.")
    return folder
