"""The rules that decide, committed before the runs: which setting each method uses, and what counts as success.

Every suite but the two that should gain is a gate. A run breaks a gate if it loses more than `MARGIN` points against
the base, and more than chance explains: the sign test over the questions whose answer changed from right to wrong or
back has p below `LEVEL`. Base and run answer the same questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from vcsd.emoji.emoji_exam import SuiteScore
from vcsd.emoji.questions import SUITES

UNUSUAL = ("unusual_prompted", "unusual_unprompted")
GATES = tuple(suite for suite in SUITES if suite not in UNUSUAL)
ABILITIES = ("count", "presence", "name")
"""What a base must be able to do before it shows the phenomenon."""

MARGIN = 3.0
"""Points that a gate may lose."""

LEVEL = 0.05

LEAST_GAIN = 5.0
"""Points on unusual colours from which on a gain counts."""

MOST_LOST = 10.0
"""Points of counting among the rollouts: an alarm that comes before so many are lost comes in time."""

FIRST_STEPS = 10
"""Steps at the start of a run against which losses among its rollouts are measured."""

AROUND = 5
"""Steps before and after an alarm over which its loss is averaged: one step has few counting questions, or none."""

Scores = Mapping[str, SuiteScore]


@dataclass(frozen=True)
class RunSetting:
    """A learning rate, a beta, and a number of steps."""

    rate: str
    beta: str
    steps: int

    def overrides(self) -> tuple[str, ...]:
        """Return the changes to a recipe."""
        return (f"trainer.learning_rate={self.rate}", f"trainer.max_steps={self.steps}", f"method.beta={self.beta}")

    def __str__(self) -> str:
        return f"rate {self.rate}, beta {self.beta}, {self.steps} steps"


@dataclass(frozen=True)
class Settled:
    """The setting for the final runs, and whether it passed the gates on `dev`."""

    setting: RunSetting
    has_passed: bool


def unusual(scores: Scores) -> float:
    """Return the mean accuracy on unusual colours asked by name."""
    return mean(scores[suite]["right"] for suite in UNUSUAL)


def worst_gate(base: Scores, scores: Scores) -> float:
    """Return the largest loss of a gate, in points; negative if all gates gain."""
    return max(base[suite]["right"] - scores[suite]["right"] for suite in GATES)


def broken_gates(base: Scores, scores: Scores) -> list[str]:
    """Return the gates that a run breaks."""
    return [suite for suite in GATES if is_broken(base[suite], scores[suite])]


def is_broken(before: SuiteScore, after: SuiteScore) -> bool:
    """Whether a suite loses more than the margin, and more than chance explains."""
    if before["right"] - after["right"] <= MARGIN:
        return False
    changes = _changes(before, after)
    return sign_test(changes.count(-1), changes.count(1)) < LEVEL


def sign_test(lost: int, won: int) -> float:
    """Return the two-sided p of so unequal numbers, if each question were as likely lost as won.

    >>> sign_test(8, 0), sign_test(3, 3)
    (0.0078125, 1.0)
    """
    num = lost + won
    tail = sum(math.comb(num, k) for k in range(min(lost, won) + 1))
    return min(1.0, 2.0 * tail / math.ldexp(1.0, num))


def gain(before: Scores, after: Scores, suites: Iterable[str] = UNUSUAL) -> tuple[float, float]:
    """Return the gain over the questions of suites in points, and half the width of its 95% interval.

    The interval is that of this base and this run with other questions; it knows nothing of other bases and seeds.
    """
    changes = [change for suite in suites for change in _changes(before[suite], after[suite])]
    return 100 * mean(changes), 196 * stdev(changes) / math.sqrt(len(changes))


def _changes(before: SuiteScore, after: SuiteScore) -> list[int]:
    """For each question, 1 if it is right only after, -1 if it was right only before, else 0."""
    return [int(new) - int(old) for old, new in zip(before["marks"], after["marks"], strict=True)]


def settle(base: Scores, runs: Mapping[RunSetting, Scores]) -> Settled:
    """Choose among a method's settings on `dev`: of those that pass the gates, the one with the best unusual colours.

    Equal ones: the lower rate, then fewer steps, then the larger beta. If none passes: the one whose worst gate loses
    least.
    """
    order = sorted(runs, key=lambda setting: (float(setting.rate), setting.steps, -float(setting.beta)))
    passing = [setting for setting in order if not broken_gates(base, runs[setting])]
    if passing:
        return Settled(max(passing, key=lambda setting: unusual(runs[setting])), has_passed=True)
    return Settled(min(order, key=lambda setting: worst_gate(base, runs[setting])), has_passed=False)


def is_wanted(base: Scores) -> bool:
    """Whether a base is the wanted phenomenon: it sees the unusual colour, does not say it, and can do the rest."""
    sees = base["place_named"]["right"] >= 90.0
    return sees and unusual(base) <= 50.0 and all(base[suite]["right"] >= 90.0 for suite in ABILITIES)


def verdict(base: Scores, vcsd: Scores, controls: Sequence[Scores]) -> str:
    """Judge one base: `success`, `gain without the contrast`, `no gain`, or `breaks` with the gates that broke."""
    if broken := broken_gates(base, vcsd):
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


def why_broken(measured: Mapping[str, float]) -> str:
    """Say what breaks a suite: the `contrast`, if VCSD's target is wrong more often before training, or `training`.

    `measured` is what `key_contrast.py` says of the suite on the base.
    """
    return "contrast" if measured["original"] - measured["target"] > MARGIN else "training"


@dataclass(frozen=True)
class Counted:
    """The counting rollouts of one step: how many, and percent right."""

    step: int
    num: int
    right: float


def seen_in_time(counted: Sequence[Counted], alarms: Sequence[int]) -> bool | None:
    """Whether one of the alarms came when fewer than `MOST_LOST` points of counting were lost.

    The loss is that of all counting rollouts from `AROUND` steps before the alarm to `AROUND` steps after it, against
    those of the first steps. None, if either has no counting rollout.
    """
    if not alarms:
        return False
    before = _mean_right([line for line in counted if line.step <= FIRST_STEPS])
    around = [_mean_right([line for line in counted if abs(line.step - alarm) <= AROUND]) for alarm in alarms]
    if before is None:
        return None
    if any(right is not None and before - right < MOST_LOST for right in around):
        return True
    return None if None in around else False


def _mean_right(lines: Sequence[Counted]) -> float | None:
    num = sum(line.num for line in lines)
    return sum(line.num * line.right for line in lines) / num if num else None
