"""The public function: checks what it is given, chooses an implementation and calls it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import torch

from vcsd.core.probability import LOG_FLOOR
from vcsd.errors import ConfigError, did_you_mean
from vcsd.kernels.chunked import ChunkedEngine
from vcsd.kernels.fused import Engine, Problem, Side, fused_loss
from vcsd.kernels.head import check_shape, compute_dtype
from vcsd.kernels.objective import Objective
from vcsd.kernels.reference import full_logits, loss_from_logits

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

    from vcsd.kernels.statistics import Statistics
    from vcsd.types import Head

IMPLS = ("auto", "reference", "chunked", "triton")


def which_impl(device: torch.device | str, dtype: torch.dtype = torch.bfloat16) -> str:
    """What impl="auto" is on a device: `triton` on CUDA if Triton is installed, else `chunked`.

    float64 is for checking, and beyond the Triton kernel.

    >>> which_impl("cpu")
    'chunked'
    """
    is_cuda = torch.device(device).type == "cuda"
    has_triton = importlib.util.find_spec("triton") is not None
    return "triton" if is_cuda and has_triton and dtype != torch.float64 else "chunked"


def distillation_loss(  # noqa: PLR0913  the fields of a method, spelled out, so that a misspelled one is an error
    student_hidden: Tensor,
    student_head: Head,
    original_hidden: Tensor,
    control_hidden: Tensor | None,
    teacher_head: Head,
    *,
    alpha: float = 1.0,
    beta: float = 0.1,
    anchor: float = 1.0,
    end_token_ids: Collection[int] = (),
    end_tokens_keep_anchor: bool = False,
    divergence: str = "forward_kl",
    js_weight: float = 0.5,
    log_floor: float = LOG_FLOOR,
    temperature: float = 2.0,
    realised_token_ids: Tensor | None = None,
    weights: Tensor | None = None,
    impl: str = "auto",
) -> tuple[Tensor, Statistics]:
    """Divergence of the student from the contrast-shaped target at every position, from hidden states and heads.

    It is these lines, without the three (N, V) tensors of logits:

        log_p_x = log_probs(logits_x, temperature)              for student, original and control
        log_q = shape_target(log_p_original, log_p_control, alpha=..., beta=..., anchor=..., end_token_ids=...)
        loss = forward_kl(log_q, log_p_student)                 or reverse_kl, jensen_shannon

    Without `weights` the loss is (N,), one divergence per position in nats, and backward computes the logits again.
    With `weights` (N,), the factor of each position in the step's loss (1 / (|y| M) times scale, see
    `vcsd.core.reduce`), the loss is the scalar sum(weights * divergence), and its gradient is formed in the same pass:
    the way to train. The divergence of each position is in the statistics either way. Gradients reach the student's
    hidden states, head weight and head bias; the teacher and the weights are constants.

        student_hidden: (N, D), float32, bfloat16, float16 or float64.
        original_hidden, control_hidden: (N, D_teacher); D_teacher may differ from D. No control: a plain target, the
            original distribution on its support, whatever alpha is.
        student_head, teacher_head: over the same vocabulary; see `cast_head` for one kept in float32.
        realised_token_ids: (N,), the tokens the student sampled, for the statistics.
        returns: the loss, float32 (float64 if computed so), and the statistics per position.

    >>> from vcsd.types import Head
    >>> hidden, head = torch.eye(3), Head(weight_VD=torch.eye(3))
    >>> loss, statistics = distillation_loss(hidden, head, 2 * hidden, hidden, head, beta=0.5, temperature=1.0)
    >>> statistics.support_size.tolist()
    [1, 1, 1]
    """
    objective = Objective(
        alpha=alpha,
        beta=beta,
        anchor=anchor,
        end_token_ids=tuple(sorted(set(end_token_ids))),
        end_tokens_keep_anchor=end_tokens_keep_anchor,
        divergence=divergence,
        js_weight=js_weight,
        log_floor=log_floor,
        temperature=temperature,
    )
    impl = _choose(impl, student_hidden)
    _check_heads(student_head, teacher_head)
    _check_tensors(student_hidden, student_head, (original_hidden, control_hidden), teacher_head)
    _check_positions(len(student_hidden), realised_token_ids, weights)
    realised = None if control_hidden is None else realised_token_ids
    weights = None if weights is None else weights.detach()
    if impl == "reference":
        views = (original_hidden, control_hidden)
        return _reference(student_hidden, student_head, views, teacher_head, objective, realised, weights)
    teacher = Side.prepare(teacher_head, original_hidden, control_hidden)
    problem = Problem(Side.prepare(student_head, student_hidden), teacher, objective, realised)
    return fused_loss(_engine(impl), problem, student_hidden, weights)


def _reference(
    student_hidden: Tensor,
    student_head: Head,
    views: tuple[Tensor, Tensor | None],
    teacher_head: Head,
    objective: Objective,
    realised: Tensor | None,
    weights: Tensor | None,
) -> tuple[Tensor, Statistics]:
    with torch.no_grad():
        logits_original, logits_control = (None if view is None else full_logits(view, teacher_head) for view in views)
    assert logits_original is not None
    logits_student = full_logits(student_hidden, student_head)
    loss, statistics = loss_from_logits(logits_student, logits_original, logits_control, objective, realised)
    return (loss if weights is None else (loss * weights).sum()), statistics


def _engine(impl: str) -> Engine:
    """Triton is imported when it is first used."""
    if impl == "chunked":
        return ChunkedEngine()
    from vcsd.kernels.triton import TritonEngine

    return TritonEngine()


def _choose(impl: str, student_hidden: Tensor) -> str:
    if impl not in IMPLS:
        raise ConfigError([f"impl = {impl!r} is not an implementation. {did_you_mean(impl, IMPLS)}"])
    dtype = compute_dtype(student_hidden)
    if impl == "auto":
        return which_impl(student_hidden.device, dtype)
    if impl == "triton" and importlib.util.find_spec("triton") is None:
        raise ConfigError(["impl = 'triton', but Triton is not installed. Install it, or use impl: chunked."])
    if impl == "triton" and dtype == torch.float64:
        raise ConfigError(["impl = 'triton' does not compute in float64. Use impl: chunked, or float32."])
    return impl


def _check_heads(student_head: Head, teacher_head: Head) -> None:
    problems = [*check_shape(student_head), *check_shape(teacher_head)]
    num_student, num_teacher = len(student_head.weight_VD), len(teacher_head.weight_VD)
    if num_student != num_teacher:
        problems.append(
            f"the student's head has {num_student} tokens and the teacher's {num_teacher}: a divergence compares "
            "token by token. Choose a teacher with the student's tokenizer; if only the padding of the embedding "
            "differs, cut the larger head to the smaller's rows."
        )
    if problems:
        raise ConfigError(problems)


def _check_tensors(
    student_hidden: Tensor, student_head: Head, views: tuple[Tensor, Tensor | None], teacher_head: Head
) -> None:
    """Promises between rooms of the package: shapes and devices."""
    sides = [(student_hidden, student_head), *((view, teacher_head) for view in views if view is not None)]
    for hidden, head in sides:
        assert hidden.dim() == 2, f"hidden states are (N, D), not {tuple(hidden.shape)}"
        assert hidden.shape[1] == head.weight_VD.shape[1], f"hidden {hidden.shape}, head {head.weight_VD.shape}"
        assert len(hidden) == len(student_hidden), f"{len(hidden)} positions, the student has {len(student_hidden)}"
        assert hidden.device == head.weight_VD.device, f"hidden on {hidden.device}, head on {head.weight_VD.device}"
        assert head.bias_V is None or head.bias_V.shape == head.weight_VD.shape[:1], "a bias is (V,)"


def _check_positions(num_positions: int, *per_position: Tensor | None) -> None:
    for tensor in per_position:
        assert tensor is None or tensor.shape == (num_positions,), f"{tuple(tensor.shape)}, not ({num_positions},)"
