"""A stream: reads examples in shuffled order from a cursor, and counts and skips rows that cannot be used.

The cursor is a position in the order (`vcsd.data.order`): an integer. The same cursor always gives the same
examples, so a resumed run needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from vcsd.data.order import Order
from vcsd.data.skips import Skips
from vcsd.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcsd.types import Example

T = TypeVar("T")


class ExampleSource(Protocol):
    """Examples by row number: a `Source`, a list, or any sequence. An unusable row raises a DataError."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Example: ...


@dataclass(frozen=True)
class Taken(Generic[T]):
    """The prepared examples, their ids, and the cursor after them."""

    items: tuple[T, ...]
    ids: tuple[str, ...]
    cursor: int


class Stream:
    """An endless stream of examples, epoch after epoch, in a seeded order.

    >>> from vcsd.types import Example
    >>> rows = [Example(id=name, images=(), prompt=({"role": "user", "content": "?"},)) for name in "abcd"]
    >>> stream = Stream(rows, seed=0)
    >>> first = stream.take(0, 3)
    >>> first.ids, stream.take(first.cursor, 3).ids
    (('c', 'd', 'a'), ('b', 'a', 'd'))
    """

    def __init__(self, rows: ExampleSource, *, seed: int, skips: Skips | None = None) -> None:
        self.rows = rows
        self.order = Order(len(rows), seed=seed)
        self.skips = Skips() if skips is None else skips
        self.skips.num_rows = len(rows)

    def take(self, cursor: int, count: int) -> Taken[Example]:
        """Read the next `count` usable examples from a cursor on."""
        return self.take_prepared(cursor, count, lambda example: example)

    def take_prepared(self, cursor: int, count: int, prepare: Callable[[Example], T]) -> Taken[T]:
        """Read the next `count` examples as `prepare` returns them, skipping those for which it raises a DataError.

        One call never returns a row twice, even across the end of an epoch: rollouts are seeded by step and example,
        so the second copy would get the same responses.
        """
        items: list[T] = []
        ids: list[str] = []
        seen: set[int] = set()
        position = cursor
        while len(items) < count:
            row = self.order.row(position)
            if row not in seen:
                seen.add(row)
                try:
                    example = self.rows[row]
                    items.append(prepare(example))
                except DataError as error:
                    self.skips.skip(error, position=position)
                else:
                    ids.append(example.id)
                    self.skips.use()
            position += 1
            if len(seen) == len(self.rows):
                refuse_too_few(len(items), count, len(self.rows), self.skips)
        return Taken(tuple(items), tuple(ids), position)


def refuse_too_few(num_usable: int, count: int, num_rows: int, skips: Skips) -> None:
    """Raise a ConfigError if fewer rows can be used than a step needs."""
    if num_usable >= count:
        return
    last = f" The last row that was skipped: {skips.last}" if skips.last is not None else ""
    if num_usable == 0:
        raise ConfigError([f"none of the {num_rows} rows can be used ({skips.summary()}).{last}"])
    raise ConfigError(
        [
            f"a step needs {count} different examples, but the data has only {num_usable} usable ones "
            f"({num_rows} rows; {skips.summary()}). Lower prompts_per_step, or add data.{last}"
        ]
    )
