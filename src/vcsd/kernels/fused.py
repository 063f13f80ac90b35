"""The loop over chunks of rows, and how its gradient meets autograd.

For C rows at a time: project them with the student's head into a (C, V) tile of logits that all chunks share; then, a
few rows at a time, the teacher's views of them into tiles of their own, and let an engine turn these rows into
divergences, statistics and, in place of the student's logits, the gradient on those logits. When all C rows hold their
gradient, multiply them with the head's weight (gradient of the hidden states) and with the hidden states (gradient of
the head). The student's tile is the larger one, because each chunk reads and writes the whole gradient of the head.

The gradient needs each row's weight in the loss before the tile is dropped. A caller that gives the weights gets the
weighted sum, with the gradient formed in the same pass; what comes from upstream is then one number, and rescales it.
Without weights the loss is per position, and backward runs the loop a second time with the weights it is given: exact
as well, at the price of three more matrix products. The same happens if a graph is run backward a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.autograd.function import once_differentiable

from vcsd.core.probability import at_least_float32
from vcsd.kernels.head import add_head_gradient_, compute_dtype, compute_weight, project_
from vcsd.kernels.statistics import Statistics

if TYPE_CHECKING:
    import contextlib

    from torch import Tensor

    from vcsd.kernels.objective import Objective
    from vcsd.types import Head


@dataclass(frozen=True, eq=False)
class Side:
    """One model's part: its head, the weight in the compute dtype, and its hidden states under one view or two."""

    head: Head
    weight_VD: Tensor
    views: tuple[Tensor, ...]

    @classmethod
    def prepare(cls, head: Head, *views: Tensor | None) -> Side:
        """Cast a head and hidden states for the matrix products, and cut them off the graph."""
        given = [hidden_ND for hidden_ND in views if hidden_ND is not None]
        dtype = compute_dtype(given[0])
        return cls(head, compute_weight(head, dtype), tuple(hidden_ND.detach().to(dtype) for hidden_ND in given))


@dataclass(frozen=True, eq=False)
class Tiles:
    """Raw products hidden @ weight.T of one chunk, (C, V); rows may be wider in memory. `control` None: no contrast."""

    student_CV: Tensor
    original_CV: Tensor
    control_CV: Tensor | None


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a pass over the chunks reads."""

    student: Side
    teacher: Side
    objective: Objective
    realised_N: Tensor | None

    @property
    def num_positions(self) -> int:
        """N."""
        return len(self.student.views[0])

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.student.weight_VD)

    @property
    def num_teacher_views(self) -> int:
        """Two with a control, else one."""
        return len(self.teacher.views)


@dataclass(frozen=True, eq=False)
class Wanted:
    """Which gradients somebody waits for: a frozen head saves a matrix product."""

    hidden: bool
    weight: bool
    bias: bool

    @property
    def any(self) -> bool:
        """Whether a gradient is wanted at all."""
        return self.hidden or self.weight or self.bias


@dataclass(frozen=True, eq=False)
class Gradients:
    """Of the weighted sum; to be multiplied by `factor` where that is not None."""

    hidden_ND: Tensor | None
    weight_VD: Tensor | None
    bias_V: Tensor | None
    factor: Tensor | None = None


class Engine(Protocol):
    """What an implementation provides: the size of a chunk, its tiles, and the work on their rows."""

    def rows_per_chunk(self, problem: Problem) -> tuple[int, int]:
        """C, and how many of these rows the teacher scores at a time: as memory allows and matrix products need."""

    def new_tile(self, num_rows: int, problem: Problem, dtype: torch.dtype) -> Tensor:
        """A (rows, V) tile."""

    def work(
        self, tiles: Tiles, problem: Problem, realised_C: Tensor | None, weights_C: Tensor | None, out: Statistics
    ) -> None:
        """Fill `out`; with weights, replace the student's tile by the gradient of the weighted sum on it."""

    def rescale_(self, gradient: Tensor, factor: Tensor) -> None:
        """Multiply in place by a number on the device."""


