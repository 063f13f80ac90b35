"""The rules that decide, committed before the runs: which learning rate and beta are used, and what counts as success.

A run passes the gates if counting, presence and names each lose at most `MARGIN` points against the base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from vcsd.emoji.emoji_exam import SuiteScore

GATES = ("count", "presence", "name")
UNUSUAL = ("unusual_prompted", "unusual_unprompted")
MARGIN = 3.0
"""Points that a gate may lose. At 90% right, 256 questions have a standard error of 1.9 points."""

LEAST_GAIN = 5.0
"""Points on unusual colours from which on a gain counts."""

MOST_LOST = 10.0
"""Points of counting among the rollouts: an alarm that comes before so many are lost comes in time."""

FIRST_STEPS = 10
"""Steps at the start of a run against which losses among its rollouts are measured."""

Scores = Mapping[str, SuiteScore]


@dataclass(frozen=True)
class RateAndBeta:
    """A learning rate and a beta."""

    rate: str
    beta: str

    def overrides(self) -> tuple[str, ...]:
        """Return the changes to a recipe."""
        return (f"trainer.learning_rate={self.rate}", f"method.beta={self.beta}")


@dataclass(frozen=True)
class Settled:
    """The setting for the final runs, and whether it passed the gates on `dev`."""

    setting: RateAndBeta
    has_passed: bool


def unusual(scores: Scores) -> float:
    """Return the mean accuracy on unusual colours asked by name."""
    return mean(scores[suite]["right"] for suite in UNUSUAL)


def worst_gate(base: Scores, scores: Scores) -> float:
    """Return the largest loss of a gate, in points; negative if all gates gain."""
    return max(base[suite]["right"] - scores[suite]["right"] for suite in GATES)


def settle(base: Scores, runs: Mapping[RateAndBeta, Scores]) -> Settled:
    """Choose among VCSD's runs on `dev`: of those that pass the gates, the one with the best unusual colours.

    Equal ones: the lower rate, then the larger beta. If none passes: the one whose worst gate loses least.
    """
    order = sorted(runs, key=lambda setting: (float(setting.rate), -float(setting.beta)))
    passing = [setting for setting in order if worst_gate(base, runs[setting]) <= MARGIN]
    if passing:
        return Settled(max(passing, key=lambda setting: unusual(runs[setting])), has_passed=True)
    return Settled(min(order, key=lambda setting: worst_gate(base, runs[setting])), has_passed=False)


def is_wanted(base: Scores) -> bool:
    """Whether a base is the wanted phenomenon: it sees the unusual colour, does not say it, and can do the rest."""
    sees = base["place_named"]["right"] >= 90.0
    return sees and unusual(base) <= 50.0 and all(base[suite]["right"] >= 90.0 for suite in GATES)


def verdict(base: Scores, vcsd: Scores, controls: Sequence[Scores]) -> str:
    """Judge one base: `success`, `gain without the contrast`, `no gain`, or `breaks` with the gates that broke."""
    broken = [suite for suite in GATES if base[suite]["right"] - vcsd[suite]["right"] > MARGIN]
    if broken:
        return f"breaks {', '.join(broken)}"
    if unusual(vcsd) - unusual(base) < LEAST_GAIN:
        return "no gain"
    if unusual(vcsd) - max(unusual(scores) for scores in controls) < LEAST_GAIN:
        return "gain without the contrast"
    return "success"


def study_verdict(bases: Sequence[tuple[bool, str]]) -> str:
    """Judge the study: `succeeds`, `fails` or `is undecided`, from whether each base is wanted, and its verdict."""
    if all(wanted and said == "success" for wanted, said in bases):
        return "succeeds"
    return "fails" if sum(wanted and said != "success" for wanted, said in bases) >= 2 else "is undecided"


@dataclass(frozen=True)
class Counted:
    """The counting rollouts of one step: how many, and percent right."""

    step: int
    num: int
    right: float


def seen_in_time(counted: Sequence[Counted], alarms: Sequence[int]) -> bool | None:
    """Whether one of the alarms came at a step at which fewer than `MOST_LOST` points of counting were lost.

    The loss is that of the alarm's step against all counting rollouts of the first steps. A step without any counting
    rollout has that of the latest step before it with one. None, if there is no such step, or none among the first.
    """
    first = [line for line in counted if line.step <= FIRST_STEPS]
    if not alarms:
        return False
    if not first:
        return None
    before = sum(line.num * line.right for line in first) / sum(line.num for line in first)
    known = [[line.right for line in counted if line.step <= alarm] for alarm in alarms]
    if any(rights and before - rights[-1] < MOST_LOST for rights in known):
        return True
    return False if all(known) else None
