"""The collapse guard: learns a baseline in the first steps, warns when a run leaves it, and then stops the run.

Self-distillation is a feedback loop: student, teacher and sharpened target reinforce each other. The authors saw
repetition, mixed languages and growing responses from step 150 to 200 on; without the plausible support (beta 0)
accuracy falls from step 30 on. Rollouts show a collapse long before the benchmarks do.

usual     the mean of a signal over the first BASELINE_STEPS steps
now       its mean over the last WINDOW steps, because a step with few rollouts is noisy
warn      now has moved from usual by at least the signal's `warn`
stop      now has moved by at least its `stop` for PATIENCE steps in a row

The thresholds are not from the paper. They tolerate what good runs do: in the authors' run, the share of truncated
responses grows from 8% to 33% while accuracy improves, and a student that learns becomes more confident. In the
offline world, the earliest sign is `kl_target_original`: as a healthy student learns, the contrast changes less and
less; without the support it changes more and more from step 50 on, long before responses look odd
(docs/monitoring.md). With fewer than MIN_ROLLOUTS rollouts per step an alarm may be noise, so that it only warns.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vcsd.monitor.lines import JsonLine

MIN_ROLLOUTS = 64
"""The fewest rollouts per step for which the thresholds are meaningful. With fewer, the guard only warns."""

BASELINE_STEPS = 10
WINDOW = 10
PATIENCE = 5


@dataclass(frozen=True)
class Signal:
    """A metric to watch and how far it may move. With `stop` None it only warns.

    `rise` compares by difference (shares), `growth` by ratio (lengths, nats), `fall` by inverse ratio. A value below
    `least` never counts: a response that grows from three tokens to nine has not run away.

    >>> Signal("length", "growth", warn=1.5, stop=2.5).change(usual=200.0, now=500.0)
    2.5
    """

    metric: str
    compare: Literal["rise", "growth", "fall"]
    warn: float
    stop: float | None = None
    least: float = -math.inf

    def change(self, *, usual: float, now: float) -> float:
        """Return how far the metric has moved; larger is worse."""
        if self.compare == "rise":
            return now - usual
        before, after = (usual, now) if self.compare == "growth" else (now, usual)
        if before <= 0:  # a ratio would be infinite or meaningless
            return 1.0 if self.compare == "growth" or after <= 0 else math.inf
        return after / before

    def describe(self, *, usual: float, now: float) -> str:
        """Describe the change in words."""
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
class Alarm:
    """The guard's judgement of a step."""

    action: Literal["go_on", "warn", "stop"]
    findings: tuple[str, ...] = ()
    is_new: bool = False
    """Whether it differs from the alarm of the step before."""
    last_good_step: int | None = None
    """The last step without an alarm: go back to a checkpoint at or before it."""

    def message(self) -> str:
        """Return the alarm as a sentence for the user."""
        findings = "; ".join(self.findings)
        if self.action == "stop":
            return f"The run is collapsing: {findings}. The last good step is {self.last_good_step}."
        return f"The run may be collapsing: {findings}." if self.action == "warn" else "The run looks normal."


class GuardState(TypedDict):
    """The state of a guard, as a checkpoint keeps it."""

    usual: dict[str, list[float]]
    recent: dict[str, list[float]]
    num_beyond: dict[str, int]
    said: list[str | list[str]]
    last_good_step: int | None


class Guard:
    """Judges each step by its metrics. A value that is missing or not finite is ignored.

    >>> guard = Guard()
    >>> for step in range(1, 41):
    ...     alarm = guard.judge(step, {"length": 200.0 if step <= 20 else 900.0})
    ...     if alarm.is_new:
    ...         print(step, alarm.action, *alarm.findings)
    22 warn length grew from 200 to 340
    29 stop length grew from 200 to 830
    """

    def __init__(self, signals: tuple[Signal, ...] = SIGNALS) -> None:
        self.signals = signals
        self._state = GuardState(usual={}, recent={}, num_beyond={}, said=["go_on", []], last_good_step=None)

    @property
    def last_good_step(self) -> int | None:
        """The last step without an alarm; None before the first."""
        return self._state["last_good_step"]

    def judge(self, step: int, metrics: Mapping[str, float]) -> Alarm:
        """Add the metrics of one step and return the action to take."""
        taken = {metric for metric in {signal.metric for signal in self.signals} if self._take(metric, metrics)}
        levels = {_name(signal): self._level(signal, has_value=signal.metric in taken) for signal in self.signals}
        worst = max(levels.values(), default=0)
        troubled = [signal for signal in self.signals if levels[_name(signal)] == worst and worst]
        if worst == 0:
            self._state["last_good_step"] = step
        action: Literal["go_on", "warn", "stop"] = ("go_on", "warn", "stop")[worst]
        said: list[str | list[str]] = [action, [_name(signal) for signal in troubled]]
        is_new, self._state["said"] = said != self._state["said"] and worst > 0, said
        findings = tuple(signal.describe(**self._means(signal.metric)) for signal in troubled)
        return Alarm(action, findings, is_new, self.last_good_step)

    def _take(self, metric: str, metrics: Mapping[str, float]) -> bool:
        """Add the value of a metric. Return whether the step has one."""
        value = metrics.get(metric)
        if value is None or not math.isfinite(value):
            return False
        usual, recent = (self._state[key].setdefault(metric, []) for key in ("usual", "recent"))
        if len(usual) < BASELINE_STEPS:
            usual.append(float(value))
        recent.append(float(value))
        del recent[:-WINDOW]
        return True

    def _level(self, signal: Signal, *, has_value: bool) -> int:
        """Return 0 for normal, 1 for a warning, 2 for a stop. A step without a value does not count as beyond."""
        name, num_beyond = _name(signal), self._state["num_beyond"]
        if len(self._state["usual"].get(signal.metric, ())) < BASELINE_STEPS:
            return 0
        means = self._means(signal.metric)
        change = signal.change(**means) if means["now"] >= signal.least else -math.inf
        is_beyond = signal.stop is not None and change >= signal.stop
        num_beyond[name] = num_beyond.get(name, 0) + has_value if is_beyond else 0
        if num_beyond[name] >= PATIENCE:
            return 2
        return int(change >= signal.warn)

    def _means(self, metric: str) -> dict[str, float]:
        usual, recent = self._state["usual"][metric], self._state["recent"][metric]
        return {"usual": sum(usual) / len(usual), "now": sum(recent) / len(recent)}

    def state(self) -> GuardState:
        """Return what a checkpoint keeps, as plain JSON."""
        return deepcopy(self._state)

    def restore(self, state: GuardState) -> None:
        """Continue from a saved state."""
        self._state = deepcopy(state)


def first_step(lines: Iterable[JsonLine], action: str) -> int | None:
    """Return the first step at which a run's guard took an action, from the lines of its metrics.

    >>> first_step([{"step": 1}, {"step": 2, "guard": "warn"}, {"step": 3, "guard": "warn"}], "warn")
    2
    """
    return next((int(line["step"]) for line in lines if line.get("guard") == action), None)


def _name(signal: Signal) -> str:
    return f"{signal.metric} {signal.compare}"
