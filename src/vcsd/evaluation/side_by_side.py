"""Several calls at a time, results as they come; whoever stops waiting is not held up by a call that hangs.

The threads of `concurrent.futures` are waited for when a program ends: with a server that does not answer, Ctrl-C would
take as long as the server's time-out. The threads here are left behind.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

T = TypeVar("T")
R = TypeVar("R")


class SideBySide(Generic[T, R]):
    """Calls `do` on every item, `num` at a time. Yields an item's place, and its result or the exception.

    >>> with SideBySide(len, ["a", "bc"], 2) as work:
    ...     sorted((place, result) for place, result, error in work)
    [(0, 1), (1, 2)]
    """

    def __init__(self, do: Callable[[T], R], items: Sequence[T], num: int) -> None:
        self._do, self._items = do, items
        self._todo: SimpleQueue[int] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, R, None] | tuple[int, None, Exception]] = SimpleQueue()
        for place in range(len(items)):
            self._todo.put(place)
        self._num_left = len(items)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(num, len(items)))]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin_no_more()

    def __iter__(self) -> Iterator[tuple[int, R, None] | tuple[int, None, Exception]]:
        while self._num_left:
            self._num_left -= 1
            yield self._done.get()

    def begin_no_more(self) -> None:
        """Leave out what has not begun; what is under way is still handed out."""
        while True:
            try:
                self._todo.get_nowait()
            except Empty:
                return
            self._num_left -= 1

    def _work(self) -> None:
        while True:
            try:
                place = self._todo.get_nowait()
            except Empty:
                return
            try:
                self._done.put((place, self._do(self._items[place]), None))
            except Exception as error:  # handed to the one who waits
                self._done.put((place, None, error))
