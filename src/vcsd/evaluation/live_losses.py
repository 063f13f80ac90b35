"""Losses during training: scores that are clearly below the first evaluation of the run, or below the best one.

Each score (a benchmark or Acc) has its own best evaluation. The best one was partly lucky, so a loss since then must be
larger to be clear. `benchmarks/loss_warnings.py` measures how often both rules warn, with and without a true loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.evaluation.scoring.compare import compare
from vcsd.report.parts import unread_note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.evaluation.scoring.compare import Difference
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.evaluation.scoring.uncertainty import Interval

SURE = 1.5
"""A loss since the first evaluation is clear if it exceeds this many times the upper half-width of its 95% interval:
three standard errors, because a run compares many benchmarks at many steps."""

SURE_SINCE_BEST = 2.0
"""The same for a loss since the best evaluation: four standard errors, because the best of many is partly luck."""


@dataclass(frozen=True)
class Loss:
    """A score that is clearly below that of the evaluation after step `since`; 0 is the first evaluation."""

    name: str
    since: int
    change: Difference


def clear_losses(card: Scorecard, earlier: Mapping[int, Scorecard]) -> list[Loss]:
    """Return the scores that are clearly below the first or the best of the earlier scorecards (by step)."""
    best = {name: max(earlier, key=lambda step: scores_of(earlier[step])[name], default=0) for name in scores_of(card)}
    losses = []
    for since in sorted({0, *best.values()} & earlier.keys()):
        sure = SURE_SINCE_BEST if since else SURE
        for name, change in _changes(earlier[since], card).items():
            if since in (0, best[name]) and is_clear_loss(change.difference, change.interval, sure):
                losses.append(Loss(name, since, change))
    return losses


def scores_of(card: Scorecard) -> dict[str, float]:
    """Return the scores that are watched: those of the benchmarks, and Acc if there are several benchmarks."""
    entries = {name: score.entry for name, score in card.benchmarks.items()}
    return {"Acc": card.acc, **entries} if len(entries) > 1 else entries


def _changes(before: Scorecard, after: Scorecard) -> dict[str, Difference]:
    """Return how the scores that are watched have changed."""
    comparison = compare(before, after)
    changes = {"Acc": comparison.acc, **comparison.benchmarks}
    return {name: changes[name] for name in scores_of(after)}


def is_clear_loss(difference: float, limits: Interval, sure: float = SURE) -> bool:
    """Whether a difference with this 95% interval is a loss that chance alone hardly explains.

    >>> from vcsd.evaluation.scoring.uncertainty import Interval
    >>> is_clear_loss(-9.0, Interval(-15.0, -3.5)), is_clear_loss(-9.0, Interval(-15.0, -2.5))
    (True, False)
    >>> is_clear_loss(-9.0, Interval(-15.0, -3.5), SURE_SINCE_BEST)
    False
    """
    return difference + sure * (limits.high - difference) < 0


def loss_message(losses: Sequence[Loss]) -> str:
    """Say which scores fell, since which step and by how much, and what to do."""
    fell = [
        f"{loss.name} from {loss.change.a:.2f} at step {loss.since} ({'the best' if loss.since else 'the first'}) to "
        f"{loss.change.b:.2f} (95% {loss.change.interval.low:+.2f} to {loss.change.interval.high:+.2f} points, "
        f"{unread_note(loss.change.unread)})"
        for loss in losses
    ]
    return (
        f"Scores fell since an earlier evaluation: {'; '.join(fell)}. The guard uses no labels and may not see this. "
        "Go back to an earlier checkpoint, or stop and lower the learning rate."
    )
