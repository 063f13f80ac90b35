"""Predictions as VLMEvalKit writes them, so that anyone can score them again with VLMEvalKit's own code.

One TSV per benchmark: the cells of its file without the images, and a column `prediction`. A failed question has the
words that VLMEvalKit puts there. Rows carry VLMEvalKit's own index where the questions came from its TSVs.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from vcsd.evaluation.question import Prediction, Question

FAILED_TEXT = "Failed to obtain answer via API."


def export_predictions(
    folder: str | PathLike[str], questions: Sequence[Question], predictions: Sequence[Prediction]
) -> list[Path]:
    """Write <benchmark>.tsv for every benchmark among the questions; the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    by_benchmark: dict[str, list[dict[str, str]]] = {}
    for question, prediction in zip(questions, predictions, strict=True):
        text = FAILED_TEXT if prediction.error is not None else prediction.text
        cells = {"index": question.id, **question.fields} if question.fields else _cells(question)
        by_benchmark.setdefault(question.benchmark, []).append({**cells, "prediction": text})
    paths = []
    for name, rows in by_benchmark.items():
        paths.append(folder / f"{name}.tsv")
        columns = list(dict.fromkeys(column for row in rows for column in row if column != "prediction"))
        paths[-1].parent.mkdir(parents=True, exist_ok=True)  # a name such as world/small has a folder of its own
        with paths[-1].open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*columns, "prediction"], delimiter="\t", restval="")
            writer.writeheader()
            writer.writerows(rows)
    return paths


def _cells(question: Question) -> dict[str, str]:
    """The same columns for questions that came from no file."""
    content = question.example.prompt[-1]["content"]
    text = content if isinstance(content, str) else "\n".join(str(part["text"]) for part in content if "text" in part)
    return {"index": question.id, "question": text, **question.options, "answer": question.gold, **question.groups}
