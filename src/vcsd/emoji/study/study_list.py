"""The list of planned runs: bases, pinned inputs, settings to choose from, and final runs. Also reads its results.

A result belongs to a list by the hash of the list. Runs with other recipe values than planned have another hash, so
that a smoke test can never count as a planned run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from vcsd.emoji.captions import Shares
from vcsd.emoji.seeing_model import TowerSize
from vcsd.emoji.study.settle import RunSetting, settle
from vcsd.emoji.teach import TeachingPlan
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vcsd.emoji.study.settle import Scores, Settled

StudyStage = Literal["dev", "test"]

VARIANTS: Mapping[str, tuple[str, ...] | None] = {
    "base": None,
    "contrast decoding": None,
    "VCSD": ("method=vcsd",),
    "alpha 0": ("method=no_contrast",),
    "sharpened 2": ("method=no_contrast", "method.anchor=2"),
    "OPSD": ("method=opsd",),
}
"""Changes to the recipe; None for what needs no training. OPSD keeps its own beta, 0."""


@dataclass(frozen=True)
class EmojiRun:
    """One planned run. A run of the stage `test` that trains has no setting before one is settled."""

    stage: StudyStage
    variant: str
    base: str
    seed: int
    setting: RunSetting | None = None

    @property
    def name(self) -> str:
        """The name of its result."""
        parts = [self.stage, self.base, self.variant.replace(" ", "_")]
        if self.setting is not None:
            parts += [f"lr_{self.setting.rate}", f"beta_{self.setting.beta}"]
        return "-".join(parts)

    @property
    def trains(self) -> bool:
        """Whether it trains."""
        return VARIANTS[self.variant] is not None


@dataclass(frozen=True)
class StudyList:
    """The planned bases, hashes of what they are made of, the runs in order, and the numbers of questions and prompts.

    `steps` are the lengths to choose from. A run on `dev` has the largest, and is measured at each.
    """

    bases: Mapping[str, TeachingPlan]
    language: str
    tokenizer: str
    sprites: str
    runs: tuple[EmojiRun, ...]
    steps: tuple[int, ...]
    num_questions: int
    num_prompts: int
    digest: str

    def read_result(self, path: Path) -> dict[str, Any] | None:
        """Read a result; None if there is none. Raise an OtherListError if it belongs to another list."""
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ConfigError([f"{path} cannot be read: {error}. Remove it to repeat the run."]) from error
        if not isinstance(result, dict) or result.get("list") != self.digest:
            raise OtherListError([f"{path} is of another list. Choose another --out."])
        return result

    def settled(self, results: Mapping[EmojiRun, dict[str, Any]]) -> dict[str, Settled] | None:
        """What the runs on `dev` settle for each method that has some; None before all of them are finished."""
        base, tried = tried_on_dev(results)
        if base is None or any(run.stage == "dev" and run not in results for run in self.runs):
            return None
        return {variant: settle(base, runs) for variant, runs in tried.items()}


class OtherListError(ConfigError):
    """A result belongs to another list of runs."""


def tried_on_dev(
    results: Mapping[EmojiRun, dict[str, Any]],
) -> tuple[Scores | None, dict[str, dict[RunSetting, Scores]]]:
    """Return the scores of the base on `dev`, and those of every setting, by method."""
    base, tried = None, dict[str, dict[RunSetting, Any]]()
    for run, result in results.items():
        if run.stage == "dev" and run.setting is None:
            base = result["scores"]
        elif run.stage == "dev" and run.setting is not None:
            own = tried.setdefault(run.variant, {})
            for steps, scores in result["scores_at"].items():
                own[RunSetting(run.setting.rate, run.setting.beta, int(steps))] = scores
    return base, tried


def _plan(tree: dict[str, Any]) -> TeachingPlan:
    """A base's plan: what its entry does not say is as in `TeachingPlan`."""
    parts: dict[str, Any] = {}
    if "shares" in tree:
        parts["shares"] = Shares(**tree["shares"])
    if "tower" in tree:
        parts["tower"] = TowerSize(**tree["tower"])
    return TeachingPlan(**tree | parts)


def _dev_runs(tree: dict[str, Any], steps: int) -> list[EmojiRun]:
    base, seed = tree["base"], tree["seed"]
    runs = [EmojiRun("dev", "base", base, seed)]
    for variant, betas in tree["betas"].items():
        runs += [
            EmojiRun("dev", variant, base, seed, RunSetting(rate, beta, steps))
            for beta in betas
            for rate in tree["rates"]
        ]
    return runs


def _check_runs(runs: Sequence[EmojiRun], bases: Mapping[str, TeachingPlan]) -> None:
    if unknown := [run.variant for run in runs if run.variant not in VARIANTS]:
        raise ValueError(f"{unknown[0]!r} is not a variant")
    if unplanned := [run.base for run in runs if run.base not in bases]:
        raise ValueError(f"{unplanned[0]!r} is not among its bases")
    settled = {run.variant for run in runs if run.stage == "dev"} | {"OPSD"}
    if unsettled := [run.variant for run in runs if run.trains and run.variant not in settled]:
        raise ValueError(f"nothing settles {unsettled[0]!r}")


def read_study(path: Path, overrides: Sequence[str] = ()) -> StudyList:
    """Read the list of planned runs. Raise a ConfigError that names what is wrong with it."""
    try:
        text = path.read_bytes()
        tree = json.loads(text)
        final = tree["final"]
        bases = {name: _plan(entry) for name, entry in tree["bases"].items()}
        steps = tuple(sorted(map(int, tree["steps"])))
        runs = _dev_runs(tree["settle"], steps[-1])
        runs += [EmojiRun("test", v, base, seed) for base, seed in final["seeds"].items() for v in final["variants"]]
        _check_runs(runs, bases)
        digest = hashlib.sha256(b"\0".join([text, *(change.encode() for change in overrides)])).hexdigest()[:16]
        return StudyList(
            bases=bases,
            language=str(tree["language"]),
            tokenizer=str(tree["tokenizer"]),
            sprites=str(tree["sprites"]),
            runs=tuple(dict.fromkeys(runs)),
            steps=steps,
            num_questions=int(tree["questions"]),
            num_prompts=int(tree["prompts"]),
            digest=digest,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ConfigError([f"{path} is not a list of emoji runs: {type(error).__name__}: {error}."]) from None
