"""VLMEvalKit's TSV as training data: `index`, `image` in base64 or `image_path`, `question`, options A to Z, `answer`.

The prompt is the hint, the question and its options, as VLMEvalKit shows them. `vcsd.evaluation` reads the same files
as benchmarks.
"""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING

from vcsd.data.csv_file import CsvTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

COLUMNS = {"id": "index", "prompt": "question", "answer": "answer"}

REFERENCE_LENGTH = 64
"""An image cell of at most this many characters is the index of another row."""

MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
        *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
"""Cells that count as missing in pandas, with which VLMEvalKit reads its files. VLMEvalKit therefore drops an option
such as "None", and so does this package: the published numbers were made without it."""


def listed(question: str, options: Mapping[str, str], hint: str | None) -> str:
    """Put the hint, the question and its options on a line each.

    >>> listed("What is it?", {"A": "red", "B": "blue"}, None)
    'Question: What is it?\\nOptions:\\nA. red\\nB. blue\\n'
    """
    text = f"Hint: {hint}\n" if hint is not None else ""
    text += f"Question: {question}\n"
    if options:
        text += "Options:\n" + "".join(f"{letter}. {option}\n" for letter, option in options.items())
    return text


def is_vlmevalkit(columns: tuple[str, ...]) -> bool:
    """Whether a table has the columns of VLMEvalKit."""
    return {"index", "question"} <= set(columns) and bool({"image", "image_path"} & set(columns))


class VlmevalkitTable(CsvTable):
    """A VLMEvalKit TSV. An image cell may name another row by its index.

    `in_question` are the columns whose text joins the question.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(path)
        self.kind = "VLMEvalKit TSV"
        self.in_question = tuple(name for name in self.columns if name in {*ascii_uppercase, "hint"})
        self._numbers = {index: number for number, index in enumerate(self.values("index")) if index}

    def row(self, index: int) -> dict[str, object]:
        """Return the cells of one row, with options in its question and its image in place of a reference."""
        cells: dict[str, object] = {**super().row(index)}
        options = {letter: str(cells[letter]) for letter in ascii_uppercase if _text(cells, letter)}
        question = _text(cells, "question")
        if options and question:
            cells["question"] = listed(question, options, _text(cells, "hint")).rstrip("\n")
        if "category" in cells:
            cells["category"] = _text(cells, "category")
        if "image" in cells:
            cells["image"] = self._images(cells["image"])
        return cells

    def num_images(self, column: str) -> Iterator[int]:
        """Yield the number of images in each row."""
        if column != "image":
            return super().num_images(column)
        return (len(_split(value)) for value in self.values(column))

    def _images(self, cell: object) -> list[str]:
        """Return the images of a cell, or those of the row that it names."""
        images = _split(cell)
        if len(images) == 1 and len(images[0]) <= REFERENCE_LENGTH and images[0] in self._numbers:
            return _split(super().row(self._numbers[images[0]]).get("image"))
        return images


def _text(cells: Mapping[str, object], column: str) -> str | None:
    cell = cells.get(column)
    return None if cell is None or str(cell) in MISSING else str(cell)


def _split(cell: object) -> list[str]:
    """Split an image cell into its texts: one, or those of a Python list."""
    text = "" if cell is None else str(cell).strip()
    if text in MISSING:
        return []
    if not text.startswith("["):
        return [text]
    parts = (part.strip().strip("'\"") for part in text.strip("[]").split(","))
    return [part for part in parts if part]
