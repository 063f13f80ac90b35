"""The collapse guard: it learns what is usual in the first steps, warns when a run leaves it, and then says stop.

Self-distillation feeds on itself: student, teacher and sharpened target reinforce each other. The authors saw
repetition, mixed languages and growing answers from step 150 to 200 on; without the plausible support (beta 0)
accuracy falls from step 30 on. The benchmarks show it long after the rollouts do.

usual     the mean of a signal over the first BASELINE_STEPS steps
now       its mean over the last WINDOW steps: a step of few rollouts is noisy
warn      now is beyond a signal's `warn`, compared with usual
stop      now is beyond its `stop` for PATIENCE steps in a row, the first of which warned

Thresholds are ours, not the paper's. They leave room for what a good run does: the authors' lengthens its answers,
from 8% that hit the limit to 33%, and gains; and a student that learns grows surer. The earliest sign in the synthetic
world is the target's pull: as a sound student learns, the contrast has less and less left to change; without the
support it has more and more, from step 50 on, long before answers look odd (docs/monitoring.md). With fewer than 64
rollouts per step, a warning may be noise; a stop needs more than that.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

BASELINE_STEPS = 10
WINDOW = 10
PATIENCE = 5


@dataclass(frozen=True)
class Signal:
    """A number to watch and how far it may move. `stop` None: it warns, and never stops a run.

    `rise` compares by difference (shares), `growth` by ratio (lengths, nats), `fall` by ratio downwards. A number
    below `least` is never trouble: an answer that grows from three tokens to nine has not run away.

    >>> Signal("length", "growth", warn=1.5, stop=2.5).change(usual=200.0, now=500.0)
    2.5
    """

    metric: str
    compare: Literal["rise", "growth", "fall"]
    warn: float
    stop: float | None = None
    least: float = -math.inf

    def change(self, *, usual: float, now: float) -> float:
        """How far the number has moved; larger is worse."""
        if self.compare == "rise":
            return now - usual
        before, after = (usual, now) if self.compare == "growth" else (now, usual)
        if before <= 0:  # nothing to compare with: a ratio would be infinite, or meaningless
            return 1.0 if self.compare == "growth" or after <= 0 else math.inf
        return after / before

    def say(self, *, usual: float, now: float) -> str:
        """What was found, in words."""
        if self.compare == "rise":
            return f"{self.metric} rose from {usual:.1%} to {now:.1%}"
        return f"{self.metric} {'grew' if self.compare == 'growth' else 'fell'} from {usual:.3g} to {now:.3g}"


SIGNALS = (
    Signal("repetition", "rise", warn=0.05, stop=0.15),
    Signal("language_drift", "rise", warn=0.05, stop=0.20),
    Signal("truncated", "rise", warn=0.20, stop=0.50),
    Signal("length", "growth", warn=1.5, stop=2.5, least=64),
    Signal("student_entropy", "growth", warn=2.0, stop=3.0),
    Signal("student_entropy", "fall", warn=8.0),
    Signal("kl_target_original", "growth", warn=2.0, stop=3.0, least=0.02),
)


@dataclass(frozen=True)
class Verdict:
    """What the guard says of a step.

    >>> Verdict("warn", ("length grew from 200 to 310",), is_new=True, last_good_step=171).action
    'warn'
    """

    action: Literal["go_on", "warn", "stop"]
    findings: tuple[str, ...] = ()
    is_new: bool = False
    """Whether it says something that the step before did not."""
    last_good_step: int | None = None
    """The last step before the present trouble began to show: the checkpoint to go back to is at or before it."""

    def message(self) -> str:
        """The verdict as a sentence for the user."""
        found = "; ".join(self.findings)
        if self.action == "stop":
            return f"The run is collapsing: {found}. The last good step is {self.last_good_step}."
        return f"The run may be collapsing: {found}." if self.action == "warn" else "All is usual."


class Guard:
    """Judges each step by its metrics. A number that is missing or not finite is left out of its signal.

    >>> guard = Guard()
    >>> for step in range(40):
    ...     verdict = guard.judge(step, {"length": 200.0 if step < 20 else 900.0})
    ...     if verdict.is_new:
    ...         print(step, verdict.action, *verdict.findings)
    21 warn length grew from 200 to 340
    28 stop length grew from 200 to 830
    """

    def __init__(self, signals: tuple[Signal, ...] = SIGNALS) -> None:
        self.signals = signals
        self._usual: dict[str, list[float]] = {}
        self._recent: dict[str, deque[float]] = {}
        self._num_beyond: dict[str, int] = {}
        self._said: tuple[str, tuple[str, ...]] = ("go_on", ())
        self.last_good_step: int | None = None
        """The last step without trouble; None before the first."""

    def judge(self, step: int, metrics: Mapping[str, float]) -> Verdict:
        """Take in the metrics of one step and say what to do."""
        for metric in {signal.metric for signal in self.signals}:
            self._take(metric, metrics.get(metric))
        levels = {_name(signal): self._level(signal) for signal in self.signals}
        worst = max(levels.values(), default=0)
        troubled = [signal for signal in self.signals if levels[_name(signal)] == worst and worst]
        if worst == 0:
            self.last_good_step = step
        action: Literal["go_on", "warn", "stop"] = ("go_on", "warn", "stop")[worst]
        said = (action, tuple(_name(signal) for signal in troubled))
        is_new, self._said = said != self._said and worst > 0, said
        findings = tuple(signal.say(**self._means(signal.metric)) for signal in troubled)
        return Verdict(action, findings, is_new, self.last_good_step)

    def _take(self, metric: str, value: float | None) -> None:
        if value is None or not math.isfinite(value):
            return
        usual = self._usual.setdefault(metric, [])
        if len(usual) < BASELINE_STEPS:
            usual.append(float(value))
        self._recent.setdefault(metric, deque(maxlen=WINDOW)).append(float(value))

    def _level(self, signal: Signal) -> int:
        """0 usual, 1 warn, 2 stop."""
        name = _name(signal)
        if len(self._usual.get(signal.metric, ())) < BASELINE_STEPS:
            return 0
        means = self._means(signal.metric)
        change = signal.change(**means) if means["now"] >= signal.least else -math.inf
        is_beyond = signal.stop is not None and change >= signal.stop
        self._num_beyond[name] = self._num_beyond.get(name, 0) + 1 if is_beyond else 0
        if self._num_beyond[name] >= PATIENCE:
            return 2
        return int(change >= signal.warn)

    def _means(self, metric: str) -> dict[str, float]:
        usual, recent = self._usual[metric], self._recent[metric]
        return {"usual": sum(usual) / len(usual), "now": sum(recent) / len(recent)}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as plain JSON."""
        return {
            "usual": {metric: list(values) for metric, values in self._usual.items()},
            "recent": {metric: list(values) for metric, values in self._recent.items()},
            "num_beyond": dict(self._num_beyond),
            "said": [self._said[0], list(self._said[1])],
            "last_good_step": self.last_good_step,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue as the guard whose `state` this is."""
        self._usual = {metric: list(values) for metric, values in state["usual"].items()}
        self._recent = {metric: deque(values, maxlen=WINDOW) for metric, values in state["recent"].items()}
        self._num_beyond = dict(state["num_beyond"])
        self._said = (state["said"][0], tuple(state["said"][1]))
        self.last_good_step = state["last_good_step"]


def _name(signal: Signal) -> str:
    return f"{signal.metric} {signal.compare}"
