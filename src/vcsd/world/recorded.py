"""One step of pre-training: forward, backward, clip, update; on CUDA recorded as a graph once and then replayed.

A tiny model's step is a thousand kernels of microseconds: launching them costs more than running them. Shapes do not
change within a stage, so the graph of one step serves all of them; new rows are copied to where it reads.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad_norm_

from vcsd.world.forward import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.world.forward import Forward

log = logging.getLogger(__name__)

_EAGER_STEPS = 3
"""Steps before recording: libraries set themselves up in the first ones."""


class Work:
    """Does steps for rows of fixed shapes."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, forwards: Sequence[Forward], clip: float
    ) -> None:
        self.model, self.optimizer, self.forwards, self.clip = model, optimizer, forwards, clip
        self.is_cuda = next(model.parameters()).is_cuda
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
        self.optimizer.zero_grad(set_to_none=True)
        total: Any = 0.0
        for forward, own in zip(self.forwards, rows, strict=True):
            with torch.autocast("cuda", torch.bfloat16, enabled=self.is_cuda, cache_enabled=False):
                loss, _ = forward.loss(own)
            loss.backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach()
        clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        result: Tensor = total
        return result

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
        self.optimizer.zero_grad(set_to_none=True)
        try:
            with torch.cuda.graph(graph):
                self.loss = self._do(self.inputs)
        except RuntimeError as error:  # a library that waits for the device cannot be recorded
            log.warning("a step could not be recorded and runs kernel by kernel, which is slower: %s", error)
            return
        self.graph = graph
