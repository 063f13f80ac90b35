"""Saving and resuming: overrides Trainer's hooks to write safetensors and JSON instead of pickles.

A checkpoint holds student, teacher, optimizer, scheduler, random generators, data cursor, token budget, counters and
the monitors' state. With LoRA, student and teacher are adapters, without their base. A resumed run equals an
uninterrupted one bit for bit, on a CPU and, with `full_determinism`, on a GPU.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from dataclasses import asdict
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import Trainer
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import TrainOutput

from vcsd.checkpoint import (
    Contents,
    DamagedCheckpointError,
    TensorFile,
    check_checkpoint,
    checkpoints_of,
    latest_whole,
    move_aside,
    own_file,
    refuse_other_run,
    write_checkpoint,
)
from vcsd.checkpoint.check import latest_seen_by_first
from vcsd.checkpoint.disk_space import DiskNeeds, num_saves_after, planned_steps
from vcsd.checkpoint.lock import only_process
from vcsd.checkpoint.progress import Progress
from vcsd.checkpoint.state import load_optimizer, load_weights, optimizer_state, random_state, set_random_state
from vcsd.checkpoint.tensors import num_bytes
from vcsd.errors import ConfigError, RunError, shown
from vcsd.host_teacher import HostTeacher
from vcsd.lora.adapter_files import adapter_config, settings_of, write_adapter, write_config
from vcsd.lora.base_record import BASE, BaseRecord
from vcsd.models.family import base_model
from vcsd.models.freeze import is_adapter
from vcsd.models.processor import has_processor_files, save_processor_files
from vcsd.parallel.heartbeat import watched_ranks
from vcsd.parallel.ranks import entered_by_first, is_first, on_first, reported_losses, this_rank
from vcsd.teacher import own_tensors
from vcsd.trainer.arguments import explained_services
from vcsd.trainer.finite import ruined
from vcsd.trainer.garbage import old_objects_frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.checkpoint.folder import Manifest
    from vcsd.data.skips import SkipsState
    from vcsd.data.stream import Stream
    from vcsd.method import Method
    from vcsd.monitor.observation import Monitor, Observation
    from vcsd.rollout.drawn_ahead import RolloutQueue, WaitingBatch
    from vcsd.step import RolloutSettings
    from vcsd.teacher import Teacher
    from vcsd.trainer.run_identity import Content

log = logging.getLogger(__name__)

STUDENT, TEACHER = "student.safetensors", "teacher.safetensors"
OPTIMIZER, RANDOM = "optimizer.safetensors", "random.safetensors"
PROVENANCE = "provenance.json"
"""The run's content, and the last step known to be good; early checkpoints lack it."""

RUN_STATE, TRAINER_STATE = "run_state.json", "trainer_state.json"
WAITING = "waiting_rollouts.json"
"""Rollouts of later steps, if rollouts are drawn ahead: their student is gone, so they cannot be drawn again."""

_SAME_ARGUMENTS = (
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "optim", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("weight_decay", "max_grad_norm", "seed", "data_seed", "bf16"),
)
"""Arguments that must be the same in a checkpoint and in the run that resumes from it."""


