"""`vcsd score`: scores the answers of a finished evaluation again. Heavy imports wait until the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcsd.cli import eval_options as options  # noqa: TC001  typer reads them when the command is built
from vcsd.cli.eval_command import marking_of, show_scores

Run = Annotated[Path, typer.Argument(help="The folder of an evaluation, with predictions.jsonl and asked.jsonl.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; default: RUN/scored-MODE.")]


def score(
    run: Run,
    mode: options.Mode = "final",
    rules: options.Rules = "2026-06",
    judge: options.Judge = None,
    judge_server: options.JudgeServer = None,
    judge_preset: options.JudgePreset = "strict",
    allow_failed: options.AllowFailed = False,
    out: Out = None,
) -> None:
    """Score the answers of a finished evaluation again, without a model: in another mode, or by another judge.

    Example: `vcsd score runs/eval/base --mode exact`

    With a judge: `vcsd score runs/eval/base --mode judge --judge MODEL --judge-server http://localhost:8001/v1`
    """
    from vcsd.evaluation.rescore import rescore

    marking = marking_of(mode, rules, judge, judge_server, judge_preset, run)
    preset = "" if marking.judge is None else f"-{marking.judge.preset.name}"
    folder = run / f"scored-{mode}{preset}" if out is None else out
    show_scores(rescore(run, marking, folder, allow_failed=allow_failed), folder)
