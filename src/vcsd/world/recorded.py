"""One step of pre-training: forward, backward, clip, update; on CUDA recorded as a graph once and then replayed.

A tiny model's step is a thousand kernels of microseconds: launching them costs more than running them. Shapes do not
change within a stage, so the graph of one step serves all of them; new rows are copied to where it reads.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from vcsd.world.forward import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from vcsd.world.forward import Forward

log = logging.getLogger(__name__)

_EAGER_STEPS = 3
"""Steps before recording: libraries set themselves up in the first ones."""


def in_bfloat16(model: Any) -> Any:
    """The model with its parameters in bfloat16, and them alone: rotary frequencies must not be rounded."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return model


class Work:
    """Does steps for rows of fixed shapes.

    `optimizer` holds the master weights. Where the model is another one in bfloat16, gradients are copied up to the
    masters before an update and the new weights down after it: float32 where small numbers live.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, forwards: Sequence[Forward], clip: float
    ) -> None:
        self.optimizer, self.forwards, self.clip = optimizer, forwards, clip
        self.weights = list(model.parameters())
        self.masters: list[nn.Parameter] = [weight for group in optimizer.param_groups for weight in group["params"]]
        self.is_cuda = self.weights[0].is_cuda
        self.num_steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Rows] = []
        self.loss: Tensor | None = None

    def step(self, rows: list[Rows], learning_rate: float) -> Tensor:
        """One update; its loss, still on the device."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        self.num_steps += 1
        if not self.is_cuda:
            return self._do(rows)
        if self.graph is None and self.num_steps == _EAGER_STEPS + 1:
            self._record(rows)
        if self.graph is None:
            return self._beside(rows)
        for static, new in zip(self.inputs, rows, strict=True):
            for name in fields(Rows):
                getattr(static, name.name).copy_(getattr(new, name.name))
        assert self.loss is not None
        self.graph.replay()
        return self.loss

    def _do(self, rows: Sequence[Rows]) -> Tensor:
        for weight in self.weights:
            weight.grad = None
        total: Any = 0.0
        for forward, own in zip(self.forwards, rows, strict=True):
            loss, _ = forward.loss(own)
            loss.backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach()
        with torch.no_grad():
            self._update()
        result: Tensor = total
        return result

    def _update(self) -> None:
        has_copy = self.weights[0] is not self.masters[0]
        if has_copy:
            for weight, master in zip(self.weights, self.masters, strict=True):
                if master.grad is None and weight.grad is not None:
                    master.grad = torch.zeros_like(master)
            pairs = [(w.grad, m.grad) for w, m in zip(self.weights, self.masters, strict=True) if w.grad is not None]
            torch._foreach_copy_([up for _, up in pairs if up is not None], [down for down, _ in pairs])
        clip_grad_norm_(self.masters, self.clip)
        self.optimizer.step()
        if has_copy:
            torch._foreach_copy_(list[Tensor](self.weights), list[Tensor](self.masters))

    def _beside(self, rows: list[Rows]) -> Tensor:
        """An ordinary step on a stream of its own, as recording asks for."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self._do(rows)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _record(self, rows: list[Rows]) -> None:
        self.inputs = [Rows(each.ids_NL.clone(), each.weight_NL.clone(), each.patches_PV.clone()) for each in rows]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.loss = self._do(self.inputs)
        except RuntimeError as error:  # a library that waits for the device cannot be recorded
            log.warning("a step could not be recorded and runs kernel by kernel, which is slower: %s", error)
            return
        self.graph = graph