class ResumableTrainer(Trainer):
    """A Trainer whose checkpoints are complete, include the teacher, and belong to one run."""

    method: Method
    rollout: RolloutSettings
    teacher: Teacher
    stream: Stream
    progress: Progress
    monitors: Sequence[Monitor]
    prompts_per_step: int
    prompt_settings: dict[str, Any]
    seen: Observation | None
    queue: RolloutQueue[SkipsState]
    content: Content
    base: BaseRecord | None
    """The frozen base of LoRA adapters; None without adapters."""
    dither: bool
    """Whether trained weights got offsets before the first step."""
    proven_step: int | None = None
    """The last step after which the weights gave a finite loss and gradient: known only in the step after it."""
    _checked: Path | None = None
    """The latest checkpoint, once it is known to be whole and of this run."""
    _saved_step: int | None = None
    was_finished: bool = False
    """Whether no step was left when the run was opened."""
    best_values: list[float]
    """The values of `metric_for_best_model` since the last checkpoint."""

    def train(  # type: ignore[override]
        self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any
    ) -> TrainOutput:
        """Train. "auto" resumes from the latest checkpoint if there is one, True requires one, a path names one."""
        folder = Path(str(self.args.output_dir))
        locked = entered_by_first(lambda: only_process(folder))  # a barrier: all ranks have reached this point
        with locked, old_objects_frozen(), watched_ranks(), reported_losses(), explained_services():
            try:
                return self._train(self._resolve(resume_from_checkpoint), **kwargs)
            except torch.OutOfMemoryError as error:
                raise RunError(
                    f"out of memory between rows: {shown(str(error), 200)}. Lower token_budget, set offload: true or "
                    "lora.rank: 32, or use more GPUs. The same command resumes from the latest checkpoint."
                ) from error

    def _train(self, checkpoint: str | None, **kwargs: Any) -> TrainOutput:
        self._saved_step, self.was_finished = None, False
        if checkpoint is not None:
            state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE))
            if state.global_step >= self.num_steps_planned:  # Trainer would do one more step
                log.info("All %d steps of %s are finished already.", state.global_step, self.args.output_dir)
                self.state, self.was_finished = state, True
                self.progress = Progress(**_read(Path(checkpoint) / RUN_STATE)["progress"])
                self._load_from_checkpoint(checkpoint)
                return TrainOutput(state.global_step, 0.0, {})
            log.info("Resuming from %s, after step %d of %d.", checkpoint, state.global_step, self.num_steps_planned)
        else:  # drop the lines of a run in this folder that did not reach its first checkpoint
            self.stream.skips.restore(self.stream.skips.state(), cursor=self.progress.cursor)
        on_first(lambda: self._check_disk(checkpoint))
        return super().train(resume_from_checkpoint=checkpoint, **kwargs)

    @property
    def num_steps_taken(self) -> int:
        """How many steps have changed the student since the start of the run."""
        return self.state.global_step - self.progress.num_empty_steps - self.progress.num_nonfinite_steps

    @property
    def num_steps_planned(self) -> int:
        """How many steps the run has in all."""
        return planned_steps(self.args, self._steps_per_epoch)

    @property
    def _steps_per_epoch(self) -> int:
        return max(1, len(self.stream.rows) // self.prompts_per_step)

    def check_resume(self, resume: str | bool | None) -> None:
        """Raise any error about checkpoints that `train` would raise, before a log or a checkpoint changes."""
        checkpoint, root = self._resolve("auto" if resume is True else resume), Path(str(self.args.output_dir))
        on_first(lambda: self.disk_needs(checkpoint).refuse(root))

    def disk_needs(self, checkpoint: str | None) -> DiskNeeds:
        """Return what the run will save after a checkpoint, from the sizes of the weights that it has."""
        models = [base_model(model) for model in (self._student(), self.teacher.weights) if model is not None]
        parameters = dict(models[0].named_parameters())
        moments = 2 * num_bytes({name: weight for name, weight in parameters.items() if weight.requires_grad})
        exported = sum(weight.numel() for name, weight in parameters.items() if not is_adapter(name))
        root = Path(str(self.args.output_dir))
        step = 0 if checkpoint is None else _read(Path(checkpoint) / TRAINER_STATE)["global_step"]
        return DiskNeeds(
            checkpoint_bytes=sum(num_bytes(own_tensors(model)) for model in models) + moments,
            export_bytes=exported * torch.bfloat16.itemsize,
            num_there=len(checkpoints_of(root)),
            num_saves=num_saves_after(step, self.args, self._steps_per_epoch),
            limit=self.args.save_total_limit,
            num_protected=sum((self.args.metric_for_best_model is not None, *map(_may_alarm, self.monitors))),
            saves_if_stopped=self.args.save_strategy == "no",
        )

    def _check_disk(self, checkpoint: str | None) -> None:
        """Raise a RunError if the next checkpoint does not fit on the disk; warn if a later one may not."""
        needs, root = self.disk_needs(checkpoint), Path(str(self.args.output_dir))
        needs.refuse(root)
        if warning := needs.warning(root):
            log.warning("WARNING: %s", warning)

    def _resolve(self, resume: str | bool | None) -> str | None:
        """Return the checkpoint to resume from, after checking it, or None to start over."""
        root = Path(str(self.args.output_dir))
        latest = latest_seen_by_first(root)
        if resume is None or resume is False:
            if latest is not None:
                raise ConfigError(
                    [f"{root} already holds {latest.name}. Resume from it, or choose another trainer.output_dir."]
                )
            return None
        if resume is not True and resume != "auto":
            if not isinstance(resume, str | PathLike) or not Path(resume).is_dir():
                raise ConfigError(
                    [f'{resume!r} is not the folder of a checkpoint. Pass one, True, or "auto" for the latest if any.']
                )
            self._check(Path(resume))
            return resume
        if latest is None:
            if resume == "auto":
                return None
            raise ConfigError([f'{root} holds no checkpoint to resume from. Pass "auto" to start without one.'])
        return str(latest if latest == self._checked else self._latest_whole(root))

    def _latest_whole(self, root: Path) -> Path:
        """Return the latest checkpoint of this run that is whole, and move damaged ones that are later aside."""
        whole, damaged = latest_whole(root, self._check)
        if whole is None:
            listed = "; ".join(f"{error.folder.name}: {error.damage}" for error in damaged)
            raise ConfigError([f"no checkpoint in {root} is whole: {listed}. Remove them to start from step 1."])
        for error in damaged:
            aside = move_aside(error.folder)
            log.warning(
                "WARNING: %s is damaged: %s. It is now %s; resuming from %s.",
                *(error.folder, error.damage, aside.name, whole.name),
            )
        self._checked = whole
        return whole

    def _check(self, folder: Path) -> Manifest:
        """Check a checkpoint by reading all of its files."""
        needs = [STUDENT, OPTIMIZER, RANDOM, RUN_STATE, TRAINER_STATE]
        manifest = check_checkpoint(
            folder,
            self.identity(),
            needs=needs if self.teacher.weights is None else [*needs, TEACHER],
        )
        if self.queue.lag and WAITING not in manifest["files"]:
            raise DamagedCheckpointError(folder, f"{WAITING} is not in its manifest")
        _check_states(folder, has_provenance=PROVENANCE in manifest["files"])
        self._refuse_other_end(folder)
        if PROVENANCE in manifest["files"]:
            before = _read(folder / PROVENANCE)["content"]
            now = {name: value for name, value in self.content.items() if name in before}  # early ones lack images
            refuse_other_run(folder, {"content": before}, {"content": now})
        else:
            log.warning(
                "%s is from an earlier version, which did not record the content of data, weights, tokenizer and chat "
                "template. Make sure that they are the same as then.",
                folder,
            )
        return manifest

    def _refuse_other_end(self, folder: Path) -> None:
        """Raise a ConfigError if the run would end at another step, and its learning rate depends on that."""
        schedule, warmup = self._schedule, self.args.warmup_steps
        # A warmup below 1 is a share of all steps.
        if schedule == "constant" or (schedule == "constant_with_warmup" and not 0 < warmup < 1):
            return
        name = "max_steps" if self.args.max_steps > 0 else "num_train_epochs, in steps,"
        before = TrainerState.load_from_json(str(folder / TRAINER_STATE)).max_steps
        refuse_other_run(folder, {f"trainer.{name}": before}, {f"trainer.{name}": self.num_steps_planned})

    @property
    def _schedule(self) -> str:
        return str(_plain(self.args.lr_scheduler_type))

    def identity(self) -> dict[str, object]:
        """Return the settings that must not change when a run resumes."""
        shapes = [
            (name, tuple(parameter.shape), str(parameter.dtype), parameter.requires_grad)
            for name, parameter in base_model(self._student()).named_parameters()
        ]
        rows = self.stream.rows
        arguments = {name: _plain(getattr(self.args, name)) for name in _SAME_ARGUMENTS}
        rollout = asdict(self.rollout)
        if not rollout["steps_ahead"]:
            del rollout["steps_ahead"]  # earlier checkpoints lack it
        if not self._schedule.startswith("constant"):
            arguments["max_steps"] = self.args.max_steps
        if self.args.lr_scheduler_kwargs:
            arguments["lr_scheduler_kwargs"] = self.args.lr_scheduler_kwargs  # earlier checkpoints lack it
        identity: dict[str, object] = {
            "method": asdict(self.method),
            "rollout": rollout,
            "prompts_per_step": self.prompts_per_step,
            "prompt_settings": self.prompt_settings,
            "trainer": arguments,
            "model": hashlib.sha256(repr(shapes).encode()).hexdigest()[:16],
            "data": getattr(rows, "fingerprint", rows.__len__)(),
        }
        if self.dither:
            identity["model.dither"] = True  # other checkpoints lack it
        return identity if self.base is None else {**identity, "lora": settings_of(adapter_config(self._student()))}

    def contents(self) -> Contents:
        """Collect everything that a checkpoint holds."""
        student, teacher = base_model(self._student()), self.teacher.weights
        assert self.optimizer is not None
        assert self.lr_scheduler is not None
        step = self.state.global_step
        waiting = self.waiting_rollouts() if self.queue.lag else []
        moments, settings = optimizer_state(self.optimizer, student)
        tensors = {STUDENT: own_tensors(student), OPTIMIZER: moments, RANDOM: random_state()}
        if teacher is not None:
            tensors[TEACHER] = own_tensors(base_model(teacher))
        run = {
            "progress": asdict(self.progress),
            "teacher": {"kind": self.teacher.kind, "num_updates": self.teacher.num_updates},
            "optimizer": settings,
            "scheduler": self.lr_scheduler.state_dict(),
            "skips": self.queue.rows_after(step) or self.stream.skips.state(),
            "monitors": [monitor.state() if hasattr(monitor, "state") else {} for monitor in self.monitors],
        }
        provenance = {"content": self.content, "proven_step": self.proven_step}
        texts = {RUN_STATE: json.dumps(run), TRAINER_STATE: json.dumps(asdict(self.state), sort_keys=True)}
        texts[PROVENANCE] = json.dumps(provenance, indent=1)
        if self.queue.lag:
            texts[WAITING] = json.dumps(waiting)
        if self.base is not None:
            texts[BASE] = json.dumps(self.base, indent=1)
        return Contents(tensors, texts, self.identity(), self._copy_files, of_rank={RANDOM})

    def waiting_rollouts(self) -> list[WaitingBatch]:
        """Return the batches that were drawn ahead."""
        return self.queue.state(self.state.global_step)

    def _copy_files(self, folder: Path) -> None:
        """Copy configuration and processor files, so that a checkpoint can be exported without the original model."""
        model = base_model(self._student())
        model.config.save_pretrained(folder)
        if self.base is not None:
            write_config(adapter_config(self._student()), folder)
        if model.can_generate():
            model.generation_config.save_pretrained(folder)
        source = getattr(self.processing_class, "source_folder", None)
        if source is not None and has_processor_files(source):
            save_processor_files(source, folder)
        else:
            origin = "was not loaded from a folder" if source is None else f"came from {source}, which is gone"
            warnings.warn(f"the checkpoint has no processor files: the processor {origin}.", stacklevel=2)

    def _save_checkpoint(self, model: nn.Module, trial: object) -> None:
        step, root = self.state.global_step, Path(str(self.args.output_dir))
        if step == self._saved_step:  # a signal at the end of an epoch asks for the same save twice
            return
        self._note_best(step)
        limit, protected, contents = self.args.save_total_limit, self._protected(root), self.contents()
        for file in (STUDENT, TEACHER, OPTIMIZER):
            if names := ruined(contents.tensors.get(file, {})):
                raise RunError(
                    f"step {step} cannot be saved: {_few(names)} would not be finite in {file}. "
                    f"{self.last_good_checkpoint()}"
                )
        write_checkpoint(root, step, contents, limit=limit, protected=protected)
        self._saved_step = step

    def save_now(self, model: nn.Module) -> str:
        """Save the last finished step, and return a sentence about it for the user. Collective."""
        if not self.state.global_step:
            return "No step was finished, so nothing was saved."
        self._saved_step = None  # a checkpoint of this step may hold another token budget
        self._save_checkpoint(model, None)
        return f"checkpoint-{self.state.global_step} holds the last finished step; the same command resumes from it."

    def _protected(self, root: Path) -> set[int]:
        """Return the steps whose checkpoints are always kept.

        The best one, the last before a monitor's alarm, and the last whose weights gave a finite loss.
        """
        kept = set() if self.progress.best_step is None else {self.progress.best_step}
        good_steps = [getattr(monitor, "last_good_step", None) for monitor in self.monitors]
        for good in (*good_steps, self.proven_step):
            before = [step for step in checkpoints_of(root) if good is not None and step <= good]
            kept |= set(before[-1:])
        return kept

    def refuse_ruined(self, what: Literal["student", "teacher"]) -> None:
        """Raise a RunError if an update left trained weights that are not finite. They are never saved."""
        student = self.teacher.student
        module = student if what == "student" else self.teacher.weights
        if isinstance(self.teacher, HostTeacher) and what == "teacher":
            module = self.teacher.module  # its copy on the device, where the check is fast
        if module is None:
            return
        trained = {name for name, parameter in student.named_parameters() if parameter.requires_grad}
        names = ruined({name: weight.detach() for name, weight in module.named_parameters() if name in trained})
        if names:
            raise RunError(
                f"the update of step {self.state.global_step + 1} ruined the {what}: {_few(names)} of {len(trained)} "
                f"weights are not finite. {self.last_good_checkpoint()} Lower trainer.learning_rate."
            )

    def last_good_checkpoint(self) -> str:
        """Return advice on which checkpoint a broken run should resume from."""
        steps, proven = list(checkpoints_of(Path(str(self.args.output_dir)))), self.proven_step
        good = [step for step in steps if proven is not None and step <= proven]
        if not good:
            return "No checkpoint is known to be good."
        later = " Move later ones away, because a run resumes from the latest." if good[-1] != steps[-1] else ""
        return f"checkpoint-{good[-1]} is the last one known to be good.{later}"

    def _note_best(self, step: int) -> None:
        """Remember the checkpoint with the best mean of `metric_for_best_model`; it is always kept."""
        values, self.best_values = self.best_values, []
        if not values:
            return
        mean, best = sum(values) / len(values), self.progress.best_value
        is_better = best is None or (mean > best if self.args.greater_is_better else mean < best)
        if is_better:
            self.progress.best_step, self.progress.best_value = step, mean

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_weights(base_model(self._student()), TensorFile(Path(resume_from_checkpoint) / STUDENT), "student")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load everything except the student and the generators, which Trainer loads at other times."""
        if checkpoint is None:
            return
        assert self.optimizer is not None
        assert self.lr_scheduler is not None
        folder = Path(checkpoint)
        run = _read(folder / RUN_STATE)
        if (folder / PROVENANCE).is_file():
            self.proven_step = _read(folder / PROVENANCE)["proven_step"]
        moments = TensorFile(folder / OPTIMIZER)
        load_optimizer(self.optimizer, base_model(self._student()), moments, run["optimizer"])
        self.lr_scheduler.load_state_dict(run["scheduler"])
        if self.teacher.weights is not None:
            load_weights(base_model(self.teacher.weights), TensorFile(folder / TEACHER), "teacher")
        self.teacher.num_updates = run["teacher"]["num_updates"]
        wanted, self.progress = self.progress.token_budget, Progress(**run["progress"])
        # Either a smaller budget is wanted now, or the old run halved its budget for lack of memory.
        budgets = [budget for budget in (wanted, self.progress.token_budget) if budget is not None]
        self.progress.token_budget = min(budgets, default=None)
        self.stream.skips.restore(run["skips"], cursor=self.progress.cursor)
        if self.queue.lag:
            self.queue.load(json.loads((folder / WAITING).read_text(encoding="utf-8")))
        step = TrainerState.load_from_json(str(folder / TRAINER_STATE)).global_step
        if len(run["monitors"]) != len(self.monitors):
            log.warning("%s has the state of other monitors; those of this run start anew.", folder)
            return
        if is_first():
            for monitor, state in zip(self.monitors, run["monitors"], strict=True):
                if hasattr(monitor, "restore"):
                    monitor.restore(state, step)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            own = Path(checkpoint) / own_file(RANDOM, this_rank())  # fewer ranks may have written the checkpoint
            set_random_state(TensorFile(own if own.is_file() else Path(checkpoint) / RANDOM))

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Do nothing: bfloat16 needs no loss scaling."""

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        """Write the student as a plain Hugging Face folder, or its adapter in PEFT's format. Nothing is pickled."""
        folder = Path(str(self.args.output_dir if output_dir is None else output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        if self.base is None:
            base_model(self._student()).save_pretrained(folder, state_dict=state_dict)
        else:
            write_adapter(own_tensors(base_model(self._student())), folder)
        self._copy_files(folder)

    def _student(self) -> nn.Module:
        assert self.model is not None
        return self.model


def _may_alarm(monitor: Monitor) -> bool:
    """Whether a monitor may raise an alarm, after which the last good checkpoint is kept."""
    return bool(getattr(monitor, "may_alarm", hasattr(monitor, "last_good_step")))


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of a checkpoint that was checked."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _check_states(folder: Path, *, has_provenance: bool) -> None:
    """Raise a DamagedCheckpointError unless the JSON files of a checkpoint hold the state of a run."""
    try:
        run = _read(folder / RUN_STATE)
        Progress(**run["progress"])
        parts = {name: run[name] for name in ("teacher", "optimizer", "scheduler", "skips")}
        is_whole = all(isinstance(part, dict) for part in parts.values()) and isinstance(run["monitors"], list)
        is_whole = is_whole and isinstance(run["teacher"]["num_updates"], int)
        is_whole = is_whole and isinstance(TrainerState.load_from_json(str(folder / TRAINER_STATE)).global_step, int)
        if has_provenance:
            provenance = _read(folder / PROVENANCE)
            is_whole = is_whole and isinstance(provenance["content"], dict) and "proven_step" in provenance
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(folder, f"its state cannot be read: {type(error).__name__}: {error}") from error
    if not is_whole:
        raise DamagedCheckpointError(folder, "its state is not that of a run")


def _few(names: Sequence[str]) -> str:
    """Count names, and show the first."""
    return f"{len(names)} ({names[0]}{', ...' if len(names) > 1 else ''})"


def _plain(value: object) -> object:
    """Return an enumeration as its value."""
    return value.value if isinstance(value, Enum) else value
