"""What the rows of the paper's tables would cost, projected from shapes: training, disk, and the questions.

Training takes the recipe's machine, the questions one of its GPUs. Their time rests on the length of answers, which
nobody knows in advance: as in the projection of training, every answer is taken to have the length of a full rollout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.evaluation.asking.model_answerer import BATCH_SIZE, BATCH_TOKENS
from vcsd.evaluation.benchmarks.loading import choose_benchmarks
from vcsd.projection.machines import MACHINES
from vcsd.projection.needs import TYPICAL_PROMPT, empty_model, job_of
from vcsd.projection.project import Step, decode_seconds, smallest_machine
from vcsd.projection.spoken import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vcsd.config import Recipe
    from vcsd.projection.machines import Card, Machine
    from vcsd.projection.project import Job

_LARGE = ("HRBench4K", "HRBench8K")
"""Benchmarks whose images are as large as the processor allows."""

_MOST_PIXELS = 2**24
"""What the processors of the paper's models allow (longest_edge in their preprocessor_config.json)."""

_PIXELS_PER_TOKEN = 32 * 32
_KEPT = 3
"""Checkpoints on disk at once: two, and the one that is being written."""

_YEAR = 365 * 86_400


@dataclass(frozen=True)
class RowCost:
    """What one row takes. `machine` is None if the recipe fits on no machine that is known."""

    row: str
    machine: Machine | None
    num_questions: int
    answer_tokens: int
    answer_seconds: float
    """Seconds to ask the exported student all questions."""
    training_seconds: float = 0.0
    disk_bytes: float = 0.0
    num_exams: int = 0
    """How often the student is asked during training."""
    num_exam_questions: int = 0
    exam_seconds: float = 0.0
    """Seconds of all these together."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole row."""
        return self.training_seconds + self.exam_seconds + self.answer_seconds

    @property
    def line(self) -> str:
        """The row in words."""
        if self.machine is None:
            return f"{self.row}: fits no machine that is known"
        asked = f"{hours(self.answer_seconds)} for {self.num_questions:,} questions"
        if not self.training_seconds:
            return f"{self.row}: evaluation only, {asked} on {self.machine.card.name} (projected)"
        parts = [f"{hours(self.training_seconds)} of training on {self.machine.name}"]
        if self.num_exams:
            questions = f"{self.num_exams} x {self.num_exam_questions:,} questions"
            parts.append(f"{hours(self.exam_seconds)} for {questions} on the way")
        parts += [f"then {asked}", f"{self.disk_bytes / 2**30:.0f} GiB of disk"]
        return f"{self.row}: {', '.join(parts)} (projected)"


def cost_of(row: str, recipe: Recipe, most_tokens: int) -> RowCost:
    """Project a row. Answers have at most `most_tokens`."""
    job = job_of(recipe, empty_model(recipe)[0])
    tokens = min(recipe.rollout.max_new_tokens, most_tokens)
    projection = smallest_machine(job, MACHINES)
    num_questions = sum(_sizes(["all"], None).values())
    if projection is None:
        return RowCost(row, None, num_questions, tokens, 0.0)
    card = projection.machine.card
    answer_seconds = _asking_seconds(job, card, recipe, _sizes(["all"], None), tokens)
    if row.startswith("base/"):
        return RowCost(row, projection.machine, num_questions, tokens, answer_seconds)
    exam, steps = recipe.evaluation, recipe.trainer["max_steps"]
    sizes = {} if exam.every is None else _sizes(exam.benchmarks, exam.limit)
    num_exams = 0 if exam.every is None else 1 + -(-steps // exam.every)  # before the first step and after the last
    return RowCost(
        *(row, projection.machine, num_questions, tokens, answer_seconds),
        training_seconds=projection.step_seconds * steps,
        disk_bytes=_KEPT * projection.checkpoint_bytes,
        num_exams=num_exams,
        num_exam_questions=sum(sizes.values()),
        exam_seconds=num_exams * _asking_seconds(job, card, recipe, sizes, tokens),
    )


def cost_lines(costs: Sequence[RowCost]) -> Iterator[str]:
    """Say what each row takes, what all take together, and what the time of the questions rests on."""
    yield from (cost.line for cost in costs)
    known = [cost for cost in costs if cost.machine is not None]
    missing = f", without {len(costs) - len(known)} that fit no machine" if len(known) < len(costs) else ""
    yield f"total: {hours(sum(cost.seconds for cost in known))}, one row after the other{missing} (projected)"
    tokens = ", ".join(f"{length:,}" for length in sorted({cost.answer_tokens for cost in costs}))
    yield (
        f"Questions are projected for answers of {tokens} tokens and prompts of {TYPICAL_PROMPT:,} tokens, those of "
        f"HRBench with the largest images, {BATCH_SIZE} at once or {BATCH_TOKENS:,} tokens of prompts. No evaluation "
        "of a real model has been timed."
    )


def hours(seconds: float) -> str:
    """Say a time in hours; one of more than a year in words.

    >>> hours(5400), hours(1e12)
    ('1.5 h', 'more than 100 years')
    """
    return f"{seconds / 3600:.1f} h" if seconds < _YEAR else duration(seconds)


def _sizes(names: Sequence[str], limit: int | None) -> dict[str, int]:
    """The number of questions of each benchmark. With a limit there may be a few more: groups of them stay whole."""
    chosen = {benchmark.name: benchmark.num_questions or 0 for benchmark in choose_benchmarks(names)}
    return {name: number if limit is None else min(number, limit) for name, number in chosen.items()}


def _asking_seconds(job: Job, card: Card, recipe: Recipe, sizes: dict[str, int], tokens: int) -> float:
    """Seconds to ask questions in the batches of `ModelAnswerer`, on one card."""
    largest = min(recipe.model.max_pixels or _MOST_PIXELS, _MOST_PIXELS) // _PIXELS_PER_TOKEN
    seconds = 0.0
    for name, number in sizes.items():
        prompt = max(largest, TYPICAL_PROMPT) if name in _LARGE else TYPICAL_PROMPT
        at_once = min(BATCH_SIZE, -(-BATCH_TOKENS // prompt))
        seconds += decode_seconds(job, card, Step(number, 1, prompt, tokens), at_once) if number else 0.0
    return seconds
