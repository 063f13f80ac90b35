"""Where the base of a checkpoint's adapters is, and a hash to recognise it. A checkpoint does not hold the base."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import torch

from vcsd.errors import ConfigError
from vcsd.models.family import base_model
from vcsd.models.freeze import is_adapter
from vcsd.models.hub import hub_id, load_model, model_folder
from vcsd.teacher import weights_hash

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

BASE = "base.json"
"""The record's file in a checkpoint."""


class BaseRecord(TypedDict):
    """The base's folder or hub id, the type in which it was loaded, and the hash of its weights in that type."""

    path: str
    dtype: str
    weights: str


def base_record(model: nn.Module) -> BaseRecord:
    """Describe the base of a model with adapters."""
    base = base_model(model)
    path = str(getattr(base, "name_or_path", "") or "")
    folder = Path(path)
    return {
        "path": str(folder.resolve()) if path and folder.is_dir() else path,
        "dtype": str(base.dtype).removeprefix("torch."),
        "weights": base_hash(model),
    }


def read_record(folder: Path) -> BaseRecord:
    """Read the record of a checkpoint. Raise a ConfigError if it is damaged."""
    path = folder / BASE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        is_whole = all(isinstance(record[name], str) for name in BaseRecord.__annotations__)
        is_whole = is_whole and isinstance(getattr(torch, record["dtype"], None), torch.dtype)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise ConfigError([f"{path} does not name a base model. Use an earlier checkpoint."])
    return cast("BaseRecord", record)


def base_hash(model: nn.Module) -> str:
    """Hash the weights of the base, with or without adapters around it."""
    named = base_model(model).named_parameters()
    return weights_hash((name.replace(".base_layer.", "."), p) for name, p in named if not is_adapter(name))


def load_base(record: BaseRecord, folder: Path | None = None) -> PreTrainedModel:
    """Load the recorded base in float32, from `folder` if given. Raise a ConfigError if it is another model.

    A hub id given as `folder` is ignored while the recorded folder exists.
    """
    is_named_only = folder is not None and hub_id(str(folder)) is not None and Path(record["path"]).is_dir()
    path = record["path"] if folder is None or is_named_only else str(folder)
    if not path:
        raise ConfigError(["the checkpoint does not record the folder of its base model. Pass it as --base FOLDER."])
    base: Any = load_model(model_folder(path, key="--base"), getattr(torch, record["dtype"]))
    if base_hash(base) != record["weights"]:
        raise ConfigError(
            [f"the model in {path} is not the one the adapters were trained on. Pass the right one as --base FOLDER."]
        )
    model: PreTrainedModel = base.float()
    return model
