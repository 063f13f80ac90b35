"""The public function: validates its arguments, picks an implementation and calls it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import torch

from vcsd.errors import ConfigError, did_you_mean
from vcsd.kernels.device import compute_dtype
from vcsd.loss.chunk_loop import Engine, Problem, Side, fused_loss
from vcsd.loss.chunked import ChunkedEngine
from vcsd.loss.drawn import Drawn
from vcsd.loss.head import head_problems
from vcsd.loss.objective import KERNEL_CODES
from vcsd.loss.reference import full_logits, loss_from_logits

if TYPE_CHECKING:
    from torch import Tensor

    from vcsd.loss.objective import Objective
    from vcsd.loss.statistics import Statistics
    from vcsd.types import Head, Scores

IMPLS = ("auto", "reference", "chunked", "triton")


def which_impl(device: torch.device | str, dtype: torch.dtype = torch.bfloat16) -> str:
    """What impl="auto" means on a device: `triton` on CUDA if Triton is installed, else `chunked`.

    float64 is for checking; the Triton kernel does not support it.

    >>> which_impl("cpu")
    'chunked'
    """
    is_cuda = torch.device(device).type == "cuda"
    has_triton = importlib.util.find_spec("triton") is not None
    return "triton" if is_cuda and has_triton and dtype != torch.float64 else "chunked"


def distillation_loss(
    student: Scores,
    original: Scores,
    control: Scores | None,
    objective: Objective,
    weights: Tensor | None = None,
    *,
    realised_token_ids: Tensor | None = None,
    sampled_log_probs: Tensor | None = None,
    impl: str = "auto",
) -> tuple[Tensor, Statistics]:
    """Compute the divergence of the student from the contrast-shaped target at every position.

    Equivalent to these lines, without the three (N, V) logit tensors:

        log_p_x = log_probs(logits_x, temperature)              for student, original and control
        log_q = shape_target(log_p_original, log_p_control, alpha=..., beta=..., anchor=..., end_token_ids=...)
        loss = forward_kl(log_q, log_p_student)                 or reverse_kl, jensen_shannon

    Without `weights`, the loss is (N,), one divergence per position in nats, and backward computes the logits again.
    With `weights` (N,), the factor of each position in the step's loss (see `vcsd.core.reduce`), the loss is the scalar
    sum(weights * divergence), and the same pass computes its gradient: use this to train. The statistics hold the
    divergence of each position either way. Gradients reach the student's hidden states, head weight and head bias;
    the teacher and the weights are constants.

        student: hidden states (N, D) in float32, bfloat16, float16 or float64, and the student's head.
        original, control: the teacher under its two views; its width may differ from the student's. Without a control
            the target is the original distribution on its support, whatever alpha is.
        objective: target shape, divergence and temperature; `Method.objective` builds it.
        realised_token_ids: (N,), the tokens the student sampled, for the statistics.
        sampled_log_probs: (N,), their log-probabilities when they were sampled, before the sampling temperature; needed
            with `objective.importance_clip`. The divergence in loss and statistics then includes the weight.
        returns: the loss in float32 (float64 for float64 inputs), and the statistics per position.

    >>> from vcsd.loss import Objective
    >>> from vcsd.types import Head, Scores
    >>> hidden, head = torch.eye(3), Head(weight_VD=torch.eye(3))
    >>> student, original, control = (Scores(x, head) for x in (hidden, 2 * hidden, hidden))
    >>> loss, statistics = distillation_loss(student, original, control, Objective(beta=0.5, temperature=1.0))
    >>> statistics.support_size.tolist()
    [1, 1, 1]
    """
    impl = _choose(impl, student.hidden_ND, objective)
    views = [original] if control is None else [original, control]
    assert control is None or control.head is original.head, "both views are scored by one teacher, with one head"
    _check_heads(student.head, original.head)
    _check_tensors(student, *views)
    num = len(student.hidden_ND)
    for per_position in (realised_token_ids, sampled_log_probs, weights):
        assert per_position is None or per_position.shape == (num,), f"{tuple(per_position.shape)}, not ({num},)"
    drawn = None if realised_token_ids is None else Drawn(realised_token_ids, sampled_log_probs)
    _check_drawn(objective, drawn)
    weights = None if weights is None else weights.detach()
    if impl == "reference":
        return _reference(student, original, control, objective, drawn, weights)
    teacher = Side.prepare(original.head, *(view.hidden_ND for view in views))
    problem = Problem(Side.prepare(student.head, student.hidden_ND), teacher, objective, drawn)
    return fused_loss(_engine(impl), problem, student.hidden_ND, weights)


def _reference(
    student: Scores,
    original: Scores,
    control: Scores | None,
    objective: Objective,
    drawn: Drawn | None,
    weights: Tensor | None,
) -> tuple[Tensor, Statistics]:
    with torch.no_grad():
        logits_original = full_logits(original)
        logits_control = None if control is None else full_logits(control)
    loss, statistics = loss_from_logits(full_logits(student), logits_original, logits_control, objective, drawn)
    return (loss if weights is None else (loss * weights).sum()), statistics


def _engine(impl: str) -> Engine:
    """The engine of an implementation. Triton is imported on first use."""
    if impl == "chunked":
        return ChunkedEngine()
    from vcsd.loss.row_kernel import TritonEngine

    return TritonEngine()


def _choose(impl: str, student_hidden: Tensor, objective: Objective) -> str:
    if impl not in IMPLS:
        raise ConfigError([f"impl = {impl!r} is not an implementation. {did_you_mean(impl, IMPLS)}"])
    dtype = compute_dtype(student_hidden)
    if impl == "auto":
        return "chunked" if objective.needs_chunked else which_impl(student_hidden.device, dtype)
    if impl == "triton" and objective.needs_chunked:
        raise ConfigError(
            [
                "impl = 'triton' supports neither student_top_k nor importance_clip, and of the divergences only "
                f"{', '.join(KERNEL_CODES)}. Use impl: auto or chunked."
            ]
        )
    if impl == "triton" and importlib.util.find_spec("triton") is None:
        raise ConfigError(["impl = 'triton', but Triton is not installed. Install it, or use impl: chunked."])
    if impl == "triton" and dtype == torch.float64:
        raise ConfigError(["impl = 'triton' does not support float64. Use impl: chunked, or float32."])
    return impl


def _check_drawn(objective: Objective, drawn: Drawn | None) -> None:
    if objective.importance_clip is not None and (drawn is None or drawn.log_p_N is None):
        raise ConfigError(
            [
                f"importance_clip = {objective.importance_clip!r} needs the sampled tokens and their log-probs. "
                "Pass realised_token_ids and sampled_log_probs, or set importance_clip: null."
            ]
        )


def _check_heads(student: Head, teacher: Head) -> None:
    problems = [*head_problems(student), *head_problems(teacher)]
    num_student, num_teacher = len(student.weight_VD), len(teacher.weight_VD)
    if num_student != num_teacher:
        problems.append(
            f"the student's head has {num_student} tokens and the teacher's {num_teacher}, but a divergence compares "
            "token by token. Choose a teacher with the student's tokenizer; if only the padding of the embedding "
            "differs, cut the larger head to the size of the smaller one."
        )
    if problems:
        raise ConfigError(problems)


def _check_tensors(student: Scores, *views: Scores) -> None:
    """Assert what callers inside the package guarantee: shapes and devices."""
    for scores in (student, *views):
        hidden, head = scores.hidden_ND, scores.head
        assert hidden.dim() == 2, f"hidden states are (N, D), not {tuple(hidden.shape)}"
        assert hidden.shape[1] == head.weight_VD.shape[1], f"hidden {hidden.shape}, head {head.weight_VD.shape}"
        assert len(hidden) == len(student.hidden_ND), f"{len(hidden)} positions, not {len(student.hidden_ND)}"
        assert hidden.device == head.weight_VD.device, f"hidden on {hidden.device}, head on {head.weight_VD.device}"
        assert head.bias_V is None or head.bias_V.shape == head.weight_VD.shape[:1], "a bias is (V,)"
