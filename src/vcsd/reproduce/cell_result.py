"""The result of a cell, as its JSON file stores it. What the cell does decides which entries it has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from vcsd.types import JsonValue

ControlName = Literal["black", "noise", "blur", "no_image"]
CONTROLS: tuple[ControlName, ...] = ("black", "noise", "blur", "no_image")
"""The controls whose contrast is compared with the mutual information."""

ProfileName = Literal["profile", "profile_of_wrong"]
"""The contrast word by word: on right answers of the base, and on wrong ones."""


class CurvePoint(TypedDict):
    """Accuracy after some steps of training, and the number of unread answers, which old results lack."""

    step: int
    acc: float
    scores: dict[str, float]
    unresolved: NotRequired[int]


class GuardSteps(TypedDict, total=False):
    """The first steps at which the guard warned and would have stopped, and the accuracy at the stop."""

    warn: int | None
    stop: int | None
    acc_at_stop: float | None


class PmiResult(TypedDict, total=False):
    """How well the contrast under each control matches the mutual information."""

    num_tokens: int
    num_positions: int
    black: dict[str, float]
    noise: dict[str, float]
    blur: dict[str, float]
    no_image: dict[str, float]


class Diversity(TypedDict):
    """What several sampled answers to a question say: pass@k in percent, by k."""

    pass_at: dict[str, float]
    distinct: float
    """Different answers among the samples of a question."""
    entropy: float
    """Of these answers, in bits."""


class Abilities(Diversity):
    """What a model can do besides the exam, in percent."""

    num_questions: int
    right: float
    kinds: dict[str, float]
    sight: dict[str, float]
    hint: float
    text_only: float
    black: float
    black_same: float
    usual: dict[str, float]
    ece: float
    confidence_right: float | None
    confidence_wrong: float | None
    unread: NotRequired[dict[str, float]]
    """The share of unread answers, by what was asked; old results lack it."""
    answers: dict[str, list[str]]
    """The first greedy answers of each kind, for the page's pictures."""


class Measured(TypedDict, total=False):
    """What a runner returns: first the scores on the exam, then what only some runs measure.

    Results of earlier versions have no `unread` or no `unread_shares`, and few have `abilities`. `unread_shares` is the
    share of unread answers of each suite, in percent.
    """

    acc: float
    scores: dict[str, float]
    parts: dict[str, dict[str, float]]
    usual: float
    unresolved: int
    unread: list[str]
    unread_shares: dict[str, float]
    truncated: int
    num_questions: int
    profile: dict[str, float]
    profile_of_wrong: dict[str, float]
    curve: list[CurvePoint]
    dev_curve: list[CurvePoint]
    chosen_step: int
    series: dict[str, list[float | None]]
    guard: GuardSteps
    steps: int
    training_seconds: float
    cost: dict[str, float]
    pmi: PmiResult
    abilities: Abilities


class CellResult(Measured, total=False):
    """A whole result file: what was measured, which cell it is, and how it was made."""

    key: str
    variant: str
    group: str
    base: str
    seed: int
    seconds: float
    command: str
    hardware: str
    versions: dict[str, str]
    reader: int
    identity: dict[str, JsonValue]


def read_results(out: Path) -> list[CellResult]:
    """Every result in a results folder, in the order of its file name."""
    return [json.loads(path.read_bytes()) for path in sorted((out / "cells").glob("*.json"))]
