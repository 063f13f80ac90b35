"""VCSDTrainer: the trainer as a user builds it, from a model's name and raw rows.

    trainer = VCSDTrainer("Qwen/Qwen3-VL-2B-Instruct", train_dataset=dataset, method="vcsd")
    trainer.train()

Settings and data are checked before weights are loaded. Without other `monitors`, the run folder gets metrics.jsonl,
samples.jsonl, skipped.jsonl and config.json, and the terminal a progress bar.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PrinterCallback, ProgressCallback

from vcsd.checkpoint.lock import only_process
from vcsd.data.skips import Skips
from vcsd.errors import said_in_python
from vcsd.inputs import (
    as_method,
    check_arguments,
    check_parts,
    open_inputs,
    refuse_others,
    rollout_settings,
    watch_of,
    write_settings,
)
from vcsd.parallel.ranks import entered_by_first, on_first
from vcsd.trainer.arguments import own_arguments, too_rare
from vcsd.trainer.trainer import DistillationTrainer, of_rank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from peft import PeftConfig, PeftModel
    from transformers import PreTrainedModel, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import TrainOutput

    from vcsd.method import Method
    from vcsd.models.processor import Processor
    from vcsd.monitor.observation import Monitor
    from vcsd.rollout.vllm.start_target import VLLMSettings
    from vcsd.step import RolloutSettings
    from vcsd.teacher import Teacher

log = logging.getLogger(__name__)


class VCSDTrainer(DistillationTrainer):
    """Trains a student with VCSD or another method of `METHODS`.

    `model` is a hub id, a folder or a loaded model in float32. `train_dataset` is a list of dictionaries, a
    `datasets.Dataset` or `IterableDataset`, a path, or Examples (docs/data.md). Without `args`, the paper's are used;
    without `processing_class`, the model's. `num_generations` is TRL's name for rollouts per prompt. Without
    `monitors`, the run is watched and its folder written; `()` turns that off. With `peft_config`, LoRA adapters are
    trained (docs/lora.md). With `vllm`, vLLM draws the rollouts (docs/vllm.md).
    """

    @said_in_python()
    def __init__(  # noqa: PLR0913  one keyword for each part of a run
        self,
        model: PreTrainedModel | PeftModel | str | PathLike[str],
        args: TrainingArguments | None = None,
        *,
        train_dataset: object = None,
        processing_class: Processor | None = None,
        method: Method | str = "vcsd",
        rollout: RolloutSettings | None = None,
        num_generations: int | None = None,
        teacher: Teacher | None = None,
        prompts_per_step: int = 32,
        token_budget: int | None = None,
        offload: bool = False,
        dither: bool = False,
        prompt_settings: Mapping[str, Any] | None = None,
        skips: Skips | None = None,
        monitors: Sequence[Monitor] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        peft_config: PeftConfig | None = None,
        vllm: VLLMSettings | None = None,
        **others: object,
    ) -> None:
        given = dict(locals())  # the arguments by their names
        refuse_others(others, [name for name in given if name not in {"self", "others", "__class__"}])
        check_parts(given)
        method, args = as_method(method), check_arguments(args)
        own_arguments(args, prompts_per_step)  # raises for what cannot be used, before anything is loaded
        rollout = rollout_settings(rollout, num_generations, seed=args.seed)
        folder = Path(str(args.output_dir))
        skips = of_rank(Skips(folder / "skipped.jsonl") if skips is None else skips)
        settings = dict(prompt_settings or {})
        parts = open_inputs(model, train_dataset, processing_class, method, prompts_per_step, args, settings, skips)
        named = parts.names.get("model", {})
        self._names = {**parts.names, "model": {**named, "dither": True}} if dither else parts.names
        self._watch = watch_of(args, parts, prompts_per_step) if monitors is None else None
        watched = [] if self._watch is None else [self._watch]
        super().__init__(
            parts.model,
            args,
            train_dataset=parts.examples,
            processing_class=parts.processor,
            method=method,
            rollout=rollout,
            teacher=teacher,
            prompts_per_step=prompts_per_step,
            token_budget=token_budget,
            offload=offload,
            dither=dither,
            prompt_settings=settings,
            skips=skips,
            monitors=watched if monitors is None else monitors,
            callbacks=callbacks,
            peft_config=peft_config,
            vllm=vllm,
        )
        if self._watch is not None:  # it has a progress bar of its own
            self.remove_callback(PrinterCallback)
            self.remove_callback(ProgressCallback)

    @said_in_python()
    def train(  # type: ignore[override]
        self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any
    ) -> TrainOutput:
        """Train. "auto" resumes from the latest checkpoint if there is one, True requires one, a path names one."""
        if warning := too_rare(self.args, self.num_steps_planned):
            on_first(lambda: log.warning("%s", warning))
        if self._watch is None:
            return super().train(resume_from_checkpoint, **kwargs)
        folder = Path(str(self.args.output_dir))
        with entered_by_first(lambda: only_process(folder)):  # nothing in a folder that is in use may change
            self.check_resume(resume_from_checkpoint)
            what = (self.args, self.method, self.rollout, self.prompts_per_step, self._names, self.num_steps_planned)
            on_first(lambda: write_settings(folder, *what))
            with self._watch:
                return super().train(resume_from_checkpoint, **kwargs)
