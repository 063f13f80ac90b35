"""Report an unexpected error: one sentence on the terminal, and the traceback in a file."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from contextlib import suppress

from vcsd import __version__
from vcsd.errors import ConfigError
from vcsd.evaluation.asking.address import Address, Secrets
from vcsd.terminal import say
from vcsd.visible import visible

EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h: an internal error."""

_KEYS = (
    *("VCSD_API_KEY", "VCSD_JUDGE_KEY", "VLLM_API_KEY"),
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY"),
)
_KEY_ENDINGS = ("token", "key", "password")
"""Endings of the names of settings that hold keys, such as trainer.hub_token."""

_MAX_SHOWN = 300


def report_unforeseen(error: Exception) -> None:
    """Save the traceback and say where it is. If it cannot be saved, print it."""
    secrets = _secrets()
    lines = "".join(traceback.format_exception(error))
    words = " ".join(sys.argv)
    about = f"vcsd {__version__}, Python {platform.python_version()}, {platform.platform()}\n{words}\n\n"
    text = visible(secrets.mask(about + lines))
    try:
        number, path = tempfile.mkstemp(prefix="vcsd-error-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        where = f"The traceback is in {path}; please report it."
    except OSError as problem:
        sys.stderr.write(text)
        where = f"The traceback is above, as it could not be saved ({problem}); please report it."
    summary = " ".join(secrets.mask(traceback.format_exception_only(error)[-1]).split()).rstrip(".: ")
    summary = summary if len(summary) <= _MAX_SHOWN else summary[:_MAX_SHOWN] + " ..."
    say(f"error: vcsd failed unexpectedly ({summary}). {where}", to_stderr=True)


def _secrets() -> Secrets:
    """Return the keys in the environment and, on the command line, those in settings and in addresses."""
    keys = [os.environ.get(name, "").strip() for name in _KEYS]
    for word in sys.argv:
        name, _, value = word.partition("=")
        keys += [value] if name.endswith(_KEY_ENDINGS) else []
        for address in (word, value):
            with suppress(ConfigError):
                keys += Address.parse(address).keys
    return Secrets(keys)
