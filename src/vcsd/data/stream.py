"""Reading on: examples in shuffled order from a cursor, rows that cannot be used counted and passed over.

The cursor is a position in the order (`vcsd.data.order`), hence an integer. The same cursor gives the same examples,
whatever was read before: a resumed run needs nothing else.
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


class Rows(Protocol):
    """Examples by row number: a `Source`, a list, or anything with a length. A bad row raises a DataError."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Example: ...


@dataclass(frozen=True)
class Taken(Generic[T]):
    """What was read: prepared examples, their ids, and the cursor after them.

    >>> Taken(items=("first", "second"), ids=("a", "b"), cursor=3).cursor      # one row in between was passed over
    3
    """

    items: tuple[T, ...]
    ids: tuple[str, ...]
    cursor: int


class Stream:
    """Examples without end, epoch after epoch, in a seeded order.

    >>> from vcsd.types import Example
    >>> rows = [Example(id=name, images=(), prompt=({"role": "user", "content": "?"},)) for name in "abcd"]
    >>> stream = Stream(rows, seed=0)
    >>> first = stream.take(0, 3)
    >>> first.ids, stream.take(first.cursor, 3).ids
    (('c', 'd', 'a'), ('b', 'a', 'd'))
    """

    def __init__(self, rows: Rows, *, seed: int, skips: Skips | None = None, shuffle: bool = True) -> None:
        self.rows = rows
        self.order = Order(len(rows), seed=seed, shuffle=shuffle)
        self.skips = Skips() if skips is None else skips

    def take(self, cursor: int, count: int) -> Taken[Example]:
        """The next `count` examples that can be read, from a cursor on."""
        return self.take_prepared(cursor, count, lambda example: example)

    def take_prepared(self, cursor: int, count: int, prepare: Callable[[Example], T]) -> Taken[T]:
        """The next `count` examples as `prepare` returns them; those for which it raises a DataError are skipped.

        No row is given twice in one call, also not where one epoch ends and the next begins: rollouts are seeded by
        step and example, so a second one would answer with the same words.
        """
        items: list[T] = []
        ids: list[str] = []
        met: set[int] = set()
        position = cursor
        while len(items) < count:
            row = self.order.row(position)
            if row not in met:
                met.add(row)
                try:
                    example = self.rows[row]
                    items.append(prepare(example))
                except DataError as error:
                    self.skips.skip(error, position=position)
                else:
                    ids.append(example.id)
                    self.skips.use()
            position += 1
            if len(met) == len(self.rows) and len(items) < count:
                raise ConfigError([self._too_few(count, len(items))])
        return Taken(tuple(items), tuple(ids), position)

    def _too_few(self, count: int, num_usable: int) -> str:
        return (
            f"a step takes {count} different examples, but the data has {num_usable} that can be used "
            f"({len(self.rows)} rows; {self.skips.summary()}). Lower prompts_per_step, or give more data."
        )
