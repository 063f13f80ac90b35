"""Lines of evaluation.jsonl: what an evaluation during training writes, and what reports read from them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.scoring.compare import Difference
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.rollout.sampling import Sampling

FILE = "evaluation.jsonl"


def live_line(
    step: int, card: Scorecard, losses: Mapping[str, Difference], sampling: Sampling, seconds: float
) -> dict[str, object]:
    """Build a line: a few numbers for each benchmark, what is clearly worse than at first, and how they were made."""
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
    fell = {
        name: {"difference": loss.difference, "interval": [loss.interval.low, loss.interval.high]}
        for name, loss in losses.items()
    }
    return {
        "step": step,
        "acc": card.acc,
        "interval": [card.interval.low, card.interval.high],
        "benchmarks": benchmarks,
        "mode": card.mode,
        "rules": card.rules,
        "sampling": asdict(sampling),
        "seconds": round(seconds, 1),
        **({"fell": fell} if fell else {}),
    }


def live_unread_share(record: Mapping[str, Any], name: str = "") -> float | None:
    """Return the share of unread answers in a line of evaluation.jsonl, in percent: of a benchmark, or the mean."""
    benchmarks = record.get("benchmarks", {})
    chosen = [benchmarks.get(name, {})] if name else list(benchmarks.values())
    if not chosen or not all(one.get("num_questions") and "unresolved" in one for one in chosen):
        return None
    return sum(100 * float(one["unresolved"]) / float(one["num_questions"]) for one in chosen) / len(chosen)


def told_losses(record: Mapping[str, Any]) -> str:
    """Write the losses of a line of evaluation.jsonl; empty without any.

    >>> told_losses({"step": 30, "fell": {"MMStar": {"difference": -7.5, "interval": [-10.25, -4.5]}}})
    'MMStar -7.50 (95% -10.25 to -4.50) since the first evaluation'
    """
    fell = record.get("fell", {})
    losses = [
        f"{name} {loss['difference']:+.2f} (95% {loss['interval'][0]:+.2f} to {loss['interval'][1]:+.2f})"
        for name, loss in fell.items()
    ]
    return f"{', '.join(losses)} since the first evaluation" if losses else ""
