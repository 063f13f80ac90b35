"""Export a model together with its card, with scores that were measured on these very weights."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from vcsd.checkpoint.check import read_manifest
from vcsd.checkpoint.export import export, is_rounded
from vcsd.checkpoint.rewind import good_checkpoint
from vcsd.errors import ConfigError
from vcsd.evaluation.asking.model_answerer import folder_identity
from vcsd.evaluation.scoring.scorecard import load_scorecard
from vcsd.models.hub import hub_id
from vcsd.monitor.lines import read_lines
from vcsd.publish.model_card import CARD, Exported, guard_findings, live_scores, model_card, scores_of
from vcsd.publish.scored_models import asked_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.publish.model_card import CardScore

log = logging.getLogger(__name__)


def export_with_card(  # noqa: PLR0913  one argument for each option of the command, and its bar
    run: Path,
    out: Path,
    *,
    what: str = "student",
    dtype: str = "bfloat16",
    adapter: bool = False,
    base: Path | None = None,
    scores: Sequence[Path] = (),
    name: str | None = None,
    tell: Callable[[int, int, str], None] | None = None,
) -> Path:
    """Export a model with README.md, and return its checkpoint.

    `scores` are results of `vcsd eval` of this run, this checkpoint or this export; others are refused. Scores that
    the run measured itself after the exported step are added. `name` is the model's name in the card. `tell` is passed
    to `export`.
    """
    cards = {path: load_scorecard(path / "scorecard.json" if path.is_dir() else path) for path in scores}

    def describe(checkpoint: Path, folder: Path) -> None:
        _refuse_other_weights(cards, checkpoint, folder, base, what)
        named = None if base is None else hub_id(str(base))
        exported = Exported.of(checkpoint, what=what, dtype=dtype, is_adapter=adapter, named_base=named)
        rows: list[CardScore] = [row for card in cards.values() for row in scores_of(card)]
        if what == "student":
            loses = exported.dtype == "bfloat16" and is_rounded(checkpoint)
            rows += live_scores(checkpoint.parent, exported.step, is_rounded=loses)
        text = model_card(exported, rows, name or out.resolve().name)
        (folder / CARD).write_text(text, encoding="utf-8")

    checkpoint = export(run, out, what=what, dtype=dtype, adapter=adapter, base=base, describe=describe, tell=tell)
    warn_of_collapse(checkpoint)
    return checkpoint


def warn_of_collapse(checkpoint: Path) -> None:
    """Warn if the guard found signs of collapse at a checkpoint's step, and name an earlier checkpoint without any."""
    run, step = checkpoint.parent, int(read_manifest(checkpoint)["step"])
    findings = guard_findings(run, step)
    if findings:
        _, good = good_checkpoint(run, [line for line in read_lines(run / "metrics.jsonl") if line["step"] < step])
        advice = (
            "No earlier checkpoint is without this warning."
            if good is None
            else f"The latest one without this warning is {run / f'checkpoint-{good}'}."
        )
        log.warning("%s may be from a collapsing run: %s. %s", checkpoint, "; ".join(findings), advice)


def _refuse_other_weights(
    cards: dict[Path, Scorecard], checkpoint: Path, folder: Path, base: Path | None, what: str
) -> None:
    """Raise a ConfigError if a score was measured on other weights than those of the export."""
    if not cards:
        return
    known, asked = {folder_identity(folder)}, {path: asked_weights(card) for path, card in cards.items()}
    if what == "student" and not set(asked.values()) <= known:
        with TemporaryDirectory(prefix="vcsd-student-") as whole:  # what `vcsd eval RUN` asks: merged, in bfloat16
            export(checkpoint, Path(whole) / "student", base=base)
            known.add(folder_identity(Path(whole) / "student"))
    problems = [
        f"--scores {path} was measured on other weights than the {what} of {checkpoint}. "
        f"Evaluate these: vcsd eval {checkpoint} --out FOLDER."
        for path, model in asked.items()
        if model not in known
    ]
    if problems:
        raise ConfigError(problems)
