"""Save before the machine is taken away: what a run does on SIGTERM, SIGINT and SIGUSR1.

    with OnSignal() as on_signal:
        VCSDTrainer(..., callbacks=[on_signal]).train("auto")
        on_signal.raise_if_stopped()

SIGTERM, SIGINT   finish the step, save, and stop; a second one stops at once
SIGUSR1           save after the step, and continue

With several ranks, all of them save and stop after the same step, whichever got the signal. When one ends first, the
launcher signals the others; they count this as their first signal, not as a second one. Outside of training, SIGTERM
and SIGINT stop at once: there is nothing to save. Signals that the program ignores or handles itself are left alone.
"""

from __future__ import annotations

import logging
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from transformers import TrainerCallback

from vcsd.parallel.ranks import gathered
from vcsd.terminal.stopping import SAME_SECONDS, STOPS, Stopped, handled_by, stop

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Self

    from transformers import TrainerControl, TrainerState, TrainingArguments

log = logging.getLogger(__name__)

SAVE = getattr(signal, "SIGUSR1", None)
"""None on Windows, which lacks it."""


class OnSignal(TrainerCallback):
    """Handle signals inside this context. Works in the main thread only, as Python requires."""

    def __init__(self) -> None:
        self.stop: signal.Signals | None = None
        """The signal for which all ranks stop, once they have agreed."""
        self._asked: signal.Signals | None = None
        """The signal that asked this process to stop."""
        self._told_time: float | None = None
        """When this process itself got a signal to stop; None if it did not, even if another rank did."""
        self._wants_save = False
        self._is_training = False
        self._handling = ExitStack()

    def __enter__(self) -> Self:
        numbers = [number for number in (*STOPS, SAVE) if number is not None]
        self._handling.enter_context(handled_by(self._handle, numbers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handling.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == SAVE:
            self._wants_save = True
            return
        if self._told_time is not None and time.monotonic() - self._told_time < SAME_SECONDS:
            return
        is_stopping = self.stop is not None and self._told_time is None  # for another rank's signal
        if self._told_time is not None or not (self._is_training or is_stopping):
            stop(number, frame)
            return
        self._told_time = time.monotonic()
        if not is_stopping:
            self._asked = signal.Signals(number)
            log.warning("%s: stopping after this step and a save. Send it again to stop at once.", self._asked.name)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Let signals wait for the end of the step from here on."""
        self._is_training = True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Ask Trainer to save, and to stop after that, if a signal came to any rank."""
        if self._agree() or self.stop is not None:
            control.should_save = True
        if self.stop is not None:
            control.should_training_stop = True

    def _agree(self) -> bool:
        """Tell the other ranks: all of them stop and save after the same step. Return whether any was asked to save.

        A signal that arrives while this rank waits for the others is exchanged the next time.
        """
        signals = gathered((0 if self._asked is None else int(self._asked), self._wants_save))
        if number := max(number for number, _ in signals):
            self.stop = signal.Signals(number)
        return any(wants for _, wants in signals)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        """Log a save that a signal asked for, or that was due when the signal came."""
        wants_save = self._agree()
        if self.stop is not None:
            control.should_training_stop = True
            log.warning("Saved checkpoint-%d, as %s asked.", state.global_step, self.stop.name)
        elif wants_save:
            log.warning("Saved checkpoint-%d, as SIGUSR1 asked. Continuing.", state.global_step)
        self._wants_save = False

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Forget a signal that came during the last step: the run is complete."""
        self._is_training = False
        if state.global_step >= state.max_steps:
            self.stop = self._asked = None

    def raise_if_stopped(self) -> None:
        """Raise Stopped if a signal ended the run early."""
        if self.stop is not None:
            raise Stopped(self.stop)
