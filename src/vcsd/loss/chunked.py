"""The loss in plain torch, on any device: `vcsd.core` on a few rows at a time.

Memory: a (C, V) tile of the student's logits and smaller tiles for the teacher's views, in the compute dtype,
TILE_BYTES in total. The equations need about twenty float32 tensors of a tile's shape, so they run on a few rows at a
time, BLOCK_BYTES per tensor, which lets the allocator reuse the same memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.kernels.device import free_bytes
from vcsd.loss.chunk_loop import power_of_two
from vcsd.loss.head import finish_logits
from vcsd.loss.reference import loss_from_logits

if TYPE_CHECKING:
    from torch import Tensor

    from vcsd.loss.chunk_loop import Problem, Tiles
    from vcsd.loss.drawn import Drawn
    from vcsd.loss.statistics import Statistics

TILE_BYTES = {"cpu": 208 * 2**20, "cuda": 2**30}
"""Limit on the sum of all tiles. More rows would not make the matrix products faster."""

STUDENT_SHARE = 0.75
"""The student's share of the tiles. Its rows decide how often the head's gradient is read and written."""

BLOCK_BYTES = {"cpu": 2 * 2**20, "cuda": 128 * 2**20}
"""Limit on a float32 tensor of the element-wise part: fits a CPU cache; on CUDA, large enough to hide the launch."""

FREE_FRACTION = 0.25
"""Share of the free memory that the tiles may take."""


class ChunkedEngine:
    """`vcsd.core` on tiles of rows. Autograd runs from the divergence to the student's raw logits."""

    def rows_per_chunk(self, problem: Problem) -> tuple[int, int]:
        """Powers of two, so that small changes in free memory do not change the order of summation."""
        device, vocabulary = problem.student.weight_VD.device, problem.vocabulary
        budget = min(_constant(TILE_BYTES, device), FREE_FRACTION * free_bytes(device))
        student_bytes = vocabulary * problem.student.views[0].element_size()
        teacher_bytes = vocabulary * sum(view_ND.element_size() for view_ND in problem.teacher.views)
        rows = min(power_of_two(STUDENT_SHARE * budget / student_bytes), problem.num_positions)
        return rows, min(power_of_two((budget - rows * student_bytes) / teacher_bytes), rows)

    def new_tile(self, num_rows: int, problem: Problem, dtype: torch.dtype) -> Tensor:
        """Contiguous rows."""
        return torch.empty(num_rows, problem.vocabulary, dtype=dtype, device=problem.student.weight_VD.device)

    def work(
        self, tiles: Tiles, problem: Problem, drawn_C: Drawn | None, weights_C: Tensor | None, out: Statistics
    ) -> None:
        """Fill `out`; with weights, replace the student's tile by the gradient of the weighted sum on it."""
        num_rows = len(tiles.student_CV)
        block = power_of_two(_constant(BLOCK_BYTES, tiles.student_CV.device) / (4 * problem.vocabulary))
        for start in range(0, num_rows, block):
            rows = slice(start, min(start + block, num_rows))
            raw_CV = tiles.student_CV[rows].detach()
            with torch.set_grad_enabled(weights_C is not None):
                raw_CV.requires_grad_(weights_C is not None)
                loss_C, statistics = loss_from_logits(
                    finish_logits(raw_CV, problem.student.head),
                    finish_logits(tiles.original_CV[rows], problem.teacher.head),
                    None if tiles.control_CV is None else finish_logits(tiles.control_CV[rows], problem.teacher.head),
                    problem.objective,
                    None if drawn_C is None else drawn_C.rows(rows.start, rows.stop),
                )
            out.rows(rows.start, rows.stop).copy_(statistics)
            if weights_C is not None:
                (grad_CV,) = torch.autograd.grad(loss_C, raw_CV, weights_C[rows].to(loss_C.dtype))
                tiles.student_CV[rows] = grad_CV

    def rescale_(self, gradient: Tensor, factor: Tensor) -> None:
        """Multiply in place; on the CPU, skip a factor of one, since reading it is free there."""
        if gradient.device.type == "cpu" and factor.item() == 1:
            return
        if gradient.dtype.itemsize < factor.dtype.itemsize:  # bfloat16 would round the factor, float16 overflow
            gradient.copy_(gradient.to(factor.dtype).mul_(factor))
        else:
            gradient.mul_(factor)


def _constant(table: dict[str, int], device: torch.device) -> int:
    return table.get(device.type, table["cuda"])
