"""Where a model's files are: a folder as it is, a hub id as the folder it is downloaded to."""

from __future__ import annotations

from pathlib import Path

from vcsd.errors import ConfigError


def model_folder(path: str, *, key: str = "model.path") -> Path:
    """The folder of a model. `key` is what the user calls the path in an error message."""
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path))
    except Exception as error:  # whatever the hub's client raises, the user named something that is not there
        raise ConfigError([f"{key} = {path!r} is neither a folder nor a model of the hub: {error}"]) from error
