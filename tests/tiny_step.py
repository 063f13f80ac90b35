"""A step on tiny models: examples, shown and answered, the same loss computed the long way, and a small trainer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainingArguments

from tiny_examples import picture
from tiny_groups import repeated_batch
from tiny_models import build_model
from tiny_processor import build_processor
from vcsd.batch import Batch, show
from vcsd.core import (
    forward_kl,
    importance_weight,
    jensen_shannon,
    log_probs,
    response_mean,
    shape_target,
    token_mean,
    top_and_tail,
)
from vcsd.method import Method
from vcsd.models.family import family_of
from vcsd.models.packed.packing import Group
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings, sample
from vcsd.trainer import VCSDTrainer
from vcsd.types import Example

QUESTIONS = ("how many?", "what colour is the square?", "red or blue?", "1 or 2?", "is it green?", "how many red?")


def make_examples(count: int = 3) -> list[Example]:
    """Questions about pictures of different sizes, each with all that a teacher may be shown.

    A crop of a few pixels less has the grid of the whole picture, so that one could pass for the other.
    """
    return [
        Example(
            id=f"tiny-{index}",
            images=(picture(64 + 32 * (index % 3), 64),),
            prompt=({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]},),
            answer=str(index),
            boxes=((5, 3, 62, 60),),
            demonstration=f"it is {index}",
            feedback="count again",
        )
        for index, question in ((i, QUESTIONS[i % len(QUESTIONS)]) for i in range(count))
    ]


def make_batch(model: nn.Module, processor, method: Method, examples: Sequence[Example], step: int = 0) -> Batch:
    engine = TransformersEngine(model, tokenizer=processor.tokenizer)
    shown = [show(example, method, processor) for example in examples]
    settings = RolloutSettings(Sampling(max_new_tokens=7), num_per_prompt=3, seed=5)
    return sample(engine, shown, settings, step, with_log_probs=method.importance_clip is not None)


def long_way(
    student: nn.Module, teacher: nn.Module, batch: Batch, method: Method, ends: frozenset[int], family: str = "qwen3_vl"
) -> torch.Tensor:
    """The step's loss from full logits of the repeated padded batch, by the functions of `vcsd.core` alone."""

    def log_p(model: nn.Module, groups: list[Group], temperature: float = method.temperature) -> torch.Tensor:
        hidden = torch.cat(repeated_batch(model, groups, family))
        return log_probs(hidden @ family_of(model).head(model).weight_VD.T, temperature)

    with torch.no_grad():
        original = log_p(teacher, batch.target)
        control = original if batch.contrast is None else log_p(teacher, batch.contrast)
        alpha = 0.0 if batch.contrast is None else method.alpha
        log_q = shape_target(original, control, alpha=alpha, beta=method.beta, anchor=method.anchor, end_token_ids=ends)
    log_p_student = log_p(student, batch.student)
    if method.student_top_k is not None:
        log_q, log_p_student = top_and_tail(log_q, log_p_student, method.student_top_k)
    compare = {"forward_kl": forward_kl, "jensen_shannon": jensen_shannon}[method.divergence]
    divergence = compare(log_q, log_p_student)
    if method.importance_clip is not None:
        said = torch.tensor(batch.token_ids)[:, None]
        now = log_p(student, batch.student, 1.0).gather(1, said)[:, 0]
        divergence = divergence * importance_weight(now, torch.tensor(batch.log_probs), clip=method.importance_clip)
    lengths = torch.tensor([length for group in batch.student for length in group.lengths])
    if method.reduction == "token_mean":
        return token_mean(divergence, num_tokens=int(lengths.sum()), loss_scale=method.loss_factor)
    return response_mean(divergence, lengths, num_responses=len(lengths), loss_scale=method.loss_factor)


def training_arguments(folder: Path | str, **changes: Any) -> TrainingArguments:
    """Few quick steps on the CPU, logged one by one and not saved."""
    values: dict[str, Any] = {
        **{"use_cpu": True, "report_to": [], "disable_tqdm": True, "log_level": "error", "logging_steps": 1},
        **{"max_steps": 4, "learning_rate": 1e-3, "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 1},
        **{"max_grad_norm": 1.0, "save_strategy": "no"},
    }
    return TrainingArguments(str(folder), **{**values, **changes})


def make_trainer(folder: Path | str, *, arguments: dict[str, Any] | None = None, **changes: Any) -> VCSDTrainer:
    """A trainer of the tiny Qwen3-VL on five examples, three of them in each step, with three answers to each."""
    given: dict[str, Any] = {
        **{"model": build_model(), "train_dataset": make_examples(5), "processing_class": build_processor()},
        **{"rollout": RolloutSettings(Sampling(max_new_tokens=7), 3, seed=0), "prompts_per_step": 3, "monitors": ()},
        **changes,
    }
    return VCSDTrainer(args=training_arguments(folder, **(arguments or {})), **given)


def losses_of(trainer: VCSDTrainer) -> list[float]:
    """The logged loss of each step."""
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
