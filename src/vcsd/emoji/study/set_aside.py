"""Results of bases whose weights were lost, with their machine, before all their runs were made.

A base that is taught again on a GPU has other weights, and results of two bases are never mixed. So the results of a
lost base are set aside unread, in OUT/lost/1, OUT/lost/2 and so on, and the base starts over. If it is the base that
settles, all other bases start over too: their runs used what it had settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.emoji.teach import CARD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vcsd.emoji.study.study_list import StudyList

LOST = "lost"


def lost_bases(listed: StudyList, bases: Path, out: Path) -> list[str]:
    """Return the bases that must start over: some of their runs are made, not all, and their weights are not here."""
    is_made = {run: (out / "cells" / f"{run.name}.json").is_file() for run in listed.runs}
    begun = [name for name in listed.bases if any(made for run, made in is_made.items() if run.base == name)]
    unfinished = {run.base for run, made in is_made.items() if not made}
    lost = [name for name in begun if name in unfinished and not (bases / name / CARD).is_file()]
    settling = {run.base for run in listed.runs if run.stage == "dev"}
    return begun if settling & set(lost) else lost


def set_aside(listed: StudyList, lost: Sequence[str], out: Path) -> Path:
    """Move all results of bases to a folder of their own, and return it."""
    number = 1 + sum(1 for _ in (out / LOST).glob("*"))
    folder = out / LOST / str(number)
    names = [run.name for run in listed.runs if run.base in lost]
    for part in [*(f"cells/{name}.json" for name in names), *(f"cards/{name}.json" for name in lost)]:
        _move(out / part, folder / part)
    for name in names:
        _move(out / "runs" / name, folder / "runs" / name)
    return folder


def num_set_aside(out: Path) -> int:
    """The number of results that were set aside."""
    return sum(1 for _ in (out / LOST).glob("*/cells/*.json"))


def _move(path: Path, to: Path) -> None:
    if path.exists():
        to.parent.mkdir(parents=True, exist_ok=True)
        path.rename(to)
