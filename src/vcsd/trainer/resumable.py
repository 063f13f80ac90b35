"""Saving and resuming: Trainer's hooks, with our checkpoints in place of its pickles.

A checkpoint holds student, teacher, optimizer, scheduler, random generators, data cursor, token budget, counters and
the monitors' state. A run that goes on from it does what it would have done: on a CPU, and on a GPU with
`full_determinism`, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import Trainer
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import TrainOutput

from vcsd.checkpoint import (
    Contents,
    TensorFile,
    check_checkpoint,
    checkpoints_of,
    latest_checkpoint,
    write_checkpoint,
)
from vcsd.checkpoint.lock import only_process
from vcsd.checkpoint.state import load_optimizer, load_weights, optimizer_state, random_state, set_random_state
from vcsd.errors import ConfigError
from vcsd.models.processor import save_processor_files
from vcsd.step import base_of
from vcsd.teacher import named_tensors
from vcsd.trainer.garbage import old_objects_set_aside
from vcsd.trainer.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from vcsd.data.stream import Stream
    from vcsd.method import Method
    from vcsd.step import Rollouts
    from vcsd.teacher import Teacher
    from vcsd.trainer.progress import Monitor, Observation

STUDENT, TEACHER = "student.safetensors", "teacher.safetensors"
OPTIMIZER, RANDOM = "optimizer.safetensors", "random.safetensors"
RUN_STATE, TRAINER_STATE = "run_state.json", "trainer_state.json"

_SAME_ARGUMENTS = (
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "optim", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("weight_decay", "max_grad_norm", "seed", "data_seed", "bf16"),
)
"""Arguments that a resumed run must share with its checkpoint."""


class ResumableTrainer(Trainer):
    """A Trainer whose checkpoints are whole, hold the teacher, and belong to one run."""

    method: Method
    rollout: Rollouts
    teacher: Teacher
    stream: Stream
    progress: Progress
    monitors: Sequence[Monitor]
    prompts_per_step: int
    prompt_settings: dict[str, Any]
    seen: Observation | None
    _checked: Path | None = None
    best_values: list[float]
    """Values since the last checkpoint of the metric that `metric_for_best_model` names."""

    def train(self, resume_from_checkpoint: str | bool | None = None, **given: Any) -> Any:  # type: ignore[override]
        """Train. "auto" goes on from the latest checkpoint if there is one; True demands one; a path names one."""
        with only_process(Path(str(self.args.output_dir))), old_objects_set_aside():
            return self._train(self._resolve(resume_from_checkpoint), **given)

    def _train(self, checkpoint: str | None, **given: Any) -> Any:
        if checkpoint is not None:
            state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE))
            if state.global_step >= self.args.max_steps > 0:  # Trainer would do one step more
                self.state = state
                self._load_from_checkpoint(checkpoint)
                return TrainOutput(state.global_step, 0.0, {})
        else:  # lines of a run in this folder that did not reach its first checkpoint
            self.stream.skips.restore(self.stream.skips.state(), cursor=self.progress.cursor)
        return super().train(resume_from_checkpoint=checkpoint, **given)

    def check_resume(self, resume: str | bool | None) -> None:
        """Raise now what `train` would raise about checkpoints, before anything in the folder is changed."""
        self._resolve("auto" if resume is True else resume)

    def _resolve(self, resume: str | bool | None) -> str | None:
        """The checkpoint to go on from, checked, or None to begin."""
        root = Path(str(self.args.output_dir))
        latest = latest_checkpoint(root)
        if resume is None or resume is False:
            if latest is not None:
                raise ConfigError(
                    [f"{root} already holds {latest.name}. Resume from it, or choose another trainer.output_dir."]
                )
            return None
        chosen = latest if resume is True or resume == "auto" else Path(resume)
        if chosen is None:
            if resume == "auto":
                return None
            raise ConfigError([f"{root} holds no checkpoint to resume from."])
        if chosen != self._checked:  # it reads all of a checkpoint: once is enough
            check_checkpoint(chosen, self.identity())
            self._checked = chosen
        return str(chosen)

    def identity(self) -> dict[str, Any]:
        """Whose run a checkpoint is: what may not change between its parts."""
        shapes = [
            (name, tuple(parameter.shape), str(parameter.dtype), parameter.requires_grad)
            for name, parameter in base_of(self._student()).named_parameters()
        ]
        rows: Any = self.stream.rows
        arguments = {name: _plain(getattr(self.args, name)) for name in _SAME_ARGUMENTS}
        if not str(arguments["lr_scheduler_type"]).startswith("constant"):
            arguments["max_steps"] = self.args.max_steps
        return {
            "method": asdict(self.method),
            "rollout": asdict(self.rollout),
            "prompts_per_step": self.prompts_per_step,
            "prompt_settings": self.prompt_settings,
            "trainer": arguments,
            "model": hashlib.sha256(repr(shapes).encode()).hexdigest()[:16],
            "data": rows.fingerprint() if hasattr(rows, "fingerprint") else len(rows),
        }

    def contents(self) -> Contents:
        """All that the run needs to go on."""
        student, teacher = base_of(self._student()), self.teacher.weights
        assert self.optimizer is not None
        assert self.lr_scheduler is not None
        moments, settings = optimizer_state(self.optimizer, student)
        tensors = {STUDENT: named_tensors(student), OPTIMIZER: moments, RANDOM: random_state()}
        if teacher is not None:
            tensors[TEACHER] = named_tensors(teacher)
        run = {
            "progress": asdict(self.progress),
            "teacher": {"kind": self.teacher.kind, "num_updates": self.teacher.num_updates},
            "optimizer": settings,
            "scheduler": self.lr_scheduler.state_dict(),
            "skips": self.stream.skips.state(),
            "monitors": [monitor.state() for monitor in self.monitors],
        }
        texts = {RUN_STATE: json.dumps(run), TRAINER_STATE: json.dumps(asdict(self.state), sort_keys=True)}
        return Contents(tensors, texts, self.identity(), self._copy_files)

    def _copy_files(self, folder: Path) -> None:
        """Configuration and processor files, so that a checkpoint can be exported without the original model."""
        model = base_of(self._student())
        model.config.save_pretrained(folder)
        if model.can_generate():
            model.generation_config.save_pretrained(folder)
        source = getattr(self.processing_class, "source_folder", None)
        if source is not None and Path(source).is_dir():
            save_processor_files(source, folder)
        else:
            found = "came from no folder" if source is None else f"came from {source}, which is gone"
            warnings.warn(f"the checkpoint has no processor files: the processor {found}.", stacklevel=2)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        step, root = self.state.global_step, Path(str(self.args.output_dir))
        self._note_best(step)
        limit, protected = self.args.save_total_limit, self._protected(root)
        write_checkpoint(root, step, self.contents(), limit=limit, protected=protected)

    def _protected(self, root: Path) -> set[int]:
        """Steps whose checkpoints are kept whatever the limit: the best, and those from before a monitor's trouble."""
        kept = set() if self.progress.best_step is None else {self.progress.best_step}
        for monitor in self.monitors:
            good: int | None = getattr(monitor, "last_good_step", None)
            before = [step for step in checkpoints_of(root) if good is not None and step <= good]
            kept |= set(before[-1:])
        return kept

    def _note_best(self, step: int) -> None:
        """Remember the checkpoint with the best mean of `metric_for_best_model`; it is kept whatever the limit."""
        values, self.best_values = self.best_values, []
        if not values:
            return
        mean, best = sum(values) / len(values), self.progress.best_value
        is_better = best is None or (mean > best if self.args.greater_is_better else mean < best)
        if is_better:
            self.progress.best_step, self.progress.best_value = step, mean

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_weights(base_of(self._student()), TensorFile(Path(resume_from_checkpoint) / STUDENT), "student")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Everything but the student and the generators, which Trainer asks for at other times."""
        if checkpoint is None:
            return
        assert self.optimizer is not None
        assert self.lr_scheduler is not None
        folder = Path(checkpoint)
        run = json.loads((folder / RUN_STATE).read_text(encoding="utf-8"))
        moments = TensorFile(folder / OPTIMIZER)
        load_optimizer(self.optimizer, base_of(self._student()), moments, run["optimizer"])
        self.lr_scheduler.load_state_dict(run["scheduler"])
        if self.teacher.weights is not None:
            load_weights(self.teacher.weights, TensorFile(folder / TEACHER), "teacher")
        self.teacher.num_updates = run["teacher"]["num_updates"]
        wanted, self.progress = self.progress.token_budget, Progress(**run["progress"])
        if wanted is not None and self.progress.token_budget is not None:
            # A smaller one is wanted now, or the old one has been halved since for lack of memory.
            self.progress.token_budget = min(wanted, self.progress.token_budget)
        self.stream.skips.restore(run["skips"], cursor=self.progress.cursor)
        step = TrainerState.load_from_json(str(folder / TRAINER_STATE)).global_step
        for monitor, state in zip(self.monitors, run["monitors"], strict=True):
            monitor.restore(state, step)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            set_random_state(TensorFile(Path(checkpoint) / RANDOM))

    def _load_scaler(self, checkpoint: str | None) -> None:
        """There is none: bfloat16 needs no loss scaling."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Write the student as a plain Hugging Face folder, without the pickled arguments that Trainer adds."""
        folder = Path(str(self.args.output_dir if output_dir is None else output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        base_of(self._student()).save_pretrained(folder, state_dict=state_dict)
        self._copy_files(folder)

    def _student(self) -> nn.Module:
        assert self.model is not None
        return self.model


def _plain(value: Any) -> Any:
    """An enumeration as its word."""
    return getattr(value, "value", value)
