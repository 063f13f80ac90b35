"""Teach the bases that the list plans, one after another. Resumes, and keeps what is finished.

    python -m vcsd.emoji.study.emoji_bases docs/results/language_runs.json --language smollm2 \\
        --sprites sprites.safetensors --bases bases --only emoji-1

Language model and sprites must be the planned ones. A base is measured on a few questions of the split `dev`, to see
that it learned; the study measures it properly. On SIGTERM the state is saved first. The exit status is 2 if the list
or what the bases are made of is refused, 4 if another process teaches the base, and 1 if teaching fails.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from vcsd.checkpoint.lock import InUseError
from vcsd.emoji.smollm2 import language_identity, tokenizer_identity
from vcsd.emoji.sprites import load_sprites, sprites_identity
from vcsd.emoji.study.study_list import read_study
from vcsd.emoji.teach import teach, timed_say
from vcsd.errors import ConfigError, VcsdError
from vcsd.rollout.vllm.serve import end_with_parent
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vcsd.emoji.study.study_list import StudyList
    from vcsd.emoji.teach import Say

NUM_QUESTIONS_OF_A_BASE = 64
"""Questions of each suite on which a base is measured when it is finished."""

IN_USE = 4
"""The exit status if another process teaches the base."""

_GRACE_SECONDS = 30


def check_planned(listed: StudyList, language: Path, sprites: Path) -> None:
    """Raise a ConfigError if language model, tokenizer or sprites are not the planned ones."""
    found = {
        "language": language_identity(language),
        "tokenizer": tokenizer_identity(language),
        "sprites": sprites_identity(load_sprites(sprites)),
    }
    planned = {"language": listed.language, "tokenizer": listed.tokenizer, "sprites": listed.sprites}
    if other := [f"{name} {found[name]}, not {planned[name]}" for name in found if found[name] != planned[name]]:
        raise ConfigError([f"the list plans other things: this is {'; '.join(other)}. Convert and draw them again."])


def teach_planned(
    listed: StudyList,
    language: Path,
    sprites: Path,
    bases: Path,
    *,
    only: Sequence[str],
    device: str,
    say: Say,
    must_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Teach planned bases in the order of `only`. Raise a ConfigError before anything is made of other things.

    Return False if `must_stop` ended it.
    """
    if unknown := [name for name in only if name not in listed.bases]:
        raise ConfigError([f"{unknown[0]!r} is not a planned base. They are: {', '.join(listed.bases)}."])
    check_planned(listed, language, sprites)
    for name in only:
        say(f"{name} begins")
        is_done = teach(
            listed.bases[name],
            language,
            sprites,
            bases / name,
            device=device,
            say=say,
            num_dev=min(NUM_QUESTIONS_OF_A_BASE, listed.num_questions),
            must_stop=must_stop,
        )
        if not is_done:
            return False
    return True


class StopSignal:
    """Ends the process when it is asked to (SIGTERM), after the state is saved if there is any.

    Before the first step there is nothing to save, and it ends at once. Later the step that is being made is finished
    and saved; a process that cannot do this in `_GRACE_SECONDS` ends all the same.
    """

    def __init__(self) -> None:
        self._is_asked = self._has_come = False
        signal.signal(signal.SIGTERM, self._note)

    def has_come(self) -> bool:
        """Whether the process must stop. Asked after every step."""
        self._is_asked = True
        return self._has_come

    def _note(self, number: int, frame: object) -> None:
        if not self._is_asked:
            os._exit(128 + number)
        self._has_come = True
        signal.alarm(_GRACE_SECONDS)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.study.emoji_bases", description="Teach planned bases.")
    parser.add_argument("list", type=Path)
    for name in ("--language", "--sprites", "--bases"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="Names of bases, in order. By default all.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--end-with-parent", action="store_true", help="End when the process that started it ends.")
    options = parser.parse_args()
    if options.end_with_parent:
        end_with_parent()
    say, signals = timed_say(), StopSignal()
    try:
        torch.set_float32_matmul_precision("high")
        listed = read_study(options.list)
        only = options.only or list(listed.bases)
        paths = (options.language, options.sprites, options.bases)
        is_done = teach_planned(listed, *paths, only=only, device=options.device, say=say, must_stop=signals.has_come)
        sys.exit(0 if is_done else 128 + signal.SIGTERM)
    except VcsdError as error:
        sys.stderr.write(visible(f"error: {type(error).__name__}: {error}\n"))
        sys.exit(IN_USE if isinstance(error, InUseError) else 2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
