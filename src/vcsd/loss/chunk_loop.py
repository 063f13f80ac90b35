"""The loop over chunks of rows, and its gradient.

For each chunk of C rows: project the student's hidden states into a (C, V) tile of logits that all chunks share. Then,
a few rows at a time, project the teacher's views into smaller tiles and let an engine compute divergences, statistics
and the gradient on the student's logits, which overwrites them. Once all C rows hold their gradient, multiply them by
the head's weight (gradient of the hidden states) and by the hidden states (gradient of the head). The student's tile is
the larger one because each chunk reads and writes the head's whole gradient.

The gradient needs each row's weight in the loss before the tile is dropped. With weights, the loss is the weighted sum
and its gradient is computed in the same pass; the upstream gradient is then a single number that rescales it. Without
weights, the loss is per position and backward runs the loop again with the upstream gradient as weights: also exact,
but with three more matrix products. The same happens when a graph is run backward a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.autograd.function import once_differentiable

from vcsd.core.probability import at_least_float32
from vcsd.kernels.device import compute_dtype
from vcsd.loss.head import add_head_gradient_, compute_weight
from vcsd.loss.statistics import Statistics

if TYPE_CHECKING:
    import contextlib

    from torch import Tensor

    from vcsd.loss.drawn import Drawn
    from vcsd.loss.objective import Objective
    from vcsd.types import Head


@dataclass(frozen=True, eq=False)
class Side:
    """One model: its head, the weight in the compute dtype, and its hidden states under one or two views."""

    head: Head
    weight_VD: Tensor
    views: tuple[Tensor, ...]

    @classmethod
    def prepare(cls, head: Head, *views: Tensor | None) -> Side:
        """Cast a head and hidden states for the matrix products, and detach them from the graph."""
        given = [hidden_ND for hidden_ND in views if hidden_ND is not None]
        dtype = compute_dtype(given[0])
        return cls(head, compute_weight(head, dtype), tuple(hidden_ND.detach().to(dtype) for hidden_ND in given))


@dataclass(frozen=True, eq=False)
class Tiles:
    """The products hidden @ weight.T of one chunk, (C, V); rows may be padded in memory."""

    student_CV: Tensor
    original_CV: Tensor
    control_CV: Tensor | None


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a pass over the chunks reads."""

    student: Side
    teacher: Side
    objective: Objective
    drawn: Drawn | None

    @property
    def num_positions(self) -> int:
        """N."""
        return len(self.student.views[0])

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.student.weight_VD)

    @property
    def has_contrast(self) -> bool:
        """Whether the teacher is scored under two views."""
        return len(self.teacher.views) == 2


@dataclass(frozen=True, eq=False)
class Wanted:
    """Which gradients are needed; a frozen head saves a matrix product."""

    hidden: bool
    weight: bool
    bias: bool


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients of the weighted sum, to be multiplied by `factor` unless that is None."""

    hidden_ND: Tensor | None
    weight_VD: Tensor | None
    bias_V: Tensor | None
    factor: Tensor | None = None


class Engine(Protocol):
    """The interface of an implementation: chunk size, tiles, and the work on their rows."""

    def rows_per_chunk(self, problem: Problem) -> tuple[int, int]:
        """C, and how many of these rows the teacher scores at a time."""

    def new_tile(self, num_rows: int, problem: Problem, dtype: torch.dtype) -> Tensor:
        """A (rows, V) tile."""

    def work(
        self, tiles: Tiles, problem: Problem, drawn_C: Drawn | None, weights_C: Tensor | None, out: Statistics
    ) -> None:
        """Fill `out`; with weights, replace the student's tile by the gradient of the weighted sum on it."""

    def rescale_(self, gradient: Tensor, factor: Tensor) -> None:
        """Multiply in place by a number on the device."""


