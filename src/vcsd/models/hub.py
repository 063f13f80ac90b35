"""The folder of a model, local or downloaded from the hub, and the weights in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from torch import dtype


def model_folder(path: str, *, key: str = "model.path") -> Path:
    """The folder of a model, downloaded if necessary. `key` names the setting in error messages."""
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path))
    except Exception as error:  # the client can raise anything if there is no such model
        raise ConfigError([f"{key} = {path!r} is neither a folder nor a model on the hub: {error}"]) from error


def load_model(folder: Path, dtype: dtype) -> Any:
    """Load a model from safetensors. Code in its folder is never run, and a missing weight is an error."""
    from transformers import AutoModelForImageTextToText

    try:
        loaded: Any = AutoModelForImageTextToText.from_pretrained(
            folder, dtype=dtype, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
    except Exception as error:  # transformers and safetensors raise anything for a damaged folder
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise ConfigError(
            [f"the model in {folder} cannot be loaded: {reason}. For a run, pass the folder from vcsd export."]
        ) from error
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise ConfigError(
            [
                f"the files in {folder} lack {len(missing)} weights of the model, such as {missing[0]}. "
                "Download or export the model again."
            ]
        )
    return model
