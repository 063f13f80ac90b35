"""A rank that is killed, frozen or left alone does not keep the others waiting."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tiny_ranks import TIMEOUT, started
from vcsd.parallel.heartbeat import (
    EXIT_CODE,
    HEARTBEAT_SECONDS,
    SILENCE_SECONDS,
    TICK_SECONDS,
    HeartbeatWatch,
    watched_ranks,
)

SILENCE, EVERY = 2.0, 0.2
MINUTE = 60


def watches(num_ranks: int) -> list[HeartbeatWatch]:
    """The watches of all ranks on one store, whose threads do not run: the test counts their ticks."""
    store = dist.HashStore()
    found = [HeartbeatWatch(store, rank, num_ranks, silence=40, every=5) for rank in range(num_ranks)]
    for _ in range(2):
        for watch in found:
            watch.beat()
    return found


def pass_time(num_seconds: int, *alive: HeartbeatWatch) -> None:
    for second in range(num_seconds):
        for watch in alive:
            watch.ticks += 1
            if second % HEARTBEAT_SECONDS == 0:
                watch.beat()


def test_a_death_is_noticed_within_a_minute_whatever_the_rank_is_doing() -> None:
    assert SILENCE_SECONDS + HEARTBEAT_SECONDS + 2 * TICK_SECONDS <= 0.8 * MINUTE


def test_ranks_that_beat_are_never_missed() -> None:
    ranks = watches(3)
    pass_time(1000, *ranks)
    assert [watch.loss() for watch in ranks] == [None] * 3


def test_the_rank_without_a_heartbeat_is_named_after_the_silence_and_not_before() -> None:
    first, second, third = watches(3)
    pass_time(40, first, third)
    assert (first.loss(), third.loss()) == (None, None)
    pass_time(5, first, third)
    assert first.loss() == third.loss() == "rank 1 has given no sign of life for 40 seconds"
    pass_time(1, second)
    assert second.loss() is None, "a process that was stopped itself has not waited for anybody"


def test_a_rank_that_has_finished_is_not_missed() -> None:
    first, second = watches(2)
    second.say_finished()
    pass_time(1000, first)
    assert first.loss() is None


def test_a_store_that_does_not_answer_is_named_instead_of_the_ranks_it_would_tell_about() -> None:
    first, _ = watches(2)
    first.ticks += 40
    assert first.loss() is None
    first.ticks += 1
    assert first.loss() == "the store that connects them has not answered for 40 seconds"


def test_one_process_starts_no_threads() -> None:
    with watched_ranks():
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("vcsd-heartbeat")]


def in_watch(folder: Path, victim: int, how: str, survivor: str) -> None:
    """One rank is lost; the other waits for it, or is far from its next collective."""
    rank = dist.get_rank()
    os.dup2(os.open(folder / f"{rank}.txt", os.O_WRONLY | os.O_CREAT), 2)
    with watched_ranks(SILENCE, EVERY):
        dist.barrier()
        if rank == victim:
            {"is killed": die, "freezes": freeze, "fails": fail}[how]()
        elif survivor == "waits":
            dist.recv(torch.zeros(1), src=victim)
        time.sleep(TIMEOUT.total_seconds())


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def fail() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("victim", "how", "survivor", "lost"),
    [
        (1, "is killed", "decodes", "rank 1 has given no sign of life"),
        (1, "freezes", "waits", "rank 1 has given no sign of life"),
        (1, "fails", "decodes", "rank 1 has given no sign of life"),
        (0, "freezes", "waits", "the store that connects them has not answered"),
    ],
)
def test_when_a_rank_is_lost_the_other_ends_with_a_message(
    tmp_path: Path, victim: int, how: str, survivor: str, lost: str
) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    ranks = started(2, f"tcp://127.0.0.1:{port}", in_watch, tmp_path, victim, how, survivor)
    other = ranks[1 - victim]
    try:
        other.join(TIMEOUT.total_seconds())
        assert other.exitcode == EXIT_CODE
    finally:
        for process in ranks:
            process.kill()
            process.join()
    message = " ".join((tmp_path / f"{1 - victim}.txt").read_text().split())
    assert f"rank {1 - victim} of 2 cannot reach the other ranks: {lost} for 2 seconds. One of them was" in message
    assert "The same command resumes from the latest checkpoint." in message
