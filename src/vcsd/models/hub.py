"""The folder of a model, local or downloaded from the hub, and the weights in it."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import dtype


_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def hub_id(path: str | None) -> str | None:
    """Return a path if it can be the id of a model on the hub, and no folder here has this name.

    >>> hub_id("Qwen/Qwen3-VL-2B-Instruct"), hub_id("/models/qwen"), hub_id(None)
    ('Qwen/Qwen3-VL-2B-Instruct', None, None)
    """
    return path if path and _HUB_ID.fullmatch(path) and not Path(path).is_dir() else None


def model_folder(path: str, *, key: str = "model.path") -> Path:
    """The folder of a model, downloaded if necessary. `key` names the setting in error messages."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise ConfigError([f"{key} = {path!r} is a file. Give the folder of the model, which holds config.json."])
    if not _HUB_ID.fullmatch(path) and "/" in path:
        raise ConfigError([f"{key} = {path!r}: there is no such folder. Give one, or a hub id such as ORG/NAME."])
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path))
    except Exception as error:  # the client can raise anything if there is no such model
        raise ConfigError([f"{key} = {path!r} is neither a folder nor a model on the hub: {error}"]) from error


def require_image_model(folder: Path) -> None:
    """Raise a ConfigError if a folder holds no model that reads images. Only its configuration is read."""
    path = folder / "config.json"
    if not path.is_file():
        found = "adapter weights without their base" if (folder / "adapter_config.json").is_file() else "no config.json"
        raise ConfigError([f"{folder} holds {found}. Give the folder of a whole model, or one from vcsd export."])
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError([f"{path} cannot be read: {error}. Download the model again."]) from error
    if isinstance(config, dict) and "vision_config" not in config:
        kind = config.get("model_type")
        raise ConfigError(
            [
                f"the model in {folder} ({kind}) has no vision tower: its config.json lacks vision_config. Choose a "
                "vision-language model, such as Qwen/Qwen3-VL-2B-Instruct."
            ]
        )


def local_folder(path: str) -> Path | None:
    """The folder of a model that is already on this machine, complete; None if it would have to be downloaded."""
    if Path(path).expanduser().is_dir():
        return Path(path).expanduser()
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(path, local_files_only=True))
    except Exception:  # the client raises various errors for what it has not downloaded
        return None
    return folder if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")) else None


@contextmanager
def _without_bars() -> Iterator[None]:
    """Hide the progress bars of transformers, which would mix with ours."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def load_model(folder: Path, dtype: dtype) -> Any:
    """Load a model from safetensors. Code in its folder is never run, and a missing weight is an error."""
    from transformers import AutoModelForImageTextToText

    try:
        with _without_bars():
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
