"""Export a checkpoint as a plain Hugging Face folder that `from_pretrained`, `AutoProcessor` and vLLM can load.

Adapters are merged into their base in float32 and rounded once, or written in PEFT's own format.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig

from vcsd.checkpoint.check import check_checkpoint, read_manifest
from vcsd.checkpoint.folder import MANIFEST, latest_checkpoint
from vcsd.checkpoint.new_folder import new_folder
from vcsd.checkpoint.saved import TensorFile, shards_of
from vcsd.checkpoint.state import load_weights
from vcsd.errors import ConfigError, did_you_mean, refuse_missing_folder
from vcsd.lora.adapter_files import merged, read_config, write_adapter, write_config
from vcsd.lora.base_record import BASE, load_base, read_record
from vcsd.models.hub import hub_id, refuse_unsafe, without_bars
from vcsd.models.processor import save_processor_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

WHAT = ("student", "teacher")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}

POLL_SECONDS = 1.0
"""How often the size of a folder that is being written is measured."""


class ExportProgress:
    """Reports the progress of an export in MiB: the checkpoint is checked, its model is read, and then written.

    `tell(done, total, title)` gets the numbers, as `WorkBar.advance` takes them.
    """

    def __init__(self, tell: Callable[[int, int, str], None] | None = None) -> None:
        self._tell = tell
        self._done = self._total = self._model = 0

    def plan(self, checkpoint: Path, model: Path) -> None:
        """Count the files to check, and the file or folder of the model twice, for reading and writing it."""
        self._model = _num_bytes(model)
        self._total = _num_bytes(checkpoint) + 2 * self._model
        self._reach(0, "checking (MiB)")

    def checked(self, num_bytes: int) -> None:
        """Count a file of the checkpoint."""
        self._reach(self._done + num_bytes, "checking (MiB)")

    def read(self, num_bytes: int) -> None:
        """Count a tensor of the model."""
        self._reach(max(self._done, self._total - 2 * self._model) + num_bytes, "reading (MiB)")

    @contextmanager
    def writing(self, folder: Path, num_bytes: int) -> Iterator[None]:
        """Watch a folder grow to a size while a model is written into it."""
        start, stop = self._total - self._model, Event()

        def watch() -> None:
            while not stop.wait(POLL_SECONDS):
                share = min(1.0, _num_bytes(folder) / max(1, num_bytes))
                self._reach(start + int(share * self._model), "writing (MiB)")

        self._reach(start, "writing (MiB)")
        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
        self._reach(self._total, "writing (MiB)")

    def _reach(self, done: int, title: str) -> None:
        self._done = min(self._total, max(self._done, done))
        if self._tell is not None:
            total = max(1, self._total // 2**20)
            self._tell(total if self._done == self._total else self._done * total // self._total, total, title)


class _CountedFile(TensorFile):
    """A file of tensors that reports the size of each one it reads."""

    def __init__(self, path: Path, count: Callable[[int], None]) -> None:
        super().__init__(path)
        self._count = count

    def __getitem__(self, name: str) -> Tensor:
        tensor = super().__getitem__(name)
        self._count(tensor.nbytes)
        return tensor


def _num_bytes(path: Path) -> int:
    """Return the size of a file, or of all files in a folder. A file that vanishes while counting counts as 0."""
    if path.is_dir():
        return sum(map(_num_bytes, path.iterdir()))
    try:
        return path.stat().st_size
    except OSError:
        return 0


def export(
    run: Path,
    out: Path,
    *,
    what: str = "student",
    dtype: str = "bfloat16",
    adapter: bool = False,
    base: Path | None = None,
    describe: Callable[[Path, Path], None] | None = None,
    tell: Callable[[int, int, str], None] | None = None,
) -> Path:
    """Write the student or teacher of a checkpoint to a new folder, and return the checkpoint.

    `run` is a checkpoint, or a run whose latest checkpoint is used. `save_pretrained` writes the model's files; the
    processor's are copied from the original model. If the run trained LoRA adapters, they are merged into their base,
    which is read from where the run read it or from `base`; with `adapter` they are written alone, in float32, and name
    their base only by a hub id, that of the run or `base`.
    `describe(checkpoint, folder)` may add files before the folder gets its name; `tell(done, total, title)` reports
    progress.
    """
    problems = [
        f"{name} = {value!r} is not a choice. {did_you_mean(value, allowed)}"
        for name, value, allowed in (("what", what, WHAT), ("dtype", dtype, tuple(DTYPES)))
        if value not in allowed
    ]
    if any((parent / MANIFEST).is_file() for parent in out.absolute().parents):
        problems.append(f"{out} is inside a checkpoint, which may be removed later. Choose another folder.")
    if problems:
        raise ConfigError(problems)
    checkpoint = _checkpoint_of(run)
    weights = checkpoint / f"{what}.safetensors"
    progress = ExportProgress(tell)
    progress.plan(checkpoint, _largest(checkpoint, weights, base, is_adapter=adapter))
    check_checkpoint(checkpoint, checked=progress.checked)
    if not weights.is_file() and not shards_of(weights).is_dir():
        raise ConfigError([f"{checkpoint} has no {what}: the student was its own teacher. Export the student."])
    is_lora = (checkpoint / BASE).is_file()
    if adapter or base is not None:
        _require_adapters(checkpoint)
    refuse_unsafe(checkpoint)
    with new_folder(out) as partial:
        if adapter:
            config = read_config(checkpoint)
            config.base_model_name_or_path = public_base(checkpoint, base)
            write_config(config, partial)
            write_adapter(_CountedFile(weights, progress.read), partial)
        else:
            file = _CountedFile(weights, progress.read)
            model = _merged(checkpoint, file, weights.stem, base) if is_lora else _whole(checkpoint, file, weights.stem)
            model.to(DTYPES[dtype])  # type: ignore[arg-type]
            num_bytes = sum(tensor.nbytes for tensor in model.parameters())
            with progress.writing(partial, num_bytes), without_bars():
                model.save_pretrained(partial)
        save_processor_files(checkpoint, partial)
        if describe is not None:
            describe(checkpoint, partial)
        give_ordinary_permissions(partial)
    return checkpoint


def public_base(run: Path, base: Path | None) -> str | None:
    """Return the hub id of the base of adapters; None for a folder, whose path would reveal names of this machine."""
    checkpoint = _checkpoint_of(run)
    _require_adapters(checkpoint)
    return hub_id(read_record(checkpoint)["path"] if base is None else str(base))


def warn_of_rounding(checkpoint: Path) -> None:
    """Warn if an export in bfloat16 differs from the weights that the run computed with."""
    if is_rounded(checkpoint):
        log.warning("Rounding to bfloat16 may lose small updates of this run; vcsd export --dtype float32 keeps them.")


def is_rounded(checkpoint: Path) -> bool:
    """Whether an export in bfloat16 differs from the weights that the run computed with.

    A run in bfloat16 rounds its weights in every pass as an export does. One in float32 does not, and neither does one
    with adapters, which are rounded before they are merged.
    """
    trainer = read_manifest(checkpoint)["identity"].get("trainer")
    is_exact = isinstance(trainer, dict) and trainer.get("bf16") is False
    return is_exact or (checkpoint / BASE).is_file()


def _require_adapters(checkpoint: Path) -> None:
    if not (checkpoint / BASE).is_file():
        raise ConfigError([f"{checkpoint} holds whole weights, not adapters. Leave out --adapter and --base."])


def _largest(checkpoint: Path, weights: Path, base: Path | None, *, is_adapter: bool) -> Path:
    """Return what takes longest to read: the weights, or the base that adapters are merged into, if it is a folder."""
    if is_adapter or not (checkpoint / BASE).is_file():
        return weights if weights.is_file() else shards_of(weights)
    try:
        folder = base or Path(read_record(checkpoint)["path"])
    except ConfigError:  # `check_checkpoint` will report it
        return weights
    return folder if folder.is_dir() else weights


def _whole(checkpoint: Path, tensors: TensorFile, what: str) -> PreTrainedModel:
    """Build the model of a checkpoint that holds all of its weights."""
    model: PreTrainedModel = AutoModelForImageTextToText.from_config(  # type: ignore[no-untyped-call]
        AutoConfig.from_pretrained(checkpoint, trust_remote_code=False), dtype=torch.float32, trust_remote_code=False
    )
    load_weights(model, tensors, what)
    if (checkpoint / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(checkpoint)
    return model


def _merged(checkpoint: Path, tensors: TensorFile, what: str, base: Path | None) -> PreTrainedModel:
    """Merge the adapters of a checkpoint into their base."""
    return merged(
        load_base(read_record(checkpoint), base),
        read_config(checkpoint),
        lambda model: load_weights(model, tensors, what),
    )


def give_ordinary_permissions(folder: Path) -> None:
    """Set permissions by the user's umask: safetensors creates files that only their owner can read."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def is_run(folder: Path) -> bool:
    """Whether a folder is a run with a checkpoint, or a checkpoint."""
    return folder.is_dir() and ((folder / MANIFEST).is_file() or latest_checkpoint(folder) is not None)


def _checkpoint_of(run: Path) -> Path:
    refuse_missing_folder(run)
    if (run / MANIFEST).is_file():
        return run
    latest = latest_checkpoint(run)
    if latest is None:
        raise ConfigError([f"{run} holds no checkpoint. Pass the folder of a run, or one of its checkpoints."])
    return latest