def run_chunks(
    engine: Engine, problem: Problem, weights_N: Tensor | None, wanted: Wanted
) -> tuple[Statistics, Gradients | None]:
    """One pass over all positions; gradients of sum(weights * divergence) if there are weights."""
    hidden_ND, weight_VD = problem.student.views[0], problem.student.weight_VD
    like = at_least_float32(hidden_ND.new_empty(0))
    statistics = Statistics.empty(problem.num_positions, like, has_realised=problem.realised_N is not None)
    gradients = None if weights_N is None else _new_gradients(hidden_ND, weight_VD, wanted, weights_N)
    if problem.num_positions == 0:
        return statistics, gradients
    if gradients is not None and gradients.factor is not None and weights_N is not None:
        weights_N = weights_N / gradients.factor
    rows, teacher_rows = engine.rows_per_chunk(problem)
    student_tile = engine.new_tile(rows, problem, hidden_ND.dtype)
    teacher_tile = engine.new_tile(teacher_rows * problem.num_teacher_views, problem, problem.teacher.views[0].dtype)
    for start, stop in _ranges(0, problem.num_positions, rows):
        student_CV = student_tile[: stop - start]
        project_(student_CV, hidden_ND[start:stop], weight_VD)
        for first, last in _ranges(start, stop, teacher_rows):
            tiles = Tiles(student_CV[first - start : last - start], *_teacher_tiles(problem, teacher_tile, first, last))
            realised_C = None if problem.realised_N is None else problem.realised_N[first:last]
            weights_C = None if weights_N is None else weights_N[first:last]
            engine.work(tiles, problem, realised_C, weights_C, statistics.rows(first, last))
        if gradients is not None:
            _add_gradients(gradients, student_CV, problem, start, stop)
    return statistics, gradients


def _ranges(start: int, stop: int, step: int) -> list[tuple[int, int]]:
    """Consecutive pieces of at most `step`, from start to stop.

    >>> _ranges(0, 7, 3)
    [(0, 3), (3, 6), (6, 7)]
    """
    return [(first, min(first + step, stop)) for first in range(start, stop, step)]


