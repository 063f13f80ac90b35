"""Runs several calls at a time and yields results as they arrive. A call that hangs does not block the exit.

Python waits for the threads of `concurrent.futures` when a program ends: with a server that does not answer, Ctrl-C
would take as long as the time-out. The threads here are daemons, for which Python does not wait.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

T = TypeVar("T")
R = TypeVar("R")


class SideBySide(Generic[T, R]):
    """Calls `do` on every item, `num` at a time. Yields each item's index with its result or the exception.

    >>> with SideBySide(len, ["a", "bc"], 2) as work:
    ...     sorted((index, result) for index, result, error in work)
    [(0, 1), (1, 2)]
    """

    def __init__(self, do: Callable[[T], R], items: Sequence[T], num: int) -> None:
        self._do, self._items = do, items
        self._todo: SimpleQueue[int] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, R, None] | tuple[int, None, Exception]] = SimpleQueue()
        for index in range(len(items)):
            self._todo.put(index)
        self._num_left = len(items)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(num, len(items)))]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.begin_no_more()

    def __iter__(self) -> Iterator[tuple[int, R, None] | tuple[int, None, Exception]]:
        while self._num_left:
            self._num_left -= 1
            yield self._done.get()

    def begin_no_more(self) -> None:
        """Drop the calls that have not begun; results of those under way are still yielded."""
        while True:
            try:
                self._todo.get_nowait()
            except Empty:
                return
            self._num_left -= 1

    def _work(self) -> None:
        while True:
            try:
                index = self._todo.get_nowait()
            except Empty:
                return
            try:
                self._done.put((index, self._do(self._items[index]), None))
            except Exception as error:  # yielded to the caller
                self._done.put((index, None, error))
