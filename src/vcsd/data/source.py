"""A source: reads a table as Examples, row by row, with stable ids and a report of which rows it leaves out."""

from __future__ import annotations

import hashlib
import logging
from array import array
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from vcsd.data.columns import (
    FIELDS,
    Columns,
    ImageFolder,
    first_cell,
    read_answer,
    read_boxes,
    read_category,
    read_image,
    read_text,
)
from vcsd.data.formats.conversation import read_conversation
from vcsd.data.prompts import build_prompt
from vcsd.data.skips import RowError, reason
from vcsd.data.table import Table, image_cells, is_nan, row_name
from vcsd.errors import ConfigError, DataError, RunError, did_you_mean, few, shown
from vcsd.types import Example, refuse_half_pair
from vcsd.views.prompt import append_to_question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from vcsd.data.formats.conversation import Conversation

log = logging.getLogger(__name__)

SWITCH = ("keep", "drop")
_SHOWN = 3
_MAX_UNUSED = 20
_PEEKED = 8

MAX_IMAGES = 1024
"""Images of a row. Each is a file to open, and at least one token of a prompt."""


class Dropped(NamedTuple):
    """How many rows a switch leaves out before they are read. They are not errors and do not count as skipped."""

    several_images: int = 0
    no_image: int = 0


class Source:
    """Examples by row number. Reading an unusable row raises a DataError, which the caller counts (`Skips`).

    `multi_image` and `text_only` keep or drop rows with several images and rows without images. `instruction` is
    appended to every question. With `trusts_paths`, image paths may leave the data folder.
    """

    def __init__(
        self,
        table: Table,
        *,
        images: Path | None = None,
        columns: Mapping[str, str | None] | None = None,
        multi_image: str = "keep",
        text_only: str = "keep",
        instruction: str | None = None,
        trusts_paths: bool = False,
    ) -> None:
        self.table = table
        self._tells_references = True
        self._first = self._first_conversations(dict(columns or {}))
        if self._images_are_inside and not {"images", "image", "image_path"} & set(table.columns):
            columns = {"images": None, **(columns or {})}
        self.columns = Columns.find(table.name, table.columns, columns)
        self._folder = ImageFolder(images or table.folder, is_named=images is not None, is_open=trusts_paths)
        self._instruction = instruction
        self._switches = {"multi_image": multi_image, "text_only": text_only}
        self._check_switches()
        self._check_ids()
        self._rows, self.dropped = self._choose_rows()
        if not len(self):
            raise ConfigError([f"{self.report()} Nothing is left to train on."])

    def __len__(self) -> int:
        return len(self.table) if self._rows is None else len(self._rows)

    def __getitem__(self, row: int) -> Example:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        index = row if self._rows is None else self._rows[row]
        try:
            cells = self.table.row(index)
        except OSError as error:
            raise RunError(
                f"{self.table.name} cannot be read any more: {error}. Restore it; the same command resumes from the "
                "latest checkpoint."
            ) from error
        return self._build(self._id(index, self.columns.cell(cells, "id")), cells)

    def _id(self, index: int, cell: object) -> str:
        """Return a row's own id, or a name made of the table's and its number."""
        name = row_name(self.table, index)
        if cell is None:
            return name
        if not _is_id(cell):
            raise RowError(name, f"its id is {shown(cell)}, not a text or a number.", reason="malformed_row")
        if isinstance(cell, str):
            with reason("malformed_row"):
                refuse_half_pair(name, "id", cell)
        return str(cell)

    def __iter__(self) -> Iterator[Example]:
        return (self[row] for row in range(len(self)))

    def report(self) -> str:
        """Describe the data in one paragraph."""
        used = {column for columns in self.columns.by_field.values() for column in columns}
        used |= set(getattr(self.table, "in_question", ()))
        unused = [column for column in self.table.columns if column not in used]
        drops = "".join(
            f" {count:,} {f'row {what} is' if count == 1 else f'rows {what} are'} dropped ({switch}: drop)."
            for count, what, switch in (
                (self.dropped.several_images, "with several images", "multi_image"),
                (self.dropped.no_image, "without an image", "text_only"),
            )
            if count
        )
        rest = f" Not used: {few(unused, _MAX_UNUSED)}." if unused else ""
        return (
            f"{self.table.kind} {self.table.name}: {len(self.table):,} rows.{drops} "
            f"{len(self.table) - sum(self.dropped):,} examples with {self.columns.report()}.{rest}"
        )

    def fingerprint(self) -> str:
        """Return a hash of what decides the order of rows: their number, which are kept, which columns are read."""
        # A field that was added later counts only where a table has it, so that earlier runs can be resumed. A category
        # changes nothing in a run.
        columns_by_field = {name: columns for name, columns in self.columns.by_field.items() if name != "category"}
        fields = [item for item in sorted(columns_by_field.items()) if item != ("control_images", ())]
        parts = (len(self.table), self.table.columns, fields, self._instruction)
        kept = b"" if self._rows is None else self._rows.tobytes()
        return hashlib.blake2b(repr(parts).encode() + kept, digest_size=16).hexdigest()

    def content_hash(self) -> str:
        """Return a hash of the rows' content, which `fingerprint` leaves out."""
        return self.table.content_hash()

    def _build(self, row_id: str, cells: Mapping[str, object]) -> Example:
        cell = partial(self.columns.cell, cells)
        texts = {field: read_text(row_id, field, cell(field)) for field in ("demonstration", "feedback")}
        conversation = read_conversation(row_id, cell("prompt"))
        answer = read_answer(row_id, cell("answer"))
        if conversation.reference is not None:
            self._tell_of_references()
            answer = conversation.reference if answer is None else answer
        pictures = self._pictures(row_id, conversation, image_cells(cell("images")))
        prompt = build_prompt(row_id, conversation.prompt, len(pictures))
        images = tuple(read_image(row_id, picture, self._folder) for picture in pictures)
        boxes = read_boxes(row_id, cell("boxes"))
        control_cells = _limited(row_id, image_cells(cell("control_images")))
        controls = tuple(read_image(row_id, image, self._folder) for image in control_cells)
        texts["category"] = read_category(cell("category"))
        with reason("malformed_row"):
            example = Example(
                id=row_id, images=images, prompt=prompt, answer=answer, boxes=boxes, control_images=controls, **texts
            )
            if self._instruction:
                example = replace(example, prompt=append_to_question(example, self._instruction))
        return example

    def _first_conversations(self, chosen: Mapping[str, str | None]) -> list[Conversation]:
        """Read the prompts of the first rows, which show whether images and answers are inside the messages."""
        column = chosen.get("prompt")
        names = [column] if column else [name for name in FIELDS["prompt"] if name in self.table.columns]
        conversations = []
        for index in range(min(_PEEKED, len(self.table))):
            try:
                cells = self.table.row(index)
                conversations.append(read_conversation(row_name(self.table, index), first_cell(cells, names)))
            except (DataError, OSError):
                continue
        return conversations

    @property
    def _images_are_inside(self) -> bool:
        return any(conversation.images for conversation in self._first)

    def provides(self, field: str) -> bool:
        """Whether rows have a field: in a column or, for an answer, as the last turn of their messages."""
        if self.columns.of(field):
            return True
        return field == "answer" and any(conversation.reference is not None for conversation in self._first)

    def _pictures(self, row_id: str, conversation: Conversation, in_column: list[object]) -> list[object]:
        if conversation.images and in_column:
            raise RowError(
                row_id,
                f"it has {len(conversation.images)} images inside its messages and {len(in_column)} in a column. "
                "Keep them in one place.",
                reason="malformed_row",
            )
        return _limited(row_id, [*conversation.images, *in_column])

    def _tell_of_references(self) -> None:
        """Warn once that answers inside the data are not shown. By default, Python would not show an info message."""
        if self._tells_references:
            self._tells_references = False
            name = self.table.name
            log.warning("%s: a final assistant turn is the reference answer; it is never shown.", name)

    def _choose_rows(self) -> tuple[array[int] | None, Dropped]:
        """Return the rows that the switches keep; None for all."""
        if set(self._switches.values()) == {"keep"}:
            return None, Dropped()
        rows, several, none = array("Q"), 0, 0
        for index, num_images in enumerate(self._num_images()):
            if num_images > 1 and self._switches["multi_image"] == "drop":
                several += 1
            elif num_images == 0 and self._switches["text_only"] == "drop":
                none += 1
            else:
                rows.append(index)
        return rows, Dropped(several_images=several, no_image=none)

    def _num_images(self) -> Iterator[int]:
        """Yield the number of images in each row, from its first image column that is not empty."""
        columns = [self.table.num_images(column) for column in self.columns.of("images")]
        if self._images_are_inside:
            columns = [
                (_count_inside(value) for value in self.table.values(name)) for name in self.columns.of("prompt")
            ]
        if not columns:
            return (0 for _ in range(len(self.table)))
        return (next((count for count in counts if count), 0) for counts in zip(*columns, strict=True))

    def _check_ids(self) -> None:
        """Check that ids are unique: they seed the rollouts and identify rows in the log."""
        seen: set[int] = set()
        repeated: list[str] = []
        ids = (value for column in self.columns.of("id") for value in self.table.values(column))
        for value in ids:
            if value == "" or not _is_id(value):
                continue
            # Eight bytes of a hash: a set of long ids would be larger than the table's index.
            key = int.from_bytes(
                hashlib.blake2b(str(value).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
            )
            if key in seen:
                repeated.append(str(value))
            seen.add(key)
        if repeated:
            first_few = ", ".join(map(shown, repeated[:_SHOWN])) + (", ..." if len(repeated) > _SHOWN else "")
            raise ConfigError(
                [
                    f"{self.table.name}: {len(repeated)} rows repeat the id of an earlier one: {first_few}. "
                    "Make ids unique, or set data.columns.id to null to name rows by their number."
                ]
            )

    def _check_switches(self) -> None:
        problems = [
            f"data.{name} = {value!r} is not a choice. {did_you_mean(value, SWITCH)}"
            for name, value in self._switches.items()
            if value not in SWITCH
        ]
        if problems:
            raise ConfigError(problems)


def _limited(row_id: str, pictures: list[object]) -> list[object]:
    """Return the images of a row. Raise a RowError if they are too many for one prompt."""
    if len(pictures) > MAX_IMAGES:
        message = f"it has {len(pictures):,} images, {MAX_IMAGES:,} are allowed. Split the row."
        raise RowError(row_id, message, reason="malformed_row")
    return pictures


def _is_id(cell: object) -> bool:
    """Whether a cell can name a row: a text or a number."""
    return isinstance(cell, str | int | float) and not isinstance(cell, bool) and not is_nan(cell)


def _count_inside(cell: object) -> int:
    """Count the images inside a prompt cell; 0 for one that cannot be read."""
    try:
        return len(read_conversation("", cell).images)
    except DataError:
        return 0
