"""Heartbeat: ranks show each other that they are alive, so that none waits long for one that is gone.

    with watched_ranks():       # on all ranks
        train()

A launcher or a closed connection may tell ranks that another one is dead, but not always: a launcher sees its own
machine only, connections of GPUs and of a machine without power stay open, and a rank that decodes checks neither.
torch itself waits `trainer.ddp_timeout`, half an hour. So every rank increases a counter in the store through which the
ranks found each other, and reads the counters of the others. When one does not change for `SILENCE_SECONDS`, or when
the store does not answer, the rank prints an error and ends its process: nothing else wakes a thread that waits for a
GPU.

A rank that never arrives, such as one in an endless loop, keeps its heartbeat; `ddp_timeout` ends that wait.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from vcsd.parallel.ranks import lost_message, num_ranks, this_rank
from vcsd.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._C._distributed_c10d import Store

SILENCE_SECONDS = 40
"""How long a rank may be silent. Nothing that a training step does keeps Python's threads from running for so long."""

HEARTBEAT_SECONDS = 5
TICK_SECONDS = 1
"""How often a rank looks for silence. With the two above: the others end within 46 seconds of a death."""

EXIT_CODE = 2
"""The exit code of every error meant for users."""

_FINISHED = 2**40
"""Added to the counter of a rank that has finished and needs no watching; larger than any counter gets."""

_STORE = -1
"""Stands for the store in the table of ranks."""

_rounds = count()
"""Keeps the counters of successive watches in the same processes apart."""


@contextmanager
def watched_ranks(silence: float = SILENCE_SECONDS, every: float = HEARTBEAT_SECONDS) -> Iterator[None]:
    """Inside this context, the process ends with a message once another rank is gone. Collective; all enter together.

    A rank that leaves with an error counts as gone, unless the others leave as well.
    """
    if num_ranks() == 1:
        yield
        return
    # A connection of its own: the shared one is locked while a thread waits in it.
    store = dist.distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]  # not in torch's stub
    watch = HeartbeatWatch(
        PrefixStore(f"vcsd/heartbeat/{next(_rounds)}", store), this_rank(), num_ranks(), silence, every
    )
    watch.start()
    try:
        yield
    except BaseException:
        watch.stop(is_finished=False)
        raise
    watch.stop(is_finished=True)


class HeartbeatWatch:
    """Two threads: one talks to the store, which may never answer; the other counts for how long nothing was heard.

    Silence is counted in ticks of the second thread, not read from a clock: a process that was itself stopped for a
    while must not believe that all others were.
    """

    def __init__(self, store: Store, rank: int, num_ranks: int, silence: float, every: float) -> None:
        self.store, self.rank, self.num_ranks = store, rank, num_ranks
        self.silence, self.every, self.tick = silence, every, min(TICK_SECONDS, every)
        self.ticks = 0
        self.beats = {other: 0 for other in range(num_ranks) if other != rank}
        """The last counter read from each other rank."""
        self.heard = dict.fromkeys((*self.beats, _STORE), 0)
        """The tick at which each rank's counter last changed, and at which the store last answered."""
        self._over = threading.Event()
        self._is_finished = False
        names = {"vcsd-heartbeat": self._beat, "vcsd-listen": self._listen}
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in names.items()]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, *, is_finished: bool) -> None:
        """End both threads. A rank that has finished tells the others, so that they do not count it as gone."""
        self._is_finished = is_finished
        self._over.set()
        for thread in self._threads:
            thread.join(self.every)  # the store may be gone

    def beat(self) -> None:
        """Increase this rank's counter, and read those of the others."""
        self.store.add(str(self.rank), 1)
        for rank, last in self.beats.items():
            beat = self.store.add(str(rank), 0)  # unlike `get`, it does not wait for the key
            if beat != last:
                self.beats[rank], self.heard[rank] = beat, self.ticks
        self.heard[_STORE] = self.ticks

    def say_finished(self) -> None:
        """Tell the others not to wait for this rank's heartbeat any more."""
        self.store.add(str(self.rank), _FINISHED)

    def loss(self) -> str | None:
        """Describe which rank is gone, or that the store is; None if neither."""
        silence = {who: (self.ticks - tick) * self.tick for who, tick in self.heard.items()}
        gone = [rank for rank, beat in self.beats.items() if beat < _FINISHED and silence[rank] > self.silence]
        if gone and silence[_STORE] <= 2 * self.every:
            return f"rank {gone[0]} has given no sign of life for {self.silence:g} seconds"
        if silence[_STORE] > self.silence:
            return f"the store that connects them has not answered for {self.silence:g} seconds"
        return None

    def _beat(self) -> None:
        with suppress(RuntimeError):  # the store is gone; the other thread notices
            self.beat()
            while not self._over.wait(self.every):
                self.beat()
            if self._is_finished:
                self.say_finished()

    def _listen(self) -> None:
        while not self._over.wait(self.tick):
            self.ticks += 1
            if (loss := self.loss()) is not None and not self._over.is_set():
                self._end(loss)

    def _end(self, loss: str) -> None:
        try:
            say(f"error: {lost_message(loss, self.rank, self.num_ranks)}", to_stderr=True)
        finally:
            os._exit(EXIT_CODE)
