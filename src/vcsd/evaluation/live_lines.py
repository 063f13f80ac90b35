"""Lines of evaluation.jsonl: what an evaluation during training writes, and what reports read from them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.evaluation.live_losses import Loss
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.rollout.sampling import Sampling

FILE = "evaluation.jsonl"
FELL, FELL_SINCE_BEST = "fell", "fell_since_best"
"""Keys of the scores that are clearly below those of the first evaluation, and of the best one."""


def live_line(
    step: int,
    card: Scorecard,
    losses: Sequence[Loss],
    sampling: Sampling,
    seconds: float,
    own: Mapping[str, str],
) -> dict[str, object]:
    """Build a line: a few numbers for each benchmark, the clear losses, and how questions were asked and answers read.

    `own` are the checksums of the user's own questions.
    """
    benchmarks = {
        name: {
            "entry": score.entry,
            "interval": [score.interval.low, score.interval.high],
            "num_questions": score.num_questions,
            "num_expected": score.num_expected,
            "metrics": dict(score.metrics),
            **asdict(score.counts),
        }
        for name, score in card.benchmarks.items()
    }
    return {
        "step": step,
        "acc": card.acc,
        "interval": [card.interval.low, card.interval.high],
        "benchmarks": benchmarks,
        "mode": card.mode,
        "rules": card.rules,
        "sampling": asdict(sampling),
        **({"tsv": dict(own)} if own else {}),
        "seconds": round(seconds, 1),
        **_fell(losses),
    }


def _fell(losses: Sequence[Loss]) -> dict[str, object]:
    """The losses of a line: since the first evaluation, and since the best one, with its step."""
    fell: dict[str, dict[str, object]] = {}
    for loss in losses:
        limits = loss.change.interval
        record = {"since": loss.since, "difference": loss.change.difference, "interval": [limits.low, limits.high]}
        fell.setdefault(FELL_SINCE_BEST if loss.since else FELL, {})[loss.name] = record
    return dict(fell)


def live_unread_share(record: Mapping[str, Any], name: str = "") -> float | None:
    """Return the percentage of unread answers in a line of evaluation.jsonl: of one benchmark, or the mean of all."""
    benchmarks = record.get("benchmarks", {})
    chosen = [benchmarks.get(name, {})] if name else list(benchmarks.values())
    if not chosen or not all(one.get("num_questions") and "unresolved" in one for one in chosen):
        return None
    return sum(100 * float(one["unresolved"]) / float(one["num_questions"]) for one in chosen) / len(chosen)


def told_losses(record: Mapping[str, Any]) -> str:
    """Describe the losses in a line of evaluation.jsonl; an empty string if there are none.

    >>> loss = {"since": 0, "difference": -7.5, "interval": [-10.25, -4.5]}
    >>> told_losses({"step": 60, "fell": {"MMStar": loss}})
    'MMStar -7.50 (95% -10.25 to -4.50) since the first evaluation, at step 0'
    >>> told_losses({"step": 60, "fell_since_best": {"MMStar": {**loss, "since": 30}}})
    'MMStar -7.50 (95% -10.25 to -4.50) since its best evaluation, at step 30'
    """
    losses = [
        f"{name} {loss['difference']:+.2f} (95% {loss['interval'][0]:+.2f} to {loss['interval'][1]:+.2f}) "
        f"since {which} evaluation, at step {loss.get('since', 0)}"
        for key, which in ((FELL, "the first"), (FELL_SINCE_BEST, "its best"))
        for name, loss in record.get(key, {}).items()
    ]
    return "; ".join(losses)