def run_chunks(
    engine: Engine, problem: Problem, weights_N: Tensor | None, wanted: Wanted
) -> tuple[Statistics, Gradients | None]:
    """Run one pass over all positions; with weights, also compute the gradients of sum(weights * divergence)."""
    hidden_ND, weight_VD = problem.student.views[0], problem.student.weight_VD
    like = at_least_float32(hidden_ND.new_empty(0))
    statistics = Statistics.empty(
        problem.num_positions, like, has_realised=problem.has_contrast and problem.drawn is not None
    )
    gradients = None if weights_N is None else _new_gradients(hidden_ND, weight_VD, wanted, weights_N)
    if problem.num_positions == 0:
        return statistics, gradients
    if gradients is not None and gradients.factor is not None and weights_N is not None:
        weights_N = weights_N / gradients.factor
    rows, teacher_rows = engine.rows_per_chunk(problem)
    student_tile = engine.new_tile(rows, problem, hidden_ND.dtype)
    views = problem.teacher.views
    teacher_tile = engine.new_tile(teacher_rows * len(views), problem, views[0].dtype)
    for start, stop in _ranges(0, problem.num_positions, rows):
        student_CV = student_tile[: stop - start]
        torch.mm(hidden_ND[start:stop], weight_VD.T, out=student_CV)
        for first, last in _ranges(start, stop, teacher_rows):
            tiles = Tiles(student_CV[first - start : last - start], *_teacher_tiles(problem, teacher_tile, first, last))
            drawn_C = None if problem.drawn is None else problem.drawn.rows(first, last)
            weights_C = None if weights_N is None else weights_N[first:last]
            engine.work(tiles, problem, drawn_C, weights_C, statistics.rows(first, last))
        if gradients is not None:
            _add_gradients(gradients, student_CV, problem, start, stop)
    return statistics, gradients


def _ranges(start: int, stop: int, step: int) -> list[tuple[int, int]]:
    """Consecutive pieces of at most `step`, from start to stop.

    >>> _ranges(0, 7, 3)
    [(0, 3), (3, 6), (6, 7)]
    """
    return [(first, min(first + step, stop)) for first in range(start, stop, step)]


def power_of_two(limit: float) -> int:
    """The largest power of two that is at most `limit`, and at least one.

    >>> power_of_two(100.0), power_of_two(0.3)
    (64, 1)
    """
    return int(2 ** (max(int(limit), 1).bit_length() - 1))


def _teacher_tiles(problem: Problem, tile: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
    """Project both views of the teacher in one matrix product, since larger ones use the device better."""
    views_CD = [view_ND[start:stop] for view_ND in problem.teacher.views]
    hidden_CD = views_CD[0] if len(views_CD) == 1 else torch.cat(views_CD)
    torch.mm(hidden_CD, problem.teacher.weight_VD.T, out=tile[: len(hidden_CD)])
    num_rows = stop - start
    return tile[:num_rows], tile[num_rows : 2 * num_rows] if len(views_CD) == 2 else None


def _new_gradients(hidden_ND: Tensor, weight_VD: Tensor, wanted: Wanted, weights_N: Tensor) -> Gradients:
    """Allocate buffers; zeros if there are no positions, since nothing will write to them.

    float16 cannot hold weights like 1e-6, so it computes the gradient with weights of order one and a factor.
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
    """Run the two matrix products of backward on the tile that holds the gradient on the student's raw logits."""
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
    """Switch autocast off: everything is already cast explicitly."""
    return torch.autocast(like.device.type, enabled=False)


class _Call:
    """State passed from forward to backward, apart from the tensors that autograd tracks."""

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
        # Saved so that autograd detects in-place changes before a second pass uses them.
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V)
        ctx.call = call
        return _reduce(call.statistics, call.weights_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        hidden_ND, weight_VD, bias_V = ctx.saved_tensors
        # Hand the buffers out once, since they become .grad. Another backward pass computes them again.
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
    """The product of two factors, where None means one."""
    if first is None or second is None:
        return second if first is None else first
    return first * second


def _finish(engine: Engine, gradient: Tensor | None, factor: Tensor | None, like: Tensor | None) -> Tensor | None:
    """Rescale in place, then cast to the dtype of the tensor the gradient belongs to."""
    if gradient is None or like is None:
        return None
    if factor is not None:
        engine.rescale_(gradient, factor)
    return gradient.to(like.dtype)
