"""The watch: records every step, shows it, and stops a run that collapses.

    with Watch("runs/first", tokenizer, max_steps=90) as watch:
        VCSDTrainer(..., monitors=[watch]).train()

metrics.jsonl   one line per step: its metrics, the ids of its examples, and the guard's alarm if there is one
samples.jsonl   some rollouts of step 1, of every tenth step, and of each step with a new alarm, token by token
thumbnails/     small copies of their images

Steps count from 1: checkpoint-10 is the run after step 10. Trainer's own progress bar should be off (`disable_tqdm`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict

from vcsd.errors import RunError
from vcsd.monitor.guard import MIN_ROLLOUTS, Guard
from vcsd.monitor.lines import Lines
from vcsd.monitor.metrics import Sums
from vcsd.monitor.response_text import scripts
from vcsd.monitor.samples import contrast_record, sample_record
from vcsd.monitor.thumbnails import Thumbnails
from vcsd.monitor.token_texts import TokenTexts
from vcsd.monitor.training_bar import TrainingBar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from typing import Self

    from vcsd.monitor.guard import Alarm, GuardState
    from vcsd.monitor.observation import Observation
    from vcsd.types import Rollout

log = logging.getLogger(__name__)

SAMPLES_EVERY = 10
SAMPLES_PER_STEP = 4


class Tokenizer(Protocol):
    """Turns the token ids of a response into text."""

    def decode(self, token_ids: list[int], /, *, skip_special_tokens: bool) -> str: ...  # noqa: D102


class WatchState(TypedDict):
    """The part of a watch that a checkpoint keeps."""

    step: int
    guard: GuardState


class Watch:
    """A monitor for `VCSDTrainer`. With `stops` False the guard only warns; a guard without signals stays silent.

    A step with fewer than `min_rollouts` rollouts is too noisy to stop a run.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        tokenizer: Tokenizer,
        *,
        max_steps: int,
        guard: Guard | None = None,
        stops: bool = True,
        min_rollouts: int = MIN_ROLLOUTS,
        bar: TrainingBar | None = None,
    ) -> None:
        self._metrics = Lines(Path(folder) / "metrics.jsonl")
        self._samples = Lines(Path(folder) / "samples.jsonl")
        self._thumbnails, self._texts = Thumbnails(folder), TokenTexts(tokenizer)
        self._tokenizer, self._max_steps, self._stops = tokenizer, max_steps, stops
        self._min_rollouts = min_rollouts
        self.guard = Guard() if guard is None else guard
        self._bar = TrainingBar() if bar is None else bar
        self.latest_samples: list[dict[str, object]] = []
        """The samples that were recorded last, for services that show them."""
        self._last_step: int | None = None
        """The last step recorded by this run; None before the first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def observe(self, seen: Observation) -> dict[str, float]:
        """Measure, judge, record and show a step, and return its metrics. Raise a RunError if the run collapses."""
        if self._last_step is None:
            self._begin(seen.step)
        rollouts = seen.batch.rollouts
        texts = [self._tokenizer.decode(list(rollout.token_ids), skip_special_tokens=True) for rollout in rollouts]
        sampled = list(zip(rollouts, texts, strict=True))
        measured = _measure(seen, sampled)
        metrics = {"loss": seen.loss, **seen.metrics, **measured}
        alarm = self.guard.judge(seen.step, metrics)
        self._write(seen, metrics, alarm, sampled)
        self._last_step = seen.step
        self._bar.step(seen.step, metrics)
        if alarm.is_new:
            log.warning("Step %d: %s", seen.step, alarm.message())
        if alarm.action == "stop" and self._stops and len(rollouts) < self._min_rollouts:
            if alarm.is_new:
                fewest = self._min_rollouts
                log.warning("The run continues: its steps have %d rollouts, a stop needs %d.", len(rollouts), fewest)
        elif alarm.action == "stop" and self._stops:
            self.end()
            raise RunError(
                f"{alarm.message()} Go back to a checkpoint at or before it: vcsd train RECIPE --from-last-good "
                f"resumes there; add guard=warn to continue nevertheless. See {self._samples.path}. In a new run, a "
                "lower method.alpha, a higher method.beta or fewer steps keep the target closer to the teacher."
            )
        return measured

    @property
    def may_alarm(self) -> bool:
        """Whether its guard watches anything."""
        return bool(self.guard.signals)

    @property
    def last_good_step(self) -> int | None:
        """The last step without an alarm: the checkpoint at or before it is worth keeping."""
        return self.guard.last_good_step

    def state(self) -> WatchState:
        """Return what a checkpoint keeps, as plain JSON."""
        return {"step": self._last_step or 0, "guard": self.guard.state()}

    def restore(self, state: WatchState, step: int | None = None) -> None:
        """Continue after a checkpoint, and remove the lines of later steps, which will be repeated."""
        self.guard.restore(state["guard"])
        self._begin(state["step"] + 1)
        self._last_step = state["step"]

    def end(self) -> None:
        """Release the terminal."""
        self._bar.end()

    def _begin(self, next_step: int) -> None:
        for lines in (self._metrics, self._samples):
            num_removed = lines.keep_until("step", next_step - 1)
            if num_removed:
                then = "starts over" if next_step == 1 else f"resumes at step {next_step}"
                removed = f"{num_removed} line{'s' if num_removed > 1 else ''}"
                log.warning("%s: removed %s; the run %s.", lines.path, removed, then)
        self._bar.begin(next_step - 1, self._max_steps)

    def _write(
        self, seen: Observation, metrics: Mapping[str, float], alarm: Alarm, sampled: Sequence[tuple[Rollout, str]]
    ) -> None:
        step = seen.step
        guard = {"guard": alarm.action, "findings": alarm.findings} if alarm.action != "go_on" else {}
        ids = [example.id for example in seen.examples]
        self._metrics.append({"step": step, "is_taken": seen.is_taken, **metrics, **guard, "examples": ids})
        if not (alarm.is_new or step == 1 or step % SAMPLES_EVERY == 0):
            return
        self._write_samples(seen, sampled)

    def _write_samples(self, seen: Observation, sampled: Sequence[tuple[Rollout, str]]) -> None:
        """Record the first rollout of some examples, with the contrast of each token."""
        self.latest_samples = []
        examples = {example.id: example for example in seen.examples}
        firsts = [(rollout, text) for rollout, text in sampled if rollout.index == 0][:SAMPLES_PER_STEP]
        contrasts = seen.contrasts() if firsts else {}
        for rollout, text in firsts:
            example = examples[rollout.example_id]
            contrast = contrasts.get((rollout.example_id, tuple(rollout.token_ids)))
            record = {
                **sample_record(seen.step, example, rollout, text),
                "thumbnails": self._thumbnails.add(example),
                **contrast_record(rollout.token_ids, contrast, self._texts),
            }
            self._samples.append(record)
            self.latest_samples.append(record)


def _measure(seen: Observation, sampled: Sequence[tuple[Rollout, str]]) -> dict[str, float]:
    sums = Sums()
    for statistics in seen.statistics:
        sums.add_statistics(statistics)
    prompt_scripts = {example.id: scripts(example.text) for example in seen.examples}
    for rollout, text in sampled:
        sums.add_rollout(rollout, text, prompt_scripts[rollout.example_id])
    return sums.means()
