"""What a rank does in each step of a run: how it holds weights after it, and when it waits for other ranks."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from vcsd.parallel import distress
from vcsd.parallel.gradients import ReplicaSync
from vcsd.parallel.sharding import local_part
from vcsd.rollout.engine import TransformersEngine
from vcsd.trainer import VCSDTrainer
from vcsd.trainer import trainer as trainer_module


class Watch(TrainerCallback):
    """Keeps how weights are held after each step, and counts its collectives.

    while decoding     collectives while an engine decodes
    in rows            collectives while rows are scored and their gradients computed
    averages           calls that average gradients under DDP, and their collectives
    reductions         gradients of a unit that FSDP2 reduces; `trained units` is their number in the student
    """

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()

    def attach(self, trainer: VCSDTrainer) -> None:
        """Watch a trainer. After all other callbacks, so that a step is complete."""
        self.trainer = trainer
        trainer.add_callback(self)

    def on_step_begin(self, *given: object, **named: object) -> None:
        """Count from zero."""
        self.counts.clear()

    def on_step_end(self, *given: object, **named: object) -> None:
        """Keep what the step did."""
        units = {"trained units": num_trained_units(self.trainer.model)}
        self.steps.append({"held": how_held(self.trainer), **self.counts, **units})

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count inside this context."""
        watched = [
            (TransformersEngine, "sample", "samplings", "while decoding"),
            (trainer_module, "distill", "distillings", "in rows"),
            (ReplicaSync, "finish", "averages", "in averages"),
            (distress._ReduceScatter, "__call__", "reductions", "in reductions"),
        ]
        with ExitStack() as stack:
            for owner, name, calls, collectives in watched:
                counted = self._counted(getattr(owner, name), calls, collectives)
                stack.enter_context(patch.object(owner, name, counted))
            yield

    def _counted(self, run: Callable[..., Any], calls: str, collectives: str) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            before = num_collectives()
            result = run(*given, **named)
            self.counts[calls] += 1
            self.counts[collectives] += num_collectives() - before
            return result

        return counted


def num_collectives() -> int:
    """How many collectives this rank has entered so far, of whatever kind and from whichever code."""
    return dist.group.WORLD._get_sequence_number_for_group() if dist.is_initialized() else 0


def num_trained_units(model: nn.Module) -> int:
    """The number of modules that FSDP2 gathers as a whole and that have trained weights of their own."""
    return sum(any(p.requires_grad for p in _own(unit)) for unit in model.modules() if isinstance(unit, FSDPModule))


def _own(unit: nn.Module) -> Iterator[nn.Parameter]:
    yield from unit.parameters(recurse=False)
    for child in unit.children():
        if not isinstance(child, FSDPModule):
            yield from _own(child)


def how_held(trainer: VCSDTrainer) -> dict[str, Any]:
    """Whether weights are sharded on this rank, and how many values of them it holds, of how many."""
    modules = {"student": trainer.model, "teacher": trainer.teacher.weights or trainer.model}
    own = {name: list(module.parameters()) for name, module in modules.items()}
    copied = [] if trainer.half is None else list(trainer.half.module.parameters())
    return {
        "wrapper": type(trainer.model_wrapped).__name__,
        "fsdp_modules": {n: sum(isinstance(m, FSDPModule) for m in module.modules()) for n, module in modules.items()},
        "whole_weights": {n: sum(not isinstance(p, DTensor) for p in weights) for n, weights in own.items()},
        "num_here": {n: sum(local_part(p).numel() for p in weights) for n, weights in own.items()},
        "num_all": {n: sum(p.numel() for p in weights) for n, weights in own.items()},
        "num_copied": sum(p.numel() for p in copied),
    }
