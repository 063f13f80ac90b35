"""Read the folder of a run that is finished, running, stopped or crashed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from vcsd.checkpoint.lock import process_in
from vcsd.checkpoint.whole_file import read_object, value_at
from vcsd.data.skips import MIN_ROWS_SEEN
from vcsd.errors import ConfigError, refuse_missing_folder, shown
from vcsd.evaluation.asked_questions import ASKED
from vcsd.evaluation.asked_questions import FILE as QUESTIONS
from vcsd.evaluation.live_lines import FILE as EVALUATIONS
from vcsd.evaluation.scoring.scorecard import CARD, load_scorecard
from vcsd.monitor.lines import read_lines
from vcsd.monitor.machine import ENVIRONMENT, sessions_of
from vcsd.monitor.timeline import SYNC_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.monitor.lines import JsonLine

SKIPPED = "skipped.jsonl"

RunState = Literal["finished", "running", "stopped", "evaluated"]
"""A run that crashed and one that a person stopped look alike: both have fewer steps than planned. A model that was
only evaluated, such as the base, has answers but no steps: it is "evaluated"."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run as read from its files. Steps, samples and evaluations are records in the order they were written."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    environment: Mapping[str, str]
    steps: Sequence[JsonLine]
    samples: Sequence[JsonLine]
    evaluations: Sequence[JsonLine]
    syncs: Sequence[JsonLine]
    """One record for each time that vLLM got the student's weights; empty if transformers drew the rollouts."""
    scorecard: Scorecard | None
    exam: Path
    """The folder of its scorecard and answers: its own, or `eval` in it."""
    num_skipped: int
    process: str | None
    """The process that is training it now."""

    @property
    def last_step(self) -> int:
        """The last step recorded; 0 before the first."""
        return int(self.steps[-1]["step"]) if self.steps else 0

    @property
    def max_steps(self) -> int | None:
        """The number of steps planned."""
        value = self.setting("trainer", "max_steps")
        return value if isinstance(value, int) and value > 0 else None

    @property
    def state(self) -> RunState:
        """Whether the run is finished, running, or stopped before its end."""
        if self.process is not None:
            return "running"
        if not self.config and not self.steps and self.scorecard is not None:
            return "evaluated"
        return "finished" if self.max_steps is not None and self.last_step >= self.max_steps else "stopped"

    @property
    def cause(self) -> str | None:
        """Why a run stopped, if its files show that it skipped too many rows; else None."""
        allowed, in_step = self.setting("data", "max_skipped_share"), self.setting("prompts_per_step")
        if self.state != "stopped" or not isinstance(allowed, int | float) or not isinstance(in_step, int):
            return None
        times_skipped = sum(1 for _ in read_lines(self.folder / SKIPPED))  # a run counts a row in every epoch
        times_used = sum(len(record.get("examples", ())) for record in self.steps)
        most_seen = times_skipped + times_used + in_step  # the rows of the unfinished step are not recorded
        if most_seen < MIN_ROWS_SEEN or times_skipped <= allowed * most_seen:
            return None
        return (
            f"{self.num_skipped} rows could not be used, more than {allowed:.0%} of those read, which stops a run "
            "(data.max_skipped_share)"
        )

    def setting(self, *keys: str) -> object:
        """Return a value of the configuration, or None."""
        return value_at(self.config, *keys)

    def answers(self) -> dict[tuple[str, str], str]:
        """Return the text of each answer behind the scorecard, by benchmark and question; the latest counts.

        The file also holds answers with other settings and seeds. `asked.jsonl` has the keys of the last evaluation.
        """
        asked = {_asked_name(one): one["keys"] for one in read_lines(self.exam / ASKED) if "keys" in one}
        texts = {}
        for one in read_lines(self.exam / "predictions.jsonl"):
            name = _asked_name(one)
            if name not in asked or one.get("key") in asked[name]:
                texts[name] = str(one.get("text", ""))
        return texts

    def questions(self) -> dict[tuple[str, str], JsonLine]:
        """Return the stored sample of the questions behind the scorecard, by benchmark and question."""
        return {_asked_name(one): one for one in read_lines(self.exam / QUESTIONS)}

    def series(self, metric: str) -> list[tuple[float, float]]:
        """Return (step, value) of a metric at every step that has it."""
        return [
            (float(record["step"]), float(value))
            for record in self.steps
            if isinstance(value := record.get(metric), int | float)
        ]

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric over the steps; None if no step has it."""
        values = [value for _, value in self.series(metric)]
        return sum(values) / len(values) if values else None


def seconds_by_phase(record: JsonLine) -> dict[str, float]:
    """Return the seconds that each phase of a step took, from its line of metrics."""
    return {
        key.partition("/")[2]: float(value)
        for key, value in record.items()
        if key.startswith("seconds/") and value is not None
    }


def _asked_name(record: JsonLine) -> tuple[str, str]:
    return str(record.get("benchmark")), str(record.get("question"))


def _machines(folder: Path) -> dict[str, str]:
    """Describe the machine of a run. For a run that was resumed elsewhere, every machine is listed, in order."""
    try:
        machines = [session["environment"] for session in sessions_of(folder)]
    except (OSError, ValueError):
        machines = [read_object(folder / ENVIRONMENT)]
    names = dict.fromkeys(name for machine in machines for name in machine)
    return {name: ", then ".join(dict.fromkeys(str(machine.get(name, "-")) for machine in machines)) for name in names}


def read_run(folder: Path, name: str | None = None) -> RunRecord:
    """Read a run's folder. Raise a ConfigError if it holds no run."""
    refuse_missing_folder(folder)
    if not any((folder / name).is_file() for name in ("config.json", "metrics.jsonl", CARD)):
        seed = next(iter(sorted(folder.glob(f"seed-*/{CARD}"))), None)
        advice = "Pass the folder that trainer.output_dir names, or that of an evaluation (--out of vcsd eval)."
        advice = advice if seed is None else f"Pass one of its seeds, such as {seed.parent}."
        raise ConfigError([f"{folder} is not the folder of a run. {advice}"])
    exam = next((one for one in (folder, folder / "eval") if (one / CARD).is_file()), folder)
    card = exam / CARD
    return RunRecord(
        name=name or folder.resolve().name,
        folder=folder,
        config=read_object(folder / "config.json"),
        environment=_machines(folder),
        steps=list(read_lines(folder / "metrics.jsonl")),
        samples=list(read_lines(folder / "samples.jsonl")),
        evaluations=list(read_lines(folder / EVALUATIONS)),
        syncs=list(read_lines(folder / SYNC_FILE)),
        scorecard=load_scorecard(card) if card.is_file() else None,
        exam=exam,
        num_skipped=len({str(line.get("id")) for line in read_lines(folder / SKIPPED)}),
        process=process_in(folder),
    )


