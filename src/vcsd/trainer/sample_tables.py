"""Samples with their images for the services of `trainer.report_to`: W&B, trackio and TensorBoard.

Trainer sends the numbers of every step to these services. This callback adds a table of the samples that the watch has
just recorded, through the objects that Trainer's own callbacks opened. It opens no connection itself: without
`report_to`, or with a service that is offline, nothing is sent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from transformers import TrainerCallback

from vcsd.types import message_texts
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from transformers import TrainerControl, TrainerState, TrainingArguments

    from vcsd.monitor.watch import Watch
    from vcsd.trainer.trainer import DistillationTrainer

log = logging.getLogger(__name__)

COLUMNS = ("step", "example", "image", "question", "response", "answer", "mean contrast")
MOST_TEXT = 2000
"""The most characters of a text that are sent."""


class SampleTables(TrainerCallback):
    """Sends the latest samples to every open service, after the step's numbers. Rank 0 alone has samples."""

    def __init__(self, trainer: DistillationTrainer, watch: Watch, folder: Path) -> None:
        self._trainer, self._watch, self._folder = trainer, watch, folder
        self._sent = 0
        """The last step whose samples were sent."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        """Send the samples of this step, if it has any. A service that fails does not stop the run."""
        records = [record for record in self._watch.latest_samples if record["step"] == state.global_step]
        if not records or self._sent == state.global_step:
            return
        self._sent = state.global_step
        for callback in self._trainer.callback_handler.callbacks:
            for attribute, send in SERVICES.items():
                service = getattr(callback, attribute, None)
                if service is None:
                    continue
                try:
                    send(service, [self._row(record) for record in records], state.global_step)
                except Exception:  # a service must never cost a run
                    log.warning("The samples of step %d could not be logged.", state.global_step, exc_info=True)

    def _row(self, record: Mapping[str, Any]) -> list[Any]:
        contrast = record.get("contrast")
        mean = None if not contrast else sum(contrast) / len(contrast)
        texts = [text for message in record["prompt"] for text in message_texts(message)]
        said, answer = str(record["response"])[:MOST_TEXT], str(record["answer"] or "")[:MOST_TEXT]
        question = "\n".join(texts)[:MOST_TEXT]
        return [record["step"], record["example_id"], self._image(record), question, said, answer, mean]

    def _image(self, record: Mapping[str, Any]) -> Image.Image | None:
        for name in record["thumbnails"]:
            with Image.open(self._folder / name) as image:
                return image.convert("RGB")
        return None


def to_tensorboard(writer: Any, rows: Sequence[Sequence[Any]], step: int) -> None:
    """Write a table as text, and the images beside it."""
    lines = ["| " + " | ".join(name for name in COLUMNS if name != "image") + " |", "|" + "---|" * (len(COLUMNS) - 1)]
    for place, row in enumerate(rows):
        cells = [_cell(value) for name, value in zip(COLUMNS, row, strict=True) if name != "image"]
        lines.append("| " + " | ".join(cells) + " |")
        image = row[COLUMNS.index("image")]
        if image is not None:
            writer.add_image(f"samples/{place + 1}", np.asarray(image), step, dataformats="HWC")
    writer.add_text("samples/table", "\n".join(lines), step)
    writer.flush()


def to_table(service: Any, rows: Sequence[Sequence[Any]], step: int) -> None:
    """Log a table of W&B or trackio, which have the same interface."""
    place = COLUMNS.index("image")
    data = [
        [value if index != place or value is None else service.Image(value) for index, value in enumerate(row)]
        for row in rows
    ]
    service.log({"samples": service.Table(columns=list(COLUMNS), data=data), "train/global_step": step})


def _cell(value: object) -> str:
    """Write a value into a cell of a Markdown table; what would end the cell or be read as markup is escaped.

    >>> _cell("a|b <script>\\n*c*"), _cell(0.25), _cell(None)
    ('a\\\\|b &lt;script&gt; \\\\*c\\\\*', '0.2500', '')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    shown = visible(" ".join(str(value).split())).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in "\\`*_[]|":
        shown = shown.replace(mark, f"\\{mark}")
    return shown


SERVICES: Mapping[str, Callable[[Any, Sequence[Sequence[Any]], int], None]] = {
    "tb_writer": to_tensorboard,
    "_wandb": to_table,
    "_trackio": to_table,
}
"""Attribute in which a Trainer callback keeps its service -> the function that sends a table there."""
