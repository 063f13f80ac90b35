"""Checks that a checkpoint is whole, by the size and hash of each file in its manifest, and of this run."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

from vcsd.checkpoint.folder import (
    FORMAT,
    MANIFEST,
    SHARDED_FORMAT,
    FileEntry,
    Manifest,
    checkpoints_of,
    latest_checkpoint,
)
from vcsd.checkpoint.saved import SUFFIX, TensorFile
from vcsd.checkpoint.tensors import sha256
from vcsd.errors import ConfigError, shown
from vcsd.parallel.ranks import gathered, num_ranks, on_every, on_first, this_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

DAMAGED, SET_ASIDE = "damaged", "set-aside"
"""Prefixes of the names of checkpoints that no run resumes from: damaged ones, and whole ones that were set aside."""


class DamagedCheckpointError(ConfigError):
    """A checkpoint that is not as it was written. An earlier one may be whole."""

    def __init__(self, folder: Path, damage: str) -> None:
        self.folder, self.damage = folder, damage
        super().__init__([f"{folder} is damaged: {damage}. Remove the folder to resume from the checkpoint before it."])


HASHED = {
    "data": "the data",
    "model": "the model, or which of its parts are frozen,",
    "content.data": "the rows of the data",
    "content.images": "the image files",
    "content.weights": "the weights that the run starts from",
    "content.tokenizer": "the tokenizer",
    "content.chat_template": "the chat template",
    "content.image_size": "the image sizes",
}
"""What is hashed in the identity and content of a run. Errors name it instead of showing two hashes."""


def check_checkpoint(
    folder: Path,
    identity: Mapping[str, object] | None = None,
    *,
    needs: Collection[str] = (),
    checked: Callable[[int], None] | None = None,
) -> Manifest:
    """Return the manifest of a checkpoint. Raise a ConfigError if it is damaged or its run has another identity.

    `needs` names the files that it must have. Collective: each rank reads a share of the files. `checked` is called
    with the size of each file after it was read.
    """
    manifest = on_every(lambda: read_manifest(folder))
    sharded = {f"{PurePath(name).parent}{SUFFIX}" for name in manifest["files"]}
    damaged = [f"{name} is not in its manifest" for name in needs if name not in {*manifest["files"], *sharded}]
    share = list(manifest["files"].items())[this_rank() :: num_ranks()]
    own_damaged = []
    for name, entry in share:
        if problem := _damage(folder / name, entry):
            own_damaged.append(f"{name} {problem}")
        if checked is not None:
            checked(entry["bytes"])
    damaged += [line for lines in gathered(own_damaged) for line in lines]
    damaged += [] if damaged else on_first(lambda: _holes(folder, sorted(sharded.intersection(needs))))
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


def latest_seen_by_first(root: Path) -> Path | None:
    """Return the latest checkpoint that rank 0 sees: on a network file system, others may see a new one later."""
    latest = on_first(lambda: None if (folder := latest_checkpoint(root)) is None else folder.name)
    return None if latest is None else root / latest


def latest_whole(root: Path, check: Callable[[Path], Manifest]) -> tuple[Path | None, list[DamagedCheckpointError]]:
    """Return the latest checkpoint that is whole, and the damage of the later ones. `check` is `check_checkpoint`.

    A checkpoint of another run stops the search with an error: earlier ones would be of that run, too.
    Rank 0 lists the checkpoints.
    """
    damaged: list[DamagedCheckpointError] = []
    names = on_first(lambda: [(step, folder.name) for step, folder in checkpoints_of(root).items()])
    for step, name in reversed(names):
        folder = root / name
        try:
            manifest = check(folder)
            if manifest["step"] == step:
                return folder, damaged
            damaged.append(DamagedCheckpointError(folder, f"its manifest is that of step {manifest['step']}"))
        except DamagedCheckpointError as error:
            damaged.append(error)
    return None, damaged


def move_aside(folder: Path) -> Path:
    """Rename a damaged checkpoint so that no run resumes from it, and return its new path. All ranks call it."""
    return folder.with_name(on_first(lambda: moved_aside(folder, DAMAGED)))


def moved_aside(folder: Path, why: str) -> str:
    """Rename a checkpoint so that no run resumes from it, and return its new name. `why` begins the name."""
    names = (f"{why}-{folder.name}{'' if number == 1 else f'-{number}'}" for number in itertools.count(1))
    aside = next(path for name in names if not os.path.lexists(path := folder.with_name(name)))
    try:
        folder.rename(aside)
    except OSError as error:
        raise ConfigError([f"{folder} cannot be moved aside ({why}): {error}. Move it away."]) from error
    return aside.name


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint, without checking the files that it lists."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(folder, f"its manifest cannot be read: {error}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise DamagedCheckpointError(folder, "its manifest has no format number")
    if manifest["format"] not in (FORMAT, SHARDED_FORMAT):
        raise ConfigError(
            [
                f"{folder} has format {shown(manifest['format'])}; this version reads {FORMAT} and {SHARDED_FORMAT}. "
                "Use the version of vcsd that wrote it, or choose another folder."
            ]
        )
    kinds = {"step": int, "identity": dict, "files": dict}
    lacking = [key for key, kind in kinds.items() if not isinstance(manifest.get(key), kind)]
    lacking += [] if lacking else [name for name, entry in manifest["files"].items() if not _is_entry(entry)]
    if lacking:
        raise DamagedCheckpointError(folder, f"its manifest lacks {', '.join(lacking)}")
    if outside := [name for name in manifest["files"] if not _is_inside(name)]:
        raise DamagedCheckpointError(folder, f"its manifest lists {shown(outside[0])}, which is outside of it")
    return cast("Manifest", manifest)


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and isinstance(entry.get("sha256"), str)


def _is_inside(name: str) -> bool:
    """Whether a file of a manifest lies in the checkpoint's folder."""
    path = PurePath(name)
    return not path.is_absolute() and ".." not in path.parts


def _damage(path: Path, entry: FileEntry) -> str | None:
    try:
        if not path.is_file():
            return "is missing"
        if path.stat().st_size != entry["bytes"]:
            return f"has {path.stat().st_size} bytes instead of {entry['bytes']}"
        return None if sha256(path) == entry["sha256"] else "has a different hash"
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        return f"cannot be read: {error}"


def _holes(folder: Path, names: Collection[str]) -> list[str]:
    """Describe files whose listed shards do not make whole tensors: the manifest lacks those of a rank."""
    holes = []
    for name in names:
        try:
            TensorFile(folder / name)
        except ConfigError as error:
            holes.append(f"{name}: {error.__cause__}")
    return holes


def _differences(before: object, now: object, path: str = "") -> list[str]:
    """Describe what changed between two trees of plain values."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted({*before, *now})
        return [
            line for key in keys for line in _differences(before.get(key), now.get(key), f"{path}.{key}".lstrip("."))
        ]
    if before == now:
        return []
    is_hash = path in HASHED and isinstance(before, str) and isinstance(now, str)
    return [f"{HASHED[path]} changed" if is_hash else f"{path} was {before!r} and is now {now!r}"]