def _teacher_tiles(problem: Problem, tile: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
    """The two views of the teacher share one matrix product: larger ones fill the device better."""
    views_CD = [view_ND[start:stop] for view_ND in problem.teacher.views]
    hidden_CD = views_CD[0] if len(views_CD) == 1 else torch.cat(views_CD)
    project_(tile[: len(hidden_CD)], hidden_CD, problem.teacher.weight_VD)
    num_rows = stop - start
    return tile[:num_rows], tile[num_rows : 2 * num_rows] if len(views_CD) == 2 else None


def _new_gradients(hidden_ND: Tensor, weight_VD: Tensor, wanted: Wanted, weights_N: Tensor) -> Gradients:
    """Buffers; without any position they are the result, and zero.

    float16 cannot hold weights like 1e-6, so there the gradient is formed with weights of order one.
    """
    empty = len(hidden_ND) == 0
    total_dtype = at_least_float32(weight_VD.new_empty(0)).dtype
    make = torch.zeros if empty else torch.empty
    size, device = weight_VD.shape, weight_VD.device
    scaled = hidden_ND.dtype == torch.float16 and not empty
    return Gradients(
        hidden_ND=torch.empty_like(hidden_ND, memory_format=torch.contiguous_format) if wanted.hidden else None,
        weight_VD=make(size, dtype=total_dtype, device=device) if wanted.weight else None,
        bias_V=torch.zeros(size[0], dtype=total_dtype, device=device) if wanted.bias else None,
        factor=weights_N.abs().amax().clamp(min=torch.finfo(torch.float32).tiny) if scaled else None,
    )


def _add_gradients(gradients: Gradients, grad_CV: Tensor, problem: Problem, start: int, stop: int) -> None:
    """The two matrix products of backward, on the tile that now holds the gradient on the student's raw logits."""
    hidden_ND, weight_VD = problem.student.views[0], problem.student.weight_VD
    if gradients.hidden_ND is not None:
        torch.mm(grad_CV, weight_VD, out=gradients.hidden_ND[start:stop])
    if gradients.weight_VD is not None:
        add_head_gradient_(gradients.weight_VD, grad_CV, hidden_ND[start:stop], first=start == 0)
    if gradients.bias_V is not None:
        gradients.bias_V.add_(grad_CV.sum(0, dtype=gradients.bias_V.dtype))


def fused_loss(
    engine: Engine, problem: Problem, student_hidden_ND: Tensor, weights_N: Tensor | None
) -> tuple[Tensor, Statistics]:
    """The loss, differentiable in the student's hidden states and head, and the statistics."""
    head = problem.student.head
    inputs = (student_hidden_ND, head.weight_VD, head.bias_V)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
        call = _Call(engine, problem, weights_N)
        loss = _FusedLoss.apply(call, *inputs)  # type: ignore[no-untyped-call]
        return loss, call.statistics
    with _no_autocast(student_hidden_ND):
        statistics, _ = run_chunks(engine, problem, None, Wanted(hidden=False, weight=False, bias=False))
    return _reduce(statistics, weights_N), statistics


def _reduce(statistics: Statistics, weights_N: Tensor | None) -> Tensor:
    """The weighted sum if there are weights, else the divergence of each position."""
    if weights_N is None:
        return statistics.divergence.clone()
    return (statistics.divergence * weights_N).sum()


def _no_autocast(like: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Everything is cast by hand already."""
    return torch.autocast(like.device.type, enabled=False)


class _Call:
    """What travels from forward to backward besides the tensors autograd watches."""

    def __init__(self, engine: Engine, problem: Problem, weights_N: Tensor | None) -> None:
        self.engine, self.problem, self.weights_N = engine, problem, weights_N
        self.statistics: Statistics
        self.gradients: Gradients | None = None
        self.wanted: Wanted


class _FusedLoss(torch.autograd.Function):
    """Connects `run_chunks` to autograd: inputs are (call, student hidden states, head weight, head bias)."""

    @staticmethod
    def forward(ctx: Any, call: _Call, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
        call.wanted = Wanted(*ctx.needs_input_grad[1:])
        with _no_autocast(hidden_ND):
            call.statistics, call.gradients = run_chunks(call.engine, call.problem, call.weights_N, call.wanted)
        # Saved only so that autograd notices if one of them is changed before a second pass needs it.
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V)
        ctx.call = call
        return _reduce(call.statistics, call.weights_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        hidden_ND, weight_VD, bias_V = ctx.saved_tensors
        # Handed out once: the buffers become somebody's .grad. A further backward pass forms them again.
        gradients, call.gradients = call.gradients, None
        factor: Tensor | None = grad_loss
        with _no_autocast(hidden_ND):
            if gradients is None:
                weights_N = grad_loss if call.weights_N is None else grad_loss * call.weights_N
                _, gradients = run_chunks(call.engine, call.problem, weights_N, call.wanted)
                factor = None
            assert gradients is not None
            factor = _product(factor, gradients.factor)
            return (
                None,
                _finish(call.engine, gradients.hidden_ND, factor, hidden_ND),
                _finish(call.engine, gradients.weight_VD, factor, weight_VD),
                _finish(call.engine, gradients.bias_V, factor, bias_V),
            )


def _product(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Of two factors, None standing for one; multiplied before a gradient is, so that neither overflows it."""
    if first is None or second is None:
        return second if first is None else first
    return first * second


def _finish(engine: Engine, gradient: Tensor | None, factor: Tensor | None, like: Tensor | None) -> Tensor | None:
    """Rescale in place, then give the gradient the dtype of what it belongs to."""
    if gradient is None or like is None:
        return None
    if factor is not None:
        engine.rescale_(gradient, factor)
    return gradient.to(like.dtype)


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had: of the device, with what torch holds in reserve; or of the machine."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    for line in Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 4 * 2**30
