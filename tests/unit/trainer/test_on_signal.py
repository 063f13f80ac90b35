"""A run that is told to stop finishes its step, saves, and says so."""

import logging
import os
import signal
import threading
from types import SimpleNamespace

import pytest

from tiny_step import losses_of, make_trainer
from vcsd.checkpoint import checkpoints_of
from vcsd.teacher import fingerprint, named_tensors
from vcsd.trainer import on_signal, resumable
from vcsd.trainer.on_signal import OnSignal, Stopped

SAVES = {"save_strategy": "steps", "save_steps": 4, "max_steps": 4}


@pytest.fixture(autouse=True)
def _default_handlers():
    """A shell lets what it starts in the background ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Send:
    """A monitor that sends signals to its own process while a step is under way."""

    def __init__(self, step, *numbers):
        self.step, self.numbers = step, numbers

    def observe(self, seen):
        if seen.step == self.step:
            for number in self.numbers:
                signal.raise_signal(number)
        return {}

    def state(self):
        return {}

    def restore(self, state, step):
        pass


def train(folder, *monitors):
    with OnSignal() as signals:
        trainer = make_trainer(folder, arguments=SAVES, monitors=monitors, callbacks=[signals])
        trainer.train("auto")
        signals.raise_if_stopped()
    return trainer


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_lets_the_step_end_and_saves_it(tmp_path, caplog, number, code):
    with caplog.at_level(logging.WARNING), pytest.raises(Stopped) as stop:
        train(tmp_path / "parts", Send(2, number))
    assert stop.value.exit_code == code
    assert list(checkpoints_of(tmp_path / "parts")) == [3]  # it came when the end of step 2 was already decided
    assert f"Saved checkpoint-3, as {number.name} asked." in caplog.text
    whole, resumed = train(tmp_path / "whole"), train(tmp_path / "parts", Send(0))
    assert losses_of(resumed) == losses_of(whole)
    assert fingerprint(named_tensors(resumed.model)) == fingerprint(named_tensors(whole.model))


def test_a_second_signal_stops_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(on_signal, "SAME_SECONDS", 0)
    with pytest.raises(Stopped) as stop:
        train(tmp_path, Send(2, signal.SIGTERM, signal.SIGINT))
    assert stop.value.exit_code == 130
    assert checkpoints_of(tmp_path) == {}


def test_a_signal_to_another_rank_is_not_the_first_of_two(monkeypatch):
    """The rank that ends first makes the launcher signal the others, which may still write their report."""
    monkeypatch.setattr(on_signal, "SAME_SECONDS", 0)
    monkeypatch.setattr(on_signal, "gathered", lambda own: [own, (signal.SIGTERM, False)])
    state, control = SimpleNamespace(global_step=2, max_steps=4), SimpleNamespace()
    with OnSignal() as signals:
        signals.on_train_begin(None, state, control)
        signals.on_step_end(None, state, control)
        assert control.should_training_stop
        signals.on_train_end(None, state, control)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_that_arrives_while_ranks_agree_counts_after_the_next_step(monkeypatch, number):
    """The other ranks do not know of it yet: this one must neither forget it nor save alone."""
    waiting = [number]

    def agreed(own):
        while waiting:
            signal.raise_signal(waiting.pop())
        return [own, (0, False)]

    monkeypatch.setattr(on_signal, "gathered", agreed)
    state, control = SimpleNamespace(global_step=2, max_steps=4), SimpleNamespace()
    with OnSignal() as signals:
        signals.on_train_begin(None, state, control)
        signals.on_step_end(None, state, control)
        assert vars(control) == {}
        signals.on_step_end(None, state, control)
    assert control.should_save
    assert hasattr(control, "should_training_stop") == (number == signal.SIGTERM)


def test_a_signal_that_arrives_twice_in_a_moment_is_one_signal(tmp_path, monkeypatch):
    monkeypatch.setattr(on_signal, "SAME_SECONDS", 60)
    with pytest.raises(Stopped):
        train(tmp_path, Send(1, signal.SIGTERM, signal.SIGTERM))
    assert list(checkpoints_of(tmp_path)) == [2]


def test_a_signal_during_a_save_stops_after_that_save(tmp_path, monkeypatch):
    write = resumable.write_checkpoint

    def interrupted(*given, **named):
        signal.raise_signal(signal.SIGTERM)
        return write(*given, **named)

    monkeypatch.setattr(resumable, "write_checkpoint", interrupted)
    monkeypatch.setitem(SAVES, "save_steps", 1)
    with pytest.raises(Stopped):
        train(tmp_path)
    assert list(checkpoints_of(tmp_path)) == [1]


def test_a_signal_in_the_last_step_changes_nothing(tmp_path):
    trainer = train(tmp_path, Send(4, signal.SIGTERM))
    assert trainer.state.global_step == 4
    assert list(checkpoints_of(tmp_path)) == [4]


def test_sigusr1_saves_and_the_run_continues(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        trainer = train(tmp_path, Send(1, signal.SIGUSR1))
    assert trainer.state.global_step == 4
    assert list(checkpoints_of(tmp_path)) == [2, 4]
    assert caplog.text.count("as SIGUSR1 asked. Continuing.") == 1


def test_before_training_a_signal_stops_at_once():
    with OnSignal(), pytest.raises(Stopped, match="stopped by SIGTERM"):
        signal.raise_signal(signal.SIGTERM)


def test_handlers_of_the_program_stay_and_defaults_come_back():
    received = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
    try:
        with OnSignal():
            os.kill(os.getpid(), signal.SIGUSR1)
        assert received == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_in_another_thread_signals_are_left_alone():
    failures = []

    def enter():
        try:
            with OnSignal():
                pass
        except ValueError as error:
            failures.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert failures == []
