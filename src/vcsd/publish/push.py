"""Send an export to the Hugging Face hub. Nothing is sent unless the user asks for it with `--push ORG/NAME`.

The repository is created private, unless `--public` is given, so that the card can be checked before it is public. An
existing repository keeps its visibility, and the user is told if that differs from what was asked for. The token comes
from `hf auth login` or HF_TOKEN.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, RunError, shown

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def require_repository(name: str) -> None:
    """Raise a ConfigError unless the hub would accept a name. Nothing is sent."""
    if not _NAME.fullmatch(name) or ".." in name or "--" in name or name.endswith((".", "-", ".git")):
        raise ConfigError(
            [f"--push {shown(name)} is not a repository of the hub. Write ORG/NAME, such as me/my-model."]
        )


def require_account(name: str) -> None:
    """Raise a ConfigError unless the hub accepts the user's token. Called before anything is exported."""
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        raise ConfigError([f"--push {name} needs the network, but HF_HUB_OFFLINE is set. Unset it."])
    if not get_token():
        raise ConfigError([f"--push {name} needs an account. Run hf auth login, or set HF_TOKEN."])
    try:
        HfApi().whoami()
    except Exception as error:  # the client raises its own, those of its HTTP library and OSError
        raise ConfigError([f"--push {name}: the hub refused the token: {_brief(error)} Run hf auth login."]) from error


def require_visibility(name: str, *, is_public: bool) -> bool:
    """Return whether the repository stays private although a public one is wanted, because it already exists.

    Raise a ConfigError if an existing one is public and that was not asked for.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        is_private = HfApi().model_info(name).private
    except RepositoryNotFoundError:
        return False
    except Exception as error:  # as above
        raise ConfigError([f"--push {name}: the hub did not answer: {_brief(error)} Try again later."]) from error
    if not is_private and not is_public:
        raise ConfigError([f"--push {name}: this repository is public already. Add --public if you mean that."])
    return bool(is_private) and is_public


def push(folder: Path, name: str, *, is_public: bool = False, message: str) -> str:
    """Create the repository if it does not exist, upload a folder as one commit, and return its address."""
    from huggingface_hub import HfApi

    hub = HfApi(library_name="vcsd")
    try:
        url = str(hub.create_repo(name, repo_type="model", private=not is_public, exist_ok=True))
        hub.upload_folder(repo_id=name, folder_path=folder, repo_type="model", commit_message=message)
    except Exception as error:  # as above
        raise RunError(
            f"{name} could not be pushed: {_brief(error)} The export is complete in {folder}; to try again: "
            f"hf upload {name} {folder}"
        ) from error
    return url


def _brief(error: Exception) -> str:
    line = " ".join(str(error).split()) or type(error).__name__
    return f"{shown(line, 200)}."
