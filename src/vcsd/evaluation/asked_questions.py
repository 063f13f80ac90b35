"""`questions.jsonl` next to the answers of an evaluation: a sample of its questions, so that reports can show them.

Up to 100 questions of each benchmark are kept, with small copies of their images. A hash of their ids chooses them, so
every evaluation of a benchmark keeps the same ones, and reports on several models can show them side by side.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from vcsd.monitor.lines import Lines
from vcsd.monitor.thumbnails import Thumbnails

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vcsd.types import Question

FILE = "questions.jsonl"
ASKED = "asked.jsonl"
"""Every question without its images, with the key of its answer for each seed; `evaluate.py` writes it."""

MOST_PER_BENCHMARK = 100
MOST_CHARACTERS = 2000


def write_questions(folder: Path, questions: Sequence[Question]) -> Path:
    """Write the questions that reports may show, with their thumbnails; return the file's path."""
    thumbnails, path = Thumbnails(folder), folder / FILE
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    lines = Lines(partial)
    for question in kept_questions(questions):
        lines.append(
            {
                **{"benchmark": question.benchmark, "question": question.id, "gold": question.gold[:MOST_CHARACTERS]},
                "text": question.example.text[:MOST_CHARACTERS],
                "thumbnails": thumbnails.add(question.example),
            }
        )
    return partial.replace(path) if partial.exists() else path


def kept_questions(questions: Sequence[Question]) -> list[Question]:
    """Choose questions of each benchmark by a hash of their ids; return them in their order."""
    ranked = sorted(range(len(questions)), key=lambda index: _hash(questions[index]))
    counts: dict[str, int] = {}
    chosen = set()
    for index in ranked:
        name = questions[index].benchmark
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= MOST_PER_BENCHMARK:
            chosen.add(index)
    return [question for index, question in enumerate(questions) if index in chosen]


def _hash(question: Question) -> str:
    return hashlib.sha256(f"{question.benchmark} {question.id}".encode()).hexdigest()
