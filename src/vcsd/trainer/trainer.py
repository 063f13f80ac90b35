"""DistillationTrainer: `transformers.Trainer` with one step of the algorithm as its `training_step`.

It takes a loaded model, a processor and Examples. `VCSDTrainer` (`vcsd_trainer.py`) builds one from names and rows.

Trainer's hooks and what they do here (`resumable.py` has those for checkpoints, `drawing.py` draws the rollouts):

    training_step             sample, distill in rows, check; then Trainer's loop runs the optimizer
    on_pre_optimizer_step     start measuring the update
    on_optimizer_step         update the teacher, if the step was taken
    on_step_end               show the step to the monitors
    _prepare_for_training     give the teacher the student's device and autocast
    get_train_dataloader      only counts steps; the data comes from a cursor that checkpoints hold

The learning-rate schedule counts every step, taken or not.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from vcsd.checkpoint.progress import BeforeStep, Progress
from vcsd.data.skips import Skips
from vcsd.data.stream import ExampleSource, Stream
from vcsd.errors import ConfigError, NoRoomError, RunError
from vcsd.host_teacher import HostTeacher
from vcsd.lora.attach import with_adapters
from vcsd.lora.base_record import base_record
from vcsd.method import METHODS, Method
from vcsd.models.family import base_model, family_of
from vcsd.models.features import FeatureCache
from vcsd.models.freeze import adapted_parts, has_adapters
from vcsd.models.messages.prompt_length import within_model
from vcsd.models.weights.dither import add_offsets
from vcsd.monitor.observation import Monitor, Observation
from vcsd.parallel.distress import in_step_or_none
from vcsd.parallel.exchange import all_statistics
from vcsd.parallel.gradients import gradient_sync, replica_of
from vcsd.parallel.launch import wants_shards, without_accelerates_fsdp
from vcsd.parallel.offload import OffloadedAdamW
from vcsd.parallel.ranks import gathered, is_first, num_ranks, this_rank, where_it_fits
from vcsd.parallel.sharding import shard, whole
from vcsd.rollout.drawn_ahead import RolloutQueue
from vcsd.rollout.sampling import Sampling
from vcsd.step import Distiller, RolloutSettings, distill, scored_responses
from vcsd.teacher import Teacher
from vcsd.trainer.after_step import AfterStep
from vcsd.trainer.arguments import (
    own_arguments,
    refuse_dither,
    refuse_half_precision,
    refuse_offload,
    refuse_reentrant,
)
from vcsd.trainer.budget import DEFAULT_BUDGET, agreed_budget, room_of, worst_row
from vcsd.trainer.drawing import DrawingTrainer, not_saved_either
from vcsd.trainer.finite import ruined, save_for_inspection
from vcsd.trainer.phases import Phases
from vcsd.trainer.run_identity import content_of, same_content

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peft import PeftConfig, PeftModel
    from torch import Tensor, nn
    from transformers import PreTrainedModel, TrainerCallback, TrainingArguments

    from vcsd.batch import Batch, Shown
    from vcsd.data.skips import SkipsState
    from vcsd.loss import Statistics
    from vcsd.models.processor import Processor
    from vcsd.rollout.drawn_ahead import DrawnBatch
    from vcsd.rollout.vllm.start_target import VLLMSettings

log = logging.getLogger(__name__)

_NO_LIMIT = 2**62
_STEPS_AHEAD = 4
"""Steps searched for the longest prompt before the token budget is measured."""

MAX_NONFINITE = 3
"""A run stops after this many steps in a row without a finite loss and gradient."""


class DistillationTrainer(DrawingTrainer):
    """Trains a student towards the targets of its own teacher. `prompts_per_step` counts the whole step.

    The model is in float32; with `args.bf16` it computes in bfloat16. `token_budget` limits the tokens of a row; by
    default it is measured before the first step. `offload` keeps Adam's moments and the float32 teacher in host memory;
    a `teacher` that is passed in stays where it is. `dither` adds an offset to each trained weight before the first
    step (`models/weights/dither.py`). `monitors` see every step. With `peft_config`, or a PeftModel, LoRA adapters in
    float32 are trained on a frozen base of any type, which the teacher and the rollouts share.
    """

    _budget_used: int
    """Tokens per row with which the last step was distilled."""

    def __init__(  # noqa: PLR0913  one keyword for each part of a run
        self,
        model: PreTrainedModel | PeftModel,
        args: TrainingArguments,
        *,
        train_dataset: ExampleSource,
        processing_class: Processor,
        method: Method = METHODS["vcsd"],
        rollout: RolloutSettings | None = None,
        teacher: Teacher | None = None,
        prompts_per_step: int = 32,
        token_budget: int | None = None,
        offload: bool = False,
        dither: bool = False,
        prompt_settings: Mapping[str, Any] | None = None,
        skips: Skips | None = None,
        monitors: Sequence[Monitor] = (),
        callbacks: list[TrainerCallback] | None = None,
        peft_config: PeftConfig | None = None,
        vllm: VLLMSettings | None = None,
    ) -> None:
        self.shards = wants_shards(args)
        args = own_arguments(args, prompts_per_step)
        args.per_device_train_batch_size = prompts_per_step
        if teacher is not None and peft_config is not None:
            raise ConfigError(["a teacher was built without the adapter of peft_config. Build it from a PeftModel."])
        model = with_adapters(model, peft_config, seed=args.seed)
        _refuse_settings(model, args, offload=offload, is_sharded=self.shards)
        self.offload, self.dither = offload, dither
        self.method, self.prompts_per_step, self.monitors = method, prompts_per_step, list(monitors)
        self.rollout = RolloutSettings(Sampling(), seed=args.seed) if rollout is None else rollout
        self.prompt_settings = dict(prompt_settings or {})
        self._encoding = within_model(
            self.prompt_settings, base_model(model).config, self.rollout.sampling.max_new_tokens
        )
        family = family_of(model)
        family.prepare(model)  # before copies are made
        self.content = same_content(content_of(model, processing_class, train_dataset))
        if dither:
            _dither(model, args, teacher)
        make_teacher = HostTeacher if offload else partial(Teacher, is_alias=self.shards)
        self.teacher = teacher or make_teacher(
            model, method.teacher, ema_rate=method.ema_rate, every=method.teacher_every
        )
        family.prepare(self.teacher.module)
        self.half = self._copy_for_rollouts(model, args)
        self.end_token_ids = family.end_token_ids(model, getattr(processing_class, "tokenizer", None))
        assert args.data_seed is not None
        self.base = base_record(model) if has_adapters(model) else None
        self.stream = Stream(train_dataset, seed=args.data_seed, skips=of_rank(skips or Skips()))
        self.progress = Progress(token_budget=token_budget)
        self.queue: RolloutQueue[SkipsState] = RolloutQueue(self.rollout.steps_ahead)
        self.phases, self.updating, self._vllm_settings = Phases(args.device), ExitStack(), vllm
        self.is_taken, self.seen, self.best_values, self._taken_since_log = False, None, [], list[bool]()
        parts = {"train_dataset": train_dataset, "processing_class": processing_class, "callbacks": callbacks}
        super().__init__(model=model, args=args, **parts)
        self.add_callback(AfterStep(self))

    def create_accelerator_and_postprocess(self) -> None:
        """Create the accelerator, which must not shard."""
        with without_accelerates_fsdp():
            super().create_accelerator_and_postprocess()

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        """Leave a model that will be sharded where it is: its shards move to the device layer by layer."""
        if not self.shards:
            super()._move_model_to_device(model, device)

    def get_train_dataloader(self) -> DataLoader[int]:
        """Return one entry per step of an epoch. The cursor decides what a step reads."""
        return DataLoader(range(self._steps_per_epoch), batch_size=1, collate_fn=list)  # type: ignore[arg-type]

    def create_optimizer(self, *model: nn.Module | None) -> torch.optim.Optimizer:
        """Create Trainer's AdamW, or one with the same settings and its moments in host memory."""
        if self.offload and self.optimizer is None:
            _, settings = self.get_optimizer_cls_and_kwargs(self.args)
            self.optimizer_cls_and_kwargs = OffloadedAdamW, settings
        return super().create_optimizer(*model)

    def floating_point_ops(self, inputs: object) -> int:
        """Return 0: Trainer's formula ignores shared prefixes and rollouts."""
        return 0

    def _prepare_for_training(
        self, max_steps: int, train_dataloader: DataLoader[int], resume_from_checkpoint: str | None
    ) -> tuple[nn.Module, DataLoader[int]]:
        self._taken_since_log = []
        if self.shards:
            self._shard()
        with warnings.catch_warnings():  # accelerate passes on broadcast_buffers, which torch 2.13 calls deprecated
            warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
            model, loader = super()._prepare_for_training(  # type: ignore[no-untyped-call]
                max_steps, train_dataloader, resume_from_checkpoint
            )
        replica = replica_of(model)
        if self.teacher.kind == "current":
            self.teacher.module = replica
        elif not getattr(self.teacher.module, "_is_accelerate_prepared", False):
            self.teacher.module = self.accelerator.prepare_model(self.teacher.module, evaluation_mode=True)
        if isinstance(self.teacher, HostTeacher):
            self.teacher.refresh()
        self.distiller = Distiller(
            replica,
            self.teacher.module,
            self.method,
            self.end_token_ids,
            phase=self.phases,
            features=FeatureCache(lambda holds: all(gathered(holds)) if self.shards else holds),
            sync=gradient_sync(model),
            rank=this_rank(),
            num_ranks=num_ranks(),
        )
        self._start_engines(model)
        return model, loader

    def _shard(self) -> None:
        """Shard student and teacher, before the optimizer is made of their weights."""
        assert self.model is not None
        dtype = torch.bfloat16 if self.args.bf16 else None
        for module in (self.model, self.teacher.module):
            shard(module, self.args.device, dtype)

    def training_step(
        self, model: nn.Module, inputs: object, num_items_in_batch: Tensor | int | None = None
    ) -> torch.Tensor:
        """Run one step of the algorithm, up to the optimizer. If memory runs out, save the state before it and stop."""
        skips, problem = self.stream.skips, None
        before = BeforeStep.of(self.progress, skips.state(), self.model, self.teacher.weights)
        try:
            return self._step(model)
        except NoRoomError as error:
            problem = str(error)
        before.restore_weights()  # not in the handler, whose traceback holds tensors
        self.progress = replace(before.progress, token_budget=self.progress.token_budget)
        skips.restore(before.skips, cursor=self.progress.cursor)
        torch.cuda.empty_cache()
        try:
            saved = self.save_now(model)
        except RunError as error:
            saved = not_saved_either(error)
        raise RunError(f"{problem} {saved}")

    def _step(self, model: nn.Module) -> Tensor:
        """Read prompts, draw rollouts, distill and check. Returns the loss, or 0 if the step is not taken."""
        self.phases.reset()
        self.is_taken, self.seen, self.gradient_norm = False, None, 0.0
        with self.phases("data"):
            self._read_ahead()
        with self.phases("rollout"):
            self._draw_or_save(model)
        drawn, prompts = self.queue.of(self._step_number), self.queue.prompts[self._step_number]
        batch, self.progress.cursor = drawn.batch, prompts.cursor
        self._warn_of_broken(batch)
        self.progress.num_rollouts += len(batch.rollouts)
        model.train()
        loss = torch.zeros((), device=self.args.device)
        statistics: list[Statistics] = []
        scored: list[tuple[str, Sequence[int]]] = []
        if batch.num_responses:
            loss, statistics = self._distill(model, batch, prompts.items)
            scored = scored_responses(self.distiller, batch, self._budget_used)
            self.is_taken = self._is_finite(model, batch, loss)
        else:
            self.progress.num_empty_steps += 1
        examples = [shown.example for shown in prompts.items]
        numbers = self._numbers(drawn)
        self.seen = Observation(
            self._step_number, self.is_taken, loss.item(), examples, batch, statistics, numbers, scored
        )
        self._taken_since_log.append(self.is_taken)
        return loss if self.is_taken else torch.zeros_like(loss)

    def _warn_of_broken(self, batch: Batch) -> None:
        """Log how many rollouts ended at logits that are not finite. The loss decides whether the step is taken."""
        broken = [rollout for rollout in batch.rollouts if rollout.stop == "broken"]
        if broken:
            log.warning(
                "Step %d: the student's logits are not finite in %d of %d rollouts, first for example %r.",
                *(self._step_number, len(broken), len(batch.rollouts), broken[0].example_id),
            )

    def _distill(self, model: nn.Module, batch: Batch, shown: Sequence[Shown]) -> tuple[Tensor, list[Statistics]]:
        """Score and distill in rows that fit. When out of memory, drop the gradients, halve the rows and start over."""
        if self.progress.token_budget is None:
            self.progress.token_budget = self._measured_budget(model, shown)
        least = self._least(model, batch)
        while True:
            budget = max(self.progress.token_budget, least)
            if budget > self.progress.token_budget:
                log.warning(
                    "A prompt with one response has %d tokens, more than the budget; it gets its own row.", least
                )
            result = self._attempt(batch, budget, least)
            if result is not None:
                self._budget_used = budget
                self.distiller.sync.finish()
                return self._of_all_ranks(*result)
            model.zero_grad(set_to_none=True)  # not in the handler, where the traceback holds the row's tensors
            torch.cuda.empty_cache()
            self.progress.token_budget = max(budget // 2, least)
            log.warning(
                "Out of memory with rows of %d tokens: repeating the step with rows of %d, also used from now on.",
                *(budget, self.progress.token_budget),
            )

    def _attempt(self, batch: Batch, budget: int, least: int) -> tuple[Tensor, list[Statistics]] | None:
        """Distill in rows of at most `budget` tokens. None if some rank lacks the memory for that."""

        def run() -> tuple[Tensor, list[Statistics]]:
            return distill(self.distiller, batch, budget, self.accelerator.backward)

        result = in_step_or_none(run) if self._waits_in_rows else where_it_fits(run)
        if result is not None:
            return result
        if budget <= least:
            raise NoRoomError(_too_long(budget))
        if self._waits_in_rows:
            self.progress.token_budget = max(budget // 2, least)
            raise NoRoomError(_too_long_for_shards(budget, self.progress.token_budget))
        return None

    @property
    def _waits_in_rows(self) -> bool:
        """Whether ranks wait for each other inside a row."""
        return self.shards and num_ranks() > 1

    def _of_all_ranks(self, loss: Tensor, statistics: list[Statistics]) -> tuple[Tensor, list[Statistics]]:
        """Add up the losses of all ranks, and collect their statistics."""
        if num_ranks() > 1:
            loss = torch.tensor(sum(gathered(loss.item())), device=loss.device)
        has_realised = self.method.contrast_view is not None
        return loss, all_statistics(statistics, has_realised=has_realised)

    def _least(self, model: nn.Module, batch: Batch) -> int:
        """Return the cost of the longest prompt with one response: no row can be smaller."""
        cost = family_of(base_model(model)).cost
        return max(cost([(size.prompt, [length])]) for size in batch.sizes() for length in size.responses)

    def _measured_budget(self, model: nn.Module, shown: Sequence[Shown]) -> int:
        device = self.args.device
        if device.type != "cuda":
            return DEFAULT_BUDGET

        def measure(row: Batch) -> int:
            torch.cuda.empty_cache()
            before, phases = torch.cuda.memory_allocated(device), Phases(device)
            # Every rank runs the whole row.
            distiller = replace(self.distiller, phase=phases, rank=0, num_ranks=1)
            distill(distiller, row, _NO_LIMIT, self.accelerator.backward)
            model.zero_grad(set_to_none=True)
            return max(phases.peak_bytes.values()) - before

        family, longest = family_of(base_model(model)), self.rollout.sampling.max_new_tokens
        word = next(token for token in range(10, 1000) if token not in family.vision_token_ids(base_model(model)))
        row_of = partial(worst_row, [*shown, *self._longest_ahead()], word, max_new_tokens=longest)
        room = room_of(model, device, has_moments=not self.offload)
        budget = agreed_budget(measure, room, row_of, family.cost, in_step=self._waits_in_rows)
        log.info("Token budget: rows of up to %d tokens.", budget)
        return budget

    def _longest_ahead(self) -> Iterator[Shown]:
        """Yield the longest prompt of each of the next steps: a single step may have none of the long ones."""
        stream = Stream(self.stream.rows, seed=self.stream.order.seed, skips=Skips(max_share=1.0))
        cursor = self.progress.cursor
        for _ in range(_STEPS_AHEAD):
            taken = stream.take_prepared(cursor, self.prompts_per_step, self._show)
            cursor = taken.cursor
            yield max(taken.items, key=lambda shown: shown.num_prompt_tokens)

    def _is_finite(self, model: nn.Module, batch: Batch, loss: Tensor) -> bool:
        """Whether the step can be taken. If not, drop its gradients and save its batch for inspection."""
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(gradients))
        self.gradient_norm = norm.item()
        if loss.isfinite() and norm.isfinite():
            self.progress.num_nonfinite_in_a_row = 0
            self.proven_step = self.state.global_step
            return True
        self.progress.num_nonfinite_steps += 1
        self.progress.num_nonfinite_in_a_row += 1
        numbers = {"loss": loss.item(), "gradient_norm": norm.item()}
        path = self._inspect_folder / f"step-{self._step_number}.json"
        bad = ruined({name: p.grad for name, p in base_model(model).named_parameters() if p.grad is not None})
        if is_first():
            save_for_inspection(path, self._step_number, batch, bad, numbers)
        model.zero_grad(set_to_none=True)  # the optimizer ignores parameters without a gradient
        log.warning(
            "Skipping the update of step %d: loss %g, gradient norm %g. See %s.",
            *(self._step_number, *numbers.values(), path),
        )
        return False

    @property
    def _inspect_folder(self) -> Path:
        return Path(str(self.args.output_dir)) / "inspect"

    def stop_if_broken(self, loss: float) -> None:
        """Raise a RunError after too many steps in a row without a finite loss and gradient."""
        if self.progress.num_nonfinite_in_a_row >= MAX_NONFINITE:
            raise RunError(
                f"{MAX_NONFINITE} steps in a row gave no finite loss and gradient, the last with loss {loss} and "
                f"gradient norm {self.gradient_norm}. Their batches are in {self._inspect_folder}; "
                f"{self.last_good_checkpoint()} Lower trainer.learning_rate, or look for broken examples among them."
            )

    def _numbers(self, drawn: DrawnBatch) -> dict[str, float]:
        batch = drawn.batch
        lag = {"rollout_lag": float(self._step_number - drawn.student_step)} if self.queue.lag else {}
        return {
            **lag,
            "gradient_norm": self.gradient_norm,
            "num_responses": float(batch.num_responses),
            "num_tokens": float(batch.num_tokens),
            "token_budget": float(self.progress.token_budget or 0),
            "steps_not_taken": float(self.progress.num_empty_steps + self.progress.num_nonfinite_steps),
        }

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the step's metrics to Trainer's log, and restrict its mean loss to the steps that were taken, if any."""
        if "loss" in logs and self.seen is not None:
            logs = {**logs, **self.seen.metrics}
            taken, self._taken_since_log = self._taken_since_log, []
            if any(taken):
                logs["loss"] *= len(taken) / sum(taken)  # Trainer counts the loss of the others as 0
            else:
                del logs["loss"]
        super().log(logs, start_time)


def _refuse_settings(model: nn.Module, args: TrainingArguments, *, offload: bool, is_sharded: bool) -> None:
    """Raise a ConfigError for settings that do not fit the model."""
    refuse_half_precision(model)
    refuse_reentrant(args, adapts_vision="vision" in adapted_parts(model))
    if offload:
        refuse_offload(is_half=bool(args.bf16), has_adapters=has_adapters(model), is_sharded=is_sharded)


def _dither(model: nn.Module, args: TrainingArguments, teacher: Teacher | None) -> None:
    """Add offsets to the student's weights, before it is copied."""
    refuse_dither(is_half=bool(args.bf16), has_adapters=has_adapters(model), has_teacher=teacher is not None)
    if not add_offsets(model, args.seed):
        log.warning("model.dither = true changes nothing: no trained weight is a bfloat16 number.")


def of_rank(skips: Skips) -> Skips:
    """Let rank 0 alone list skipped rows in a file."""
    return skips if is_first() else skips.without_file()


def _too_long_for_shards(num_tokens: int, fewer: int) -> str:
    return (
        f"a rank is out of memory with rows of up to {num_tokens} tokens. With FSDP2 the others wait for it inside "
        f"the row, so this process cannot repeat the step. Set token_budget={fewer}; a resumed run does so by itself."
    )


def _too_long(num_tokens: int) -> str:
    return (
        f"out of memory in a packed row of {num_tokens} tokens, one prompt with one response. Lower model.max_pixels "
        "or rollout.max_new_tokens, freeze a part of the model, or set trainer.gradient_checkpointing: true."
    )
