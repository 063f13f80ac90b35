"""Export a checkpoint as a plain Hugging Face folder that `from_pretrained`, `AutoProcessor` and vLLM can load.

Adapters are merged into their base in float32 and rounded once, or written in PEFT's own format.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig

from vcsd.checkpoint.check import check_checkpoint
from vcsd.checkpoint.folder import MANIFEST, latest_checkpoint
from vcsd.checkpoint.new_folder import new_folder
from vcsd.checkpoint.saved import TensorFile, shards_of
from vcsd.checkpoint.state import load_weights
from vcsd.errors import ConfigError, did_you_mean
from vcsd.lora.adapter_files import merged, read_config, write_adapter, write_config
from vcsd.lora.base_record import BASE, load_base, read_record
from vcsd.models.processor import refuse_oversized, save_processor_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from transformers import PreTrainedModel

WHAT = ("student", "teacher")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def export(
    run: Path,
    out: Path,
    *,
    what: str = "student",
    dtype: str = "bfloat16",
    adapter: bool = False,
    base: Path | None = None,
    describe: Callable[[Path, Path], None] | None = None,
) -> Path:
    """Write the student or teacher of a checkpoint to a new folder, and return the checkpoint.

    `run` is a checkpoint, or a run whose latest checkpoint is used. The model's files are those that `save_pretrained`
    writes, the processor's those of the original model. If the run trained LoRA adapters, they are merged into their
    base, which is read from where the run read it or from `base`; with `adapter` they are written alone, in float32.
    `describe(checkpoint, folder)` may add files before the folder gets its name.
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
    check_checkpoint(checkpoint)
    weights = checkpoint / f"{what}.safetensors"
    if not weights.is_file() and not shards_of(weights).is_dir():
        raise ConfigError([f"{checkpoint} has no {what}: the student was its own teacher. Export the student."])
    is_lora = (checkpoint / BASE).is_file()
    if (adapter or base is not None) and not is_lora:
        raise ConfigError([f"{checkpoint} holds whole weights, not adapters. Leave out --adapter and --base."])
    refuse_oversized(checkpoint)
    with new_folder(out) as partial:
        if adapter:
            write_config(read_config(checkpoint), partial)
            write_adapter(TensorFile(weights), partial)
        else:
            model = _merged(checkpoint, weights, base) if is_lora else _whole(checkpoint, weights)
            model.to(DTYPES[dtype]).save_pretrained(partial)  # type: ignore[arg-type]
        save_processor_files(checkpoint, partial)
        if describe is not None:
            describe(checkpoint, partial)
        give_ordinary_permissions(partial)
    return checkpoint


def _whole(checkpoint: Path, weights: Path) -> PreTrainedModel:
    """Build the model of a checkpoint that holds all of its weights."""
    model: PreTrainedModel = AutoModelForImageTextToText.from_config(  # type: ignore[no-untyped-call]
        AutoConfig.from_pretrained(checkpoint, trust_remote_code=False), dtype=torch.float32, trust_remote_code=False
    )
    load_weights(model, TensorFile(weights), weights.stem)
    if (checkpoint / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(checkpoint)
    return model


def _merged(checkpoint: Path, weights: Path, base: Path | None) -> PreTrainedModel:
    """Merge the adapters of a checkpoint into their base."""
    return merged(
        load_base(read_record(checkpoint), base),
        read_config(checkpoint),
        lambda model: load_weights(model, TensorFile(weights), weights.stem),
    )


def give_ordinary_permissions(folder: Path) -> None:
    """Let others read what the user's umask lets them read: safetensors creates its files for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def is_run(folder: Path) -> bool:
    """Whether a folder is a run with a checkpoint, or a checkpoint."""
    return folder.is_dir() and ((folder / MANIFEST).is_file() or latest_checkpoint(folder) is not None)


def _checkpoint_of(run: Path) -> Path:
    if (run / MANIFEST).is_file():
        return run
    latest = latest_checkpoint(run)
    if latest is None:
        raise ConfigError([f"{run} holds no checkpoint. Pass the folder of a run, or one of its checkpoints."])
    return latest
