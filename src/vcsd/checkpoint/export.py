"""Export a checkpoint as a plain Hugging Face folder that `from_pretrained`, `AutoProcessor` and vLLM can load."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig

from vcsd.checkpoint.check import check_checkpoint
from vcsd.checkpoint.folder import MANIFEST, latest_checkpoint
from vcsd.checkpoint.saved import TensorFile, shards_of
from vcsd.checkpoint.state import load_weights
from vcsd.errors import ConfigError, did_you_mean
from vcsd.models.processor import refuse_oversized, save_processor_files

if TYPE_CHECKING:
    from pathlib import Path

WHAT = ("student", "teacher")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def export(run: Path, out: Path, *, what: str = "student", dtype: str = "bfloat16") -> Path:
    """Write the student or teacher of a checkpoint to a new folder, and return the checkpoint.

    `run` is a checkpoint, or a run whose latest checkpoint is used. The model's files are those that `save_pretrained`
    writes, the processor's those of the original model.
    """
    problems = [
        f"{name} = {value!r} is not a choice. {did_you_mean(value, allowed)}"
        for name, value, allowed in (("what", what, WHAT), ("dtype", dtype, tuple(DTYPES)))
        if value not in allowed
    ]
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        problems.append(f"{out} is not an empty folder. Choose a new one.")
    if problems:
        raise ConfigError(problems)
    checkpoint = _checkpoint_of(run)
    check_checkpoint(checkpoint)
    weights = checkpoint / f"{what}.safetensors"
    if not weights.is_file() and not shards_of(weights).is_dir():
        raise ConfigError([f"{checkpoint} has no {what}: the student was its own teacher. Export the student."])
    refuse_oversized(checkpoint)
    model = AutoModelForImageTextToText.from_config(  # type: ignore[no-untyped-call]
        AutoConfig.from_pretrained(checkpoint, trust_remote_code=False), dtype=torch.float32, trust_remote_code=False
    )
    load_weights(model, TensorFile(weights), what)
    if (checkpoint / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(checkpoint)
    partial = out.with_name(f".partial-{out.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    model.to(DTYPES[dtype]).save_pretrained(partial)
    save_processor_files(checkpoint, partial)
    if out.exists():
        out.rmdir()
    partial.rename(out)
    return checkpoint


def _checkpoint_of(run: Path) -> Path:
    if (run / MANIFEST).is_file():
        return run
    latest = latest_checkpoint(run)
    if latest is None:
        raise ConfigError([f"{run} holds no checkpoint. Pass the folder of a run, or one of its checkpoints."])
    return latest
