"""DrawingTrainer: which rollouts are drawn in which step, by which student, with which engine.

    _start_engines   make the engine that samples, or start vLLM, once the models are on their devices
    _read_ahead      read the prompts of this step, and of later ones that this step's student answers
    _draw_or_save    draw what is missing; if that fails, save and stop
    queue            holds prompts and batches until their step (`rollout/drawn_ahead.py`)

Without `rollout.steps_ahead` a step draws its own batch. `trainer.py` trains on the batches.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vcsd.batch import Batch, Shown, show
from vcsd.errors import NoRoomError, RunError, VcsdError
from vcsd.models.family import base_model
from vcsd.monitor.lines import Lines
from vcsd.monitor.timeline import SYNC_FILE, Timeline
from vcsd.parallel.distress import in_step_or_none
from vcsd.parallel.ranks import is_first, num_ranks, on_first
from vcsd.rollout.drawn_ahead import PromptsRead, RolloutQueue
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.gathered_copy import GatheredCopy
from vcsd.rollout.half_copy import HalfCopy
from vcsd.rollout.shares import of_all_ranks, sample_share
from vcsd.rollout.vllm.proven_rollouts import ProvenRollouts, RolloutsLostError
from vcsd.rollout.vllm.weight_sync import step_of
from vcsd.step import sample
from vcsd.trainer.resumable import ResumableTrainer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn
    from transformers import TrainingArguments
    from transformers.trainer_utils import TrainOutput

    from vcsd.rollout.drawn_ahead import WaitingBatch
    from vcsd.rollout.engine import RolloutEngine, Sampled
    from vcsd.rollout.vllm.start_target import VLLMSettings
    from vcsd.trainer.phases import Phases
    from vcsd.types import Example

log = logging.getLogger(__name__)

_GRAPH_FROM = 64
"""Response length from which on decoding uses a CUDA graph: recording one hardly pays off for shorter responses."""


class DrawingTrainer(ResumableTrainer):
    """Reads prompts and draws rollouts for them, step by step."""

    shards: bool
    """Whether FSDP2 shards the models."""

    half: HalfCopy | GatheredCopy | None
    """The copy of the student that samples; None if the student itself does."""

    engine: TransformersEngine

    vllm: ProvenRollouts | None = None
    """Draws rollouts instead of `engine` during training, if the run uses vLLM."""

    phases: Phases
    _encoding: Mapping[str, Any]
    """The keywords of `encode`."""

    _vllm_settings: VLLMSettings | None

    _draw_error: VcsdError | None = None
    """Why drawing in the background failed; raised in the next step."""

    _timeline: Timeline | None = None

    def _copy_for_rollouts(self, model: nn.Module, args: TrainingArguments) -> HalfCopy | GatheredCopy | None:
        """Return the copy of the student that samples; None if the student itself does."""
        dtype = torch.bfloat16 if args.bf16 and args.device.type == "cuda" else None
        if self.shards:
            return GatheredCopy(model, dtype)
        return None if dtype is None else HalfCopy(model, dtype)

    def _start_engines(self, model: nn.Module) -> None:
        """Make the engine that samples from the student or its copy, and start vLLM if the run uses it."""
        on_cuda = self.args.device.type == "cuda"
        source = base_model(model) if self.half is None else self.half.module
        if self.half is not None:
            self.half.refresh()  # the engine looks at a model's type and device
        self.engine = TransformersEngine(
            source,
            tokenizer=getattr(self.processing_class, "tokenizer", None),
            compute_dtype=torch.bfloat16 if self.args.bf16 and not on_cuda else None,
            use_graph=on_cuda and self.rollout.sampling.max_new_tokens >= _GRAPH_FROM,
            keeps_broken=True,  # logits that are not finite make the loss not finite too, which stops the run
        )
        if self.half is not None:
            self.half.release()  # until something is drawn from it: vLLM measures the free memory when it starts
        if self._vllm_settings is not None:
            self.vllm = self._start_vllm(model, self._vllm_settings)
        if self.queue.lag and (self.vllm is None or not self.vllm.draws_in_background):
            log.warning(
                "rollout.steps_ahead = %d saves no time without a vLLM server. Batches are drawn one "
                "after the other, by earlier students.",
                self.queue.lag,
            )

    def _start_vllm(self, model: nn.Module, settings: VLLMSettings) -> ProvenRollouts:
        """Start vLLM. A resumed run drops the records of the steps that it repeats."""
        folder = Path(str(self.args.output_dir))
        lines = Lines(folder / SYNC_FILE)
        on_first(lambda: lines.keep_until("step", self.state.global_step))
        if is_first():
            self._timeline = Timeline(folder, self.state.global_step)
        tokenizer = getattr(self.processing_class, "tokenizer", None)
        return ProvenRollouts(model, tokenizer, settings, bf16=bool(self.args.bf16), record=lines.append)

    def _train(self, checkpoint: str | None, **kwargs: Any) -> TrainOutput:
        self.queue, self._draw_error = RolloutQueue(self.rollout.steps_ahead), None
        try:
            return super()._train(checkpoint, **kwargs)
        finally:
            if self.vllm is not None:
                self.vllm.close()

    def _read_ahead(self) -> None:
        """Read the prompts of this step, and of those whose batches this step's student draws."""
        queue = self.queue
        for step in queue.unread(self._step_number, self.state.max_steps):
            if not queue.prompts:
                queue.before = self.stream.skips.state()
            cursor = queue.prompts[max(queue.prompts)].cursor if queue.prompts else self.progress.cursor
            taken = self.stream.take_prepared(cursor, self.prompts_per_step, self._show)
            queue.prompts[step] = PromptsRead(taken.items, taken.cursor, self.stream.skips.state())
        queue.restore()

    def _draw_or_save(self, model: nn.Module) -> None:
        """Draw what is missing. If that fails, save the state before the step, and stop the run."""
        try:
            self._draw()
        except RolloutsLostError as error:
            step = self.state.global_step
            if step > 0:
                rows = self.queue.rows_after(step)
                assert rows is not None
                self.stream.skips.restore(rows, cursor=self.progress.cursor)  # a resumed run reads these rows again
                try:
                    self._save_checkpoint(model, None)
                except RunError as unsaved:
                    raise RolloutsLostError(f"{error} {not_saved_either(unsaved)}") from error
            raise

    def _draw(self) -> None:
        """Draw the batches that the current student is due to draw: this step's, or a later one's.

        A server draws those of later steps in the background.
        """
        if self._draw_error is not None:
            raise self._draw_error
        self._collect()
        missing = self.queue.plan(self._step_number, self.state.max_steps)
        if not missing:
            return
        waits = self.vllm is None or not self.queue.lag or not self.vllm.draws_in_background
        now = missing if waits else [step for step in missing if step == self._step_number]

        def draw(engine: RolloutEngine) -> list[Batch]:
            return [self._sampled(engine, step) for step in now]

        if self.vllm is not None:
            encoded = [shown.student for shown in self.queue.prompts[missing[0]].items]
            if now:
                batches = self.vllm.draw(encoded, self._step_number, draw)
            else:
                batches = []
                self.vllm.send(encoded, self._step_number)
        else:
            self._refresh_copy()
            batches = draw(self.engine)
            if self.half is not None:
                self.half.release()
        for step, batch in zip(now, batches, strict=True):
            self._add(step, batch)
        if self.vllm is not None and len(now) < len(missing):
            self.vllm.draw_later({step: partial(self._share, step) for step in missing if step not in now})

    def _collect(self) -> None:
        """Wait for the batches that a server draws in the background."""
        if self.vllm is not None and self.queue.lag:
            for step, own in self.vllm.collect().items():
                self._add(step, of_all_ranks(self.queue.prompts[step].items, own))

    def _add(self, step: int, batch: Batch) -> None:
        """Keep a batch until its step."""
        self.queue.add(step, self._step_number if batch.version is None else step_of(batch.version), batch)

    def waiting_rollouts(self) -> list[WaitingBatch]:
        """Return the batches that were drawn ahead, those in flight included. An error is raised in the next step."""
        try:
            self._collect()
        except VcsdError as error:
            log.warning("A batch that was drawn ahead is not saved: %s", error)
            self._draw_error = error
        return super().waiting_rollouts()

    def _sampled(self, engine: RolloutEngine, step: int) -> Batch:
        """Let an engine answer the prompts of a step."""
        return sample(engine, self.queue.prompts[step].items, self.rollout, step - 1, with_log_probs=self._needs_logs)

    def _share(self, step: int, engine: RolloutEngine) -> Sampled:
        """Let an engine answer this rank's share of the prompts of a step. May run in any thread."""
        prompts = self.queue.prompts[step].items
        return sample_share(engine, prompts, self.rollout, step - 1, with_log_probs=self._needs_logs)

    @property
    def _needs_logs(self) -> bool:
        """Whether the loss needs the sampler's log-probabilities."""
        return self.method.importance_clip is not None

    def note_times(self) -> None:
        """Record when trainer and sampler worked in this step, if vLLM samples."""
        if self.vllm is None or self._timeline is None:
            return
        sampled, self.vllm.spans = self.vllm.spans, []
        self._timeline.note(self.state.global_step, self.phases.spans, sampled)

    def _refresh_copy(self) -> None:
        """Copy the student's current weights into the copy for rollouts, if there is one."""
        if not isinstance(self.half, GatheredCopy) or num_ranks() == 1:
            if self.half is not None:
                self.half.refresh()
            return
        half = self.half
        if in_step_or_none(lambda: half.refresh() or True) is None:
            raise NoRoomError(
                "a rank is out of memory while the student's weights are gathered for rollouts. Use GPUs with more "
                "memory, or train LoRA adapters (lora.rank: 32)."
            )

    @property
    def _step_number(self) -> int:
        """The current step, counted from 1 as in files and messages."""
        return self.state.global_step + 1

    def _show(self, example: Example) -> Shown:
        return show(example, self.method, self.processing_class, **self._encoding)


def not_saved_either(error: RunError) -> str:
    """Return a sentence for the end of an error: the last finished step could not be saved either."""
    return f"The last finished step could not be saved either: {error}"
