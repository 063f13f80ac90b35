"""The watch: it sees every step, writes it down, shows it, and stops a run that collapses.

    with Watch("runs/first", tokenizer, max_steps=90) as watch:
        VCSDTrainer(..., monitors=[watch]).train()

metrics.jsonl   one line per step: its metrics, the ids of its examples, and what the guard says if it says anything
samples.jsonl   some rollouts of every tenth step, and of a step at which the guard says something new

Steps are counted from 1 in files and messages, as checkpoints are: checkpoint-10 is the run after step 10. Trainer's
own progress bar should be off (`disable_tqdm`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vcsd.errors import RunError
from vcsd.monitor.bar import Bar
from vcsd.monitor.guard import Guard
from vcsd.monitor.lines import Lines
from vcsd.monitor.metrics import Sums
from vcsd.monitor.samples import sample_record
from vcsd.monitor.text import scripts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from vcsd.kernels.statistics import Statistics
    from vcsd.monitor.guard import Verdict
    from vcsd.types import Example, Rollout

log = logging.getLogger(__name__)

SAMPLES_EVERY = 10
SAMPLES_PER_STEP = 4


class Sampled(Protocol):
    """The part of a step's batch that is watched."""

    @property
    def rollouts(self) -> Sequence[Rollout]:
        """All that was sampled, in the order of prompts."""
        ...


class Seen(Protocol):
    """What a step shows. `step` counts from 0; `metrics` holds what the trainer knows, such as `gradient_norm`."""

    @property
    def step(self) -> int: ...  # noqa: D102
    @property
    def is_taken(self) -> bool: ...  # noqa: D102
    @property
    def loss(self) -> float: ...  # noqa: D102
    @property
    def examples(self) -> Sequence[Example]: ...  # noqa: D102
    @property
    def batch(self) -> Sampled | None: ...  # noqa: D102
    @property
    def statistics(self) -> Sequence[Statistics]: ...  # noqa: D102
    @property
    def metrics(self) -> Mapping[str, float]: ...  # noqa: D102


class Watch:
    """A monitor for `VCSDTrainer`. With `stops` False the guard only warns; with no signals it says nothing."""

    def __init__(
        self,
        folder: str | PathLike[str],
        tokenizer: Any,
        *,
        max_steps: int,
        guard: Guard | None = None,
        stops: bool = True,
        bar: Bar | None = None,
    ) -> None:
        self._metrics = Lines(Path(folder) / "metrics.jsonl")
        self._samples = Lines(Path(folder) / "samples.jsonl")
        self._tokenizer, self._max_steps, self._stops = tokenizer, max_steps, stops
        self.guard = Guard() if guard is None else guard
        self._bar = Bar() if bar is None else bar
        self._last_step: int | None = None
        """The last step written down by this run; None before the first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def observe(self, seen: Seen) -> dict[str, float]:
        """Measure, judge, write down and show a step; the metrics found. A RunError if the run collapses."""
        step = seen.step + 1
        if self._last_step is None:
            self._begin(step)
        texts = self._texts(seen)
        found = self._measure(seen, texts)
        metrics = {"loss": seen.loss, **seen.metrics, **found}
        verdict = self.guard.judge(step, metrics)
        self._write(seen, metrics, verdict, texts)
        self._last_step = step
        self._bar.step(step, metrics)
        if verdict.is_new:
            log.warning("Step %d: %s", step, verdict.message())
        if verdict.action == "stop" and self._stops:
            self.end()
            raise RunError(self._advice(verdict))
        return found

    @property
    def last_good_step(self) -> int | None:
        """The last step that the guard found usual: the checkpoint at or before it is worth keeping."""
        return self.guard.last_good_step

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as plain JSON."""
        return {"step": self._last_step or 0, "guard": self.guard.state()}

    def restore(self, state: Mapping[str, Any], step: int | None = None) -> None:
        """Continue after a checkpoint: lines of later steps, which will be done again, are removed."""
        self.guard.restore(state["guard"])
        self._begin(int(state["step"]) + 1)
        self._last_step = int(state["step"])

    def end(self) -> None:
        """Give the terminal back."""
        self._bar.end()

    def _begin(self, next_step: int) -> None:
        for lines in (self._metrics, self._samples):
            num_removed = lines.keep_until("step", next_step - 1)
            if num_removed:
                log.warning("%s: %d lines from step %d on are done again.", lines.path, num_removed, next_step)
        self._bar.begin(next_step - 1, self._max_steps)

    def _texts(self, seen: Seen) -> list[str]:
        """The rollouts as text."""
        rollouts = [] if seen.batch is None else seen.batch.rollouts
        return [self._tokenizer.decode(list(rollout.token_ids), skip_special_tokens=True) for rollout in rollouts]

    def _measure(self, seen: Seen, texts: Sequence[str]) -> dict[str, float]:
        sums = Sums()
        for statistics in seen.statistics:
            sums.add_statistics(statistics)
        prompt_scripts = {example.id: scripts(prompt_text(example)) for example in seen.examples}
        rollouts = [] if seen.batch is None else seen.batch.rollouts
        for rollout, text in zip(rollouts, texts, strict=True):
            sums.add_rollout(rollout, text, prompt_scripts[rollout.example_id])
        return sums.means()

    def _write(self, seen: Seen, metrics: Mapping[str, float], verdict: Verdict, texts: Sequence[str]) -> None:
        step = seen.step + 1
        said = {"guard": verdict.action, "findings": verdict.findings} if verdict.action != "go_on" else {}
        ids = [example.id for example in seen.examples]
        self._metrics.append({"step": step, "is_taken": seen.is_taken, **metrics, **said, "examples": ids})
        if seen.batch is None or not (verdict.is_new or step == 1 or step % SAMPLES_EVERY == 0):
            return
        examples = {example.id: example for example in seen.examples}
        firsts = [place for place, rollout in enumerate(seen.batch.rollouts) if rollout.index == 0]
        for place in firsts[:SAMPLES_PER_STEP]:
            rollout = seen.batch.rollouts[place]
            self._samples.append(sample_record(step, examples[rollout.example_id], rollout, texts[place]))

    def _advice(self, verdict: Verdict) -> str:
        return (
            f"{verdict.message()} Go back to a checkpoint at or before it: move later ones away, since a run resumes "
            f"from the latest. See {self._samples.path}. A lower method.alpha, a higher method.beta or fewer steps "
            "keep the target closer to the teacher."
        )


def prompt_text(example: Example) -> str:
    """The words of an example's prompt, without its images.

    >>> from vcsd.types import Example
    >>> prompt = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many?"})
    >>> prompt_text(Example(id="a", images=(), prompt=prompt))
    'Be brief.\\nHow many?'
    """
    words: list[str] = []
    for message in example.prompt:
        content = message["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        words += [str(part["text"]) for part in parts if "text" in part]
    return "\n".join(words)
