"""One step of pre-training: forward, backward, clip, update. On CUDA, it is recorded as a graph once and replayed.

A step of a tiny model runs a thousand kernels of a few microseconds, which take longer to launch than to run. Shapes
do not change within a stage, so one graph serves all its steps; new rows are copied to the graph's inputs.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from vcsd.bases.forward import TokenRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.bases.forward import Forward

log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=nn.Module)

_EAGER_STEPS = 3
"""Steps before recording, in which libraries initialise themselves."""


def in_bfloat16(model: Model) -> Model:
    """Convert the parameters to bfloat16, in place. Buffers are left alone: rotary frequencies must not be rounded."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return model


class Work:
    """Runs training steps on rows of fixed shapes.

    `optimizer` holds the master weights in float32. If the model is a copy in bfloat16, its gradients are copied to the
    masters before an update, and the new weights are copied back after it. A gradient that is not finite would turn all
    weights into NaN: it counts as zero, and `num_lost`, a number on the device, increases by one.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        forwards: Sequence[Forward],
        clip: float,
        num_lost: Tensor,
    ) -> None:
        self.optimizer, self.forwards, self.clip, self.num_lost = optimizer, forwards, clip, num_lost
        self.weights = list(model.parameters())
        self.masters: list[nn.Parameter] = [weight for group in optimizer.param_groups for weight in group["params"]]
        self.is_cuda = self.weights[0].is_cuda
        self.num_steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[TokenRows] = []
        self.loss: Tensor | None = None

    def step(self, rows: list[TokenRows], learning_rate: float) -> Tensor:
        """Run one update and return its loss, on the device."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        self.num_steps += 1
        if not self.is_cuda:
            return self._run(rows)
        if self.graph is None and self.num_steps == _EAGER_STEPS + 1:
            self._record(rows)
        if self.graph is None:
            return self._run_on_side_stream(rows)
        for static, new in zip(self.inputs, rows, strict=True):
            for field in fields(TokenRows):
                getattr(static, field.name).copy_(getattr(new, field.name))
        assert self.loss is not None
        self.graph.replay()
        return self.loss

    def _run(self, rows: Sequence[TokenRows]) -> Tensor:
        for weight in self.weights:
            weight.grad = None
        total: Tensor | float = 0.0
        for forward, own in zip(self.forwards, rows, strict=True):
            loss, _ = forward.loss(own)
            loss.backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach()
        with torch.no_grad():
            self._update()
        assert isinstance(total, Tensor)
        return total

    def _update(self) -> None:
        has_copy = self.weights[0] is not self.masters[0]
        if has_copy:
            for weight, master in zip(self.weights, self.masters, strict=True):
                if master.grad is None and weight.grad is not None:
                    master.grad = torch.zeros_like(master)
            pairs = [(w.grad, m.grad) for w, m in zip(self.weights, self.masters, strict=True) if w.grad is not None]
            torch._foreach_copy_([up for _, up in pairs if up is not None], [down for down, _ in pairs])
        is_finite = clip_grad_norm_(self.masters, self.clip).isfinite()
        self.num_lost += ~is_finite
        for master in self.masters:
            if master.grad is not None:
                master.grad.copy_(torch.where(is_finite, master.grad, 0.0))
        self.optimizer.step()
        if has_copy:
            torch._foreach_copy_(list[Tensor](self.weights), list[Tensor](self.masters))

    def _run_on_side_stream(self, rows: list[TokenRows]) -> Tensor:
        """Run an ordinary step on a side stream, as warm-up for a recording requires."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self._run(rows)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _record(self, rows: list[TokenRows]) -> None:
        self.inputs = [TokenRows(row.ids_NL.clone(), row.weight_NL.clone(), row.patches_PV.clone()) for row in rows]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.loss = self._run(self.inputs)
        except RuntimeError as error:  # a library that synchronises with the device cannot be recorded
            log.warning("Could not record a step as a CUDA graph; steps run kernel by kernel, more slowly: %s", error)
            return
        self.graph = graph
