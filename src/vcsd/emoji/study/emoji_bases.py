"""Teach the bases that the list plans, one after another. Resumes, and keeps what is finished.

    python -m vcsd.emoji.study.emoji_bases docs/results/language_runs.json --language smollm2 \\
        --sprites sprites.safetensors --bases bases --only emoji-1

Language model and sprites must be the planned ones. A base is measured on a few questions of the split `dev`, to see
that it learned; the study measures it properly.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from vcsd.emoji.smollm2 import language_identity
from vcsd.emoji.sprites import load_sprites, sprites_identity
from vcsd.emoji.study.study_list import read_study
from vcsd.emoji.teach import teach, timed_say
from vcsd.errors import ConfigError, VcsdError
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.emoji.study.study_list import StudyList
    from vcsd.emoji.teach import Say

NUM_QUESTIONS_OF_A_BASE = 64
"""Questions of each suite on which a base is measured when it is finished."""


def teach_planned(
    listed: StudyList, language: Path, sprites: Path, bases: Path, *, only: Sequence[str], device: str, say: Say
) -> None:
    """Teach planned bases in the order of `only`. Raise a ConfigError before anything is made of other things."""
    if unknown := [name for name in only if name not in listed.bases]:
        raise ConfigError([f"{unknown[0]!r} is not a planned base. They are: {', '.join(listed.bases)}."])
    found = {"language": language_identity(language), "sprites": sprites_identity(load_sprites(sprites))}
    planned = {"language": listed.language, "sprites": listed.sprites}
    if other := [f"{name} {found[name]}, not {planned[name]}" for name in found if found[name] != planned[name]]:
        raise ConfigError([f"the list plans other things: this is {'; '.join(other)}. Convert and draw them again."])
    for name in only:
        say(f"{name} begins")
        teach(
            listed.bases[name],
            language,
            sprites,
            bases / name,
            device=device,
            say=say,
            num_dev=min(NUM_QUESTIONS_OF_A_BASE, listed.num_questions),
        )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.study.emoji_bases", description="Teach planned bases.")
    parser.add_argument("list", type=Path)
    for name in ("--language", "--sprites", "--bases"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="Names of bases, in order. By default all.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    say = timed_say()
    try:
        torch.set_float32_matmul_precision("high")
        listed = read_study(options.list)
        only = options.only or list(listed.bases)
        paths = (options.language, options.sprites, options.bases)
        teach_planned(listed, *paths, only=only, device=options.device, say=say)
    except VcsdError as error:
        sys.stderr.write(visible(f"error: {type(error).__name__}: {error}\n"))
        sys.exit(2)


if __name__ == "__main__":
    main()
