"""VCSDTrainer: `transformers.Trainer` with one step of the algorithm as its `training_step`.

    trainer = VCSDTrainer(model, TrainingArguments("runs/first", max_steps=90), method=METHODS["vcsd"],
                          train_dataset=examples, processing_class=processor)
    trainer.train()

Hooks, and why there (those for checkpoints are in `resumable.py`):

    training_step             sample, distil in rows, check; the optimizer's step follows in Trainer's loop
    on_pre_optimizer_step     the update's time begins
    on_optimizer_step         the teacher follows the student, if the step was taken
    on_step_end               monitors look at the step
    _prepare_for_training     the teacher gets device and autocast as the student did
    get_train_dataloader      Trainer counts steps; the data comes from a cursor, which a checkpoint holds

The learning-rate schedule counts steps, taken or not.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from vcsd.batch import Batch, Shown, show
from vcsd.data.skips import Skips
from vcsd.data.stream import Rows, Stream
from vcsd.errors import RunError
from vcsd.method import METHODS, Method
from vcsd.models.family import family_of
from vcsd.rollout.half_copy import HalfCopy
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.transformers import TransformersEngine
from vcsd.step import Distiller, Rollouts, base_of, distil, sample
from vcsd.teacher import Teacher
from vcsd.trainer.after_step import AfterStep
from vcsd.trainer.arguments import own_arguments
from vcsd.trainer.budget import DEFAULT_BUDGET, calibrate, room_of, worst_row
from vcsd.trainer.inspect import save_for_inspection
from vcsd.trainer.phases import Phases
from vcsd.trainer.precision import refuse_half_precision
from vcsd.trainer.progress import Monitor, Observation, Progress
from vcsd.trainer.resumable import ResumableTrainer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn
    from transformers import PreTrainedModel, TrainerCallback, TrainingArguments

    from vcsd.kernels import Statistics
    from vcsd.models.processor import Processor

log = logging.getLogger(__name__)

_NO_LIMIT = 2**62
_STEPS_AHEAD = 4
"""Steps whose prompts are looked at for the longest, before the token budget is measured."""

_GRAPH_FROM = 64
"""Tokens from which a rollout is decoded with a CUDA graph: shorter ones hardly repay the recording."""

MAX_NONFINITE = 3
"""Steps in a row without a finite loss and gradient that stop a run."""


class VCSDTrainer(ResumableTrainer):
    """Trains a student towards its own teacher. Numbers of prompts and rollouts are those of a whole step.

    model is in float32; with `args.bf16` it computes in bfloat16. `token_budget` bounds the tokens of a row; by
    default it is measured before the first step. `monitors` see every step.
    """

    def __init__(  # noqa: PLR0913  one keyword for each noun of a run
        self,
        model: PreTrainedModel,
        args: TrainingArguments,
        *,
        train_dataset: Rows,
        processing_class: Processor,
        method: Method = METHODS["vcsd"],
        rollout: Rollouts | None = None,
        teacher: Teacher | None = None,
        prompts_per_step: int = 32,
        token_budget: int | None = None,
        prompt_settings: Mapping[str, Any] | None = None,
        skips: Skips | None = None,
        monitors: Sequence[Monitor] = (),
        callbacks: list[TrainerCallback] | None = None,
    ) -> None:
        args = own_arguments(args, prompts_per_step)
        args.per_device_train_batch_size = prompts_per_step
        refuse_half_precision(model)
        self.method, self.prompts_per_step, self.monitors = method, prompts_per_step, list(monitors)
        self.rollout = Rollouts(Sampling(), seed=args.seed) if rollout is None else rollout
        self.prompt_settings = dict(prompt_settings or {})
        family = family_of(model)
        family.prepare(model)  # before copies are made
        self.teacher = teacher or Teacher(model, method.teacher, ema_rate=method.ema_rate, every=method.teacher_every)
        family.prepare(self.teacher.module)
        self.half = HalfCopy(model) if args.bf16 and args.device.type == "cuda" else None
        self.end_token_ids = family.end_token_ids(model, getattr(processing_class, "tokenizer", None))
        assert args.data_seed is not None
        self.stream = Stream(train_dataset, seed=args.data_seed, skips=skips)
        self.progress = Progress(token_budget=token_budget)
        self.phases = Phases(args.device)
        self.updating = ExitStack()
        self.is_taken, self.seen, self.best_values = False, None, []
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            processing_class=processing_class,
            callbacks=callbacks,
        )
        self.add_callback(AfterStep(self))

    def get_train_dataloader(self) -> DataLoader[int]:
        """One entry per step of an epoch. What a step reads is decided by the cursor."""
        steps = range(max(1, len(self.stream.rows) // self.prompts_per_step))
        return DataLoader(steps, batch_size=1, collate_fn=list)  # type: ignore[arg-type]

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted: Trainer's formula knows neither shared prefixes nor rollouts."""
        return 0

    def _prepare_for_training(
        self, max_steps: int, train_dataloader: DataLoader[int], resume_from_checkpoint: str | None
    ) -> tuple[nn.Module, DataLoader[int]]:
        model, loader = super()._prepare_for_training(  # type: ignore[no-untyped-call]
            max_steps, train_dataloader, resume_from_checkpoint
        )
        if self.teacher.kind == "current":
            self.teacher.module = model
        elif not getattr(self.teacher.module, "_is_accelerate_prepared", False):
            self.teacher.module = self.accelerator.prepare_model(self.teacher.module, evaluation_mode=True)
        dtype = torch.bfloat16 if self.args.bf16 and self.half is None else None
        tokenizer = getattr(self.processing_class, "tokenizer", None)
        source = base_of(model) if self.half is None else self.half.module
        if self.half is not None:
            self.half.refresh()
        use_graph = self.args.device.type == "cuda" and self.rollout.sampling.max_new_tokens >= _GRAPH_FROM
        self.engine = TransformersEngine(
            source,
            tokenizer=tokenizer,
            compute_dtype=dtype,
            use_graph=use_graph,
            keeps_broken=True,  # a student whose logits are not finite has such a loss, which stops the run
        )
        self.distiller = Distiller(model, self.teacher.module, self.method, self.end_token_ids, phase=self.phases)
        return model, loader

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Tensor | int | None = None
    ) -> torch.Tensor:
        """One step of the algorithm, up to the optimizer's."""
        self.phases.reset()
        self.is_taken, self.seen, self.gradient_norm = False, None, 0.0
        step = self.state.global_step
        with self.phases("data"):
            taken = self.stream.take_prepared(self.progress.cursor, self.prompts_per_step, self._show)
        self.progress.cursor = taken.cursor
        with self.phases("rollout"):
            if self.half is not None:
                self.half.refresh()
            batch = sample(self.engine, taken.items, self.rollout, step)
        self._tell_broken(batch, step)
        self.progress.num_rollouts += len(batch.rollouts)
        model.train()
        loss = torch.zeros((), device=self.args.device)
        statistics: list[Statistics] = []
        if batch.num_responses:
            loss, statistics = self._distil(model, batch, taken.items)
            self.is_taken = self._is_finite(model, batch, loss)
        else:
            self.progress.num_empty_steps += 1
        examples = [each.example for each in taken.items]
        self.seen = Observation(step, self.is_taken, loss.item(), examples, batch, statistics, self._numbers(batch))
        return loss if self.is_taken else torch.zeros_like(loss)

    def _tell_broken(self, batch: Batch, step: int) -> None:
        """Count the rollouts that met logits which are not finite. Whether the step is taken, its loss decides."""
        broken = [rollout for rollout in batch.rollouts if rollout.stop == "broken"]
        if broken:
            log.warning(
                "Step %d: the student's logits are not finite in %d of %d answers, first to example %r.",
                *(step + 1, len(broken), len(batch.rollouts), broken[0].example_id),
            )

    def _show(self, example: Any) -> Shown:
        return show(example, self.method, self.processing_class, **self.prompt_settings)

    def _distil(self, model: nn.Module, batch: Batch, shown: Sequence[Shown]) -> tuple[Tensor, list[Statistics]]:
        """Score and pull, in rows that fit. Out of memory: gradients are dropped, rows halved, all is done again."""
        if self.progress.token_budget is None:
            self.progress.token_budget = self._measured_budget(model, shown)
        least = self._least(model, batch)
        while True:
            budget = max(self.progress.token_budget, least)
            if budget > self.progress.token_budget:
                log.warning(
                    "A prompt with one response has %d tokens, more than the budget: it gets its own row.", least
                )
            try:
                return distil(self.distiller, batch, budget, self.accelerator.backward)
            except torch.OutOfMemoryError:
                if budget <= least:
                    raise RunError(_too_long(budget)) from None
            model.zero_grad(set_to_none=True)  # here, not in the handler: the traceback held the row's tensors
            torch.cuda.empty_cache()
            self.progress.token_budget = max(budget // 2, least)
            log.warning(
                "Out of memory with rows of %d tokens: the step is done again with rows of %d, and so are later ones.",
                *(budget, self.progress.token_budget),
            )

    def _least(self, model: nn.Module, batch: Batch) -> int:
        """What the longest prompt with one response costs: no row can be smaller."""
        cost = family_of(base_of(model)).cost
        return max(cost([(size.prompt, [length])]) for size in batch.sizes() for length in size.responses)

    def _measured_budget(self, model: nn.Module, shown: Sequence[Shown]) -> int:
        device = self.args.device
        if device.type != "cuda":
            return DEFAULT_BUDGET

        def measure(row: Batch) -> int:
            torch.cuda.empty_cache()
            before, phases = torch.cuda.memory_allocated(device), Phases(device)
            distil(replace(self.distiller, phase=phases), row, _NO_LIMIT, self.accelerator.backward)
            model.zero_grad(set_to_none=True)
            return max(phases.peak_bytes.values()) - before

        family, longest = family_of(base_of(model)), self.rollout.sampling.max_new_tokens
        word = next(token for token in range(10, 1000) if token not in family.vision_token_ids(base_of(model)))
        row_of = partial(worst_row, [*shown, *self._further()], word, max_new_tokens=longest)
        budget = calibrate(measure, room_of(model, device), row_of, family.cost)
        log.info("Rows of up to %d tokens.", budget)
        return budget

    def _further(self) -> Iterator[Shown]:
        """Prompts of later steps: the longest of one step says little about the longest of all."""
        stream = Stream(self.stream.rows, seed=self.stream.order.seed, skips=Skips(max_share=1.0))
        cursor = self.progress.cursor
        for _ in range(_STEPS_AHEAD):
            taken = stream.take_prepared(cursor, self.prompts_per_step, self._show)
            cursor = taken.cursor
            yield max(taken.items, key=lambda each: each.num_prompt_tokens)

    def _is_finite(self, model: nn.Module, batch: Batch, loss: Tensor) -> bool:
        """Whether the step can be taken. If not, its gradients are dropped and its batch is written down."""
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        self.gradient_norm = norm.item()
        if loss.isfinite() and norm.isfinite():
            self.progress.num_nonfinite_in_a_row = 0
            return True
        self.progress.num_nonfinite_steps += 1
        self.progress.num_nonfinite_in_a_row += 1
        numbers = {"loss": loss.item(), "gradient_norm": norm.item()}
        step = self.state.global_step + 1  # as files and messages count, from 1
        path = save_for_inspection(self._inspect_folder, step, batch, base_of(model), numbers)
        model.zero_grad(set_to_none=True)  # parameters without a gradient are left alone by the optimizer
        log.warning("Step %d is not taken: loss %g, gradient norm %g. See %s.", step, *numbers.values(), path)
        return False

    @property
    def _inspect_folder(self) -> Path:
        return Path(str(self.args.output_dir)) / "inspect"

    def stop_if_broken(self, loss: float) -> None:
        """Raise a RunError after too many steps in a row that were not finite."""
        if self.progress.num_nonfinite_in_a_row >= MAX_NONFINITE:
            raise RunError(
                f"{MAX_NONFINITE} steps in a row gave no finite loss and gradient, the last with loss {loss} and "
                f"gradient norm {self.gradient_norm}. Their batches are in {self._inspect_folder}; the last checkpoint "
                "is untouched. Lower trainer.learning_rate, or look for broken examples among them."
            )

    def _numbers(self, batch: Batch) -> dict[str, float]:
        return {
            "gradient_norm": self.gradient_norm,
            "num_responses": float(batch.num_responses),
            "num_tokens": float(batch.num_tokens),
            "token_budget": float(self.progress.token_budget or 0),
            "steps_not_taken": float(self.progress.num_empty_steps + self.progress.num_nonfinite_steps),
        }

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Trainer's log with the step's numbers. A step that was not taken has no loss to show."""
        if "loss" in logs and self.seen is not None:
            logs = {**logs, **self.seen.metrics}
            if not self.seen.is_taken:
                del logs["loss"]
        super().log(logs, start_time)


def _too_long(num_tokens: int) -> str:
    return (
        f"out of memory in a row of {num_tokens} tokens, one prompt with one response. Lower model.max_pixels or "
        "rollout.max_new_tokens, freeze a part of the model, or set trainer.gradient_checkpointing: true."
    )