@contextmanager
def as_written_by_a_run(folder: Path | str) -> Iterator[None]:
    """Raise a ConfigError if the files of a run hold something that no run writes."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = f"{type(error).__name__}: {shown(str(error), 200)}"
        raise ConfigError(
            [f"{folder} cannot be shown: its files hold data that no run writes ({reason}). Restore or remove them."]
        ) from error


def read_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """Read several runs; each is named by the last part of its path, or by the whole path if two share a name."""
    short = [folder.resolve().name for folder in folders]
    names = [one if short.count(one) == 1 else str(folder) for one, folder in zip(short, folders, strict=True)]
    return [read_run(folder, name) for folder, name in zip(folders, names, strict=True)]


def prompt_of(sample: JsonLine) -> str:
    """Return the text of a sample's prompt, without its images."""
    return "\n".join(
        str(part.get("text", ""))
        for message in sample.get("prompt", ())
        for part in message.get("content", ())
        if isinstance(part, dict) and part.get("type") == "text"
    )


def evenly_chosen(records: Sequence[T], most: int) -> list[T]:
    """Choose records evenly from the first to the last.

    >>> [record["step"] for record in evenly_chosen([{"step": step} for step in range(7)], 3)]
    [0, 3, 6]
    """
    if len(records) <= most:
        return list(records)
    return [records[round(index * (len(records) - 1) / (most - 1))] for index in range(most)]
