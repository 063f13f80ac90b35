"""Writes predictions in VLMEvalKit's format, so that anyone can score them with VLMEvalKit's own code.

One TSV per benchmark: the cells of its file without the images, and a column `prediction`. A failed question has
VLMEvalKit's text for failures. Rows carry VLMEvalKit's own index if the questions came from its TSVs.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from vcsd.types import Prediction, Question

FAILED_TEXT = "Failed to obtain answer via API."


def export_predictions(
    folder: str | PathLike[str], questions: Sequence[Question], predictions: Sequence[Prediction]
) -> list[Path]:
    """Write <benchmark>.tsv for every benchmark among the questions; return the paths."""
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
        paths[-1].parent.mkdir(parents=True, exist_ok=True)  # a name such as world/small needs a folder
        with paths[-1].open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*columns, "prediction"], delimiter="\t", restval="")
            writer.writeheader()
            writer.writerows(rows)
    return paths


def _cells(question: Question) -> dict[str, str]:
    """Build the same columns for questions that did not come from a file."""
    cells = {"index": question.id, "question": question.text, **question.options, "answer": question.gold}
    return {**cells, **{name: group for name, group in question.groups.items() if name not in cells}}
