"""Every implementation computes what `vcsd.core` defines, as exactly as the naive computation or better."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from vcsd.core import contrast, log_probs, response_mean
from vcsd.errors import ConfigError
from vcsd.loss import cast_head, which_impl
from vcsd.types import Head

DIVERGENCES = ("forward_kl", "reverse_kl", "jensen_shannon")
VALUES = ("divergence", "kl_target_original", "student_entropy", "realised_contrast")
FIELDS = {"end_token_ids": (7, 11), "log_floor": -30.0}


def error(value, truth):
    """Relative to the size of the truth, or absolute where that is small."""
    if value is None and truth is None:
        return 0.0
    return float((value.double() - truth.double()).norm() / truth.double().norm().clamp(min=1.0))


def assert_as_exact_as_naive(case, impl, dtype, tolerance, **fields):
    """Error against float64 at most that of the naive computation in the same dtype, plus a tolerance."""
    if case.hidden.is_cuda:
        tolerance *= 10  # the hardware's exponentials and logarithms are good to two units in the last place
    case = case.to(dtype)
    truth = case.to(torch.float64).run("reference", **fields)
    naive, outcome = case.run("reference", **fields), case.run(impl, **fields)
    for name in ("loss", "grad_hidden", "grad_weight", "grad_bias"):
        value, exact, plain = getattr(outcome, name), getattr(truth, name), getattr(naive, name)
        assert error(value, exact) <= error(plain, exact) + tolerance, name
        assert value is None or value.dtype == plain.dtype, name
    for name in VALUES:
        value, exact, plain = (getattr(x.statistics, name) for x in (outcome, truth, naive))
        assert error(value, exact) <= error(plain, exact) + tolerance, name
    if dtype != torch.bfloat16:
        assert outcome.statistics.support_size.tolist() == truth.statistics.support_size.tolist()
        assert outcome.statistics.argmax_changed.tolist() == truth.statistics.argmax_changed.tolist()


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("num", "vocabulary"), [(4, 128), (5, 97), (1, 2), (3, 4099)])
def test_the_kernel_is_as_exact_as_the_naive_computation(case, impl, divergence, dtype, num, vocabulary):
    tolerance = 2e-6 if dtype == torch.float32 else 4e-3
    fields = FIELDS if vocabulary > 11 else {}
    assert_as_exact_as_naive(case(num, vocabulary), impl, dtype, tolerance, divergence=divergence, **fields)


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize(
    "fields",
    [
        {"beta": 0.0},
        {"beta": 1.0},
        {"alpha": 0.0},
        {"alpha": 2.5, "anchor": 0.0, "end_token_ids": (7, 11)},
        {"anchor": 0.5, "end_token_ids": (0, 7, 96)},
        {"anchor": 0.5, "end_token_ids": (0, 7, 96), "end_tokens_keep_anchor": True},
        {"temperature": 0.7, "js_weight": 0.2},
    ],
    ids=lambda fields: "-".join(f"{key}={value}" for key, value in fields.items()),
)
def test_every_shape_parameter_means_what_core_says(case, impl, divergence, fields):
    fields = {"log_floor": -30.0, **fields}
    assert_as_exact_as_naive(case(), impl, torch.float32, 2e-6, divergence=divergence, **fields)


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize(
    "head",
    [{"bias": True}, {"scale": 0.25}, {"soft_cap": 3.0}, {"bias": True, "scale": 2.0, "soft_cap": 5.0}],
    ids=["bias", "scale", "soft-cap", "all"],
)
def test_bias_scale_and_soft_cap_reach_value_and_gradient(case, impl, divergence, head):
    for vocabulary in (64, 97):
        problem = case(vocabulary=vocabulary, **head)
        assert_as_exact_as_naive(problem, impl, torch.float32, 4e-6, divergence=divergence, **FIELDS)


def test_a_bias_in_bfloat16_gets_its_gradient(case, impl):
    assert_as_exact_as_naive(case(bias=True), impl, torch.bfloat16, 4e-3)


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_without_a_control_the_target_is_plain(case, impl, divergence):
    problem = case(control=False)
    assert_as_exact_as_naive(problem, impl, torch.float32, 2e-6, divergence=divergence, log_floor=-30.0)
    same_views = replace(problem, control=problem.original)
    outcome, plain = same_views.run(impl, alpha=3.0), problem.run(impl, alpha=3.0)
    assert plain.statistics.realised_contrast is None
    torch.testing.assert_close(outcome.statistics.divergence, plain.statistics.divergence)


def test_the_teacher_may_be_wider_than_the_student(case, impl):
    assert_as_exact_as_naive(case(teacher_width=12), impl, torch.float32, 2e-6, **FIELDS)


def test_without_positions_loss_and_gradients_are_zero(case, impl):
    outcome = case(num=0).run(impl)
    assert outcome.loss.item() == 0
    assert outcome.grad_hidden.shape == (0, 8)
    assert outcome.grad_weight.shape == (97, 8)
    assert outcome.grad_weight.abs().max() == 0
    assert case(num=0).run(impl, weighted=False).loss.shape == (0,)


def test_inputs_need_not_be_contiguous(case, impl):
    problem = case()
    expected = problem.run(impl)
    spread = replace(
        problem,
        hidden=problem.hidden.repeat_interleave(2, 0)[::2],
        original=problem.original.T.contiguous().T,
        control=problem.control.repeat(1, 2)[:, :8],
        teacher=Head(problem.teacher.weight_VD.T.contiguous().T),
        weights=problem.weights.repeat_interleave(3)[::3],
        realised=problem.realised.repeat_interleave(2)[::2],
    )
    outcome = spread.run(impl)
    torch.testing.assert_close(outcome.loss, expected.loss)
    torch.testing.assert_close(outcome.grad_hidden, expected.grad_hidden)
    torch.testing.assert_close(outcome.grad_weight, expected.grad_weight)
    assert torch.equal(outcome.statistics.support_size, expected.statistics.support_size)
    torch.testing.assert_close(outcome.statistics.realised_contrast, expected.statistics.realised_contrast)


def test_a_frozen_head_gets_no_gradient_and_changes_nothing_else(case, impl):
    frozen, trained = case().run(impl, frozen=True), case().run(impl)
    assert frozen.grad_weight is None
    assert torch.equal(frozen.grad_hidden, trained.grad_hidden)


def test_a_tied_head_adds_to_the_gradient_of_the_embedding(case, impl):
    problem = case()
    embedding = problem.head.weight_VD.clone().requires_grad_()
    hidden = embedding[problem.realised]
    loss, _ = problem.loss(hidden, Head(embedding), problem.weights, impl=impl)
    loss.backward()
    outcome = replace(problem, hidden=hidden.detach()).run("reference")
    expected = outcome.grad_weight.index_add(0, problem.realised, outcome.grad_hidden)
    torch.testing.assert_close(embedding.grad, expected, atol=2e-6, rtol=1e-5)


def test_without_gradients_only_the_value_is_computed(case, impl):
    problem = case()
    with torch.no_grad():
        loss, statistics = problem.loss(problem.hidden.requires_grad_(), problem.head, impl=impl)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, problem.run("reference", weighted=False).loss, atol=2e-6, rtol=1e-5)
    assert statistics.realised_contrast is None


# Weights and upstream gradients.


def test_without_weights_any_upstream_gradient_is_exact(case, impl):
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 4e-3)):
        problem = case().to(dtype)
        truth = problem.to(torch.float64).run("reference", weighted=False)
        naive, outcome = problem.run("reference", weighted=False), problem.run(impl, weighted=False)
        assert outcome.loss.shape == (5,)
        for name in ("loss", "grad_hidden", "grad_weight"):
            value, exact, plain = getattr(outcome, name), getattr(truth, name), getattr(naive, name)
            assert error(value, exact) <= error(plain, exact) + tolerance, name


def test_the_weights_of_a_reduction_give_its_loss_and_gradient(case, impl):
    """A reduction is linear, so its derivative is the weights: `vcsd.core.reduce` stays the only place that divides."""
    problem = case(num=5)

    def reduce(divergence):
        lengths = torch.tensor([2, 3], device=divergence.device)
        return response_mean(divergence, lengths, num_responses=7, loss_scale=4.0)

    ones = torch.ones(5, device=problem.hidden.device, requires_grad=True)
    (weights,) = torch.autograd.grad(reduce(ones), ones)
    outcome = replace(problem, weights=weights).run(impl)
    hidden = problem.hidden.clone().requires_grad_()
    loss, _ = problem.loss(hidden, problem.head, impl=impl)
    expected = reduce(loss)
    expected.backward()
    torch.testing.assert_close(outcome.loss, expected.detach())
    torch.testing.assert_close(outcome.grad_hidden, hidden.grad, atol=1e-6, rtol=1e-5)


def test_an_upstream_factor_rescales_the_gradient_of_the_weighted_sum(case, impl):
    problem = case()
    hidden = problem.hidden.clone().requires_grad_()
    loss, _ = problem.loss(hidden, problem.head, problem.weights, impl=impl)
    (-3.0 * loss).backward()
    torch.testing.assert_close(hidden.grad, -3.0 * problem.run("reference").grad_hidden, atol=4e-6, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "factor"), [(torch.bfloat16, 1 / 3), (torch.float16, 7e4)])
def test_an_upstream_factor_is_not_rounded_to_the_type_of_the_hidden_states(case, dtype, factor):
    """bfloat16 rounds a third by two thousandths, and float16 ends at 65,504; the head's gradient is in float32."""
    problem = case().to(dtype)

    def gradient(factor):
        hidden = problem.hidden.clone().requires_grad_()
        loss, _ = problem.loss(hidden, problem.head, torch.ones_like(problem.weights), impl="chunked", temperature=50.0)
        (factor * loss).backward()
        return hidden.grad

    expected = (gradient(1.0).float() * factor).to(dtype)
    assert expected.isfinite().all()
    torch.testing.assert_close(gradient(factor), expected, rtol=0, atol=0)


def test_a_graph_can_be_run_backward_twice(case, impl):
    problem = case()
    hidden = problem.hidden.clone().requires_grad_()
    weight = problem.head.weight_VD.clone().requires_grad_()
    loss, _ = problem.loss(hidden, Head(weight), problem.weights, impl=impl)
    first = torch.autograd.grad(2.0 * loss, (hidden, weight), retain_graph=True)
    second = torch.autograd.grad(2.0 * loss, (hidden, weight))
    torch.testing.assert_close(first, second)


def test_the_buffer_of_the_heads_gradient_becomes_its_grad_without_a_copy(case, monkeypatch):
    """A copy of V x D float32 numbers would be the largest allocation of a call."""
    seen = []
    monkeypatch.setattr(
        "vcsd.loss.chunked.ChunkedEngine.rescale_", lambda self, gradient, factor: seen.append(gradient.data_ptr())
    )
    assert case().run("chunked").grad_weight.data_ptr() in seen


def test_gradients_of_micro_batches_add_up(case, impl):
    problem = case(num=6)
    whole = problem.run(impl)
    total = torch.zeros_like(whole.grad_weight)
    for rows in (slice(0, 1), slice(1, 4), slice(4, 6)):
        part = replace(
            problem,
            hidden=problem.hidden[rows],
            original=problem.original[rows],
            control=problem.control[rows],
            weights=problem.weights[rows],
            realised=problem.realised[rows],
            sampled=problem.sampled[rows],
        )
        total += part.run(impl).grad_weight
    torch.testing.assert_close(total, whole.grad_weight, atol=4e-6, rtol=1e-5)


def test_small_weights_do_not_vanish_in_float16(case, impl):
    problem = case()
    small = replace(problem.to(torch.float16), weights=problem.weights * 1e-7)
    exact = problem.run("reference")
    hidden = small.hidden.clone().requires_grad_()
    loss, _ = small.loss(hidden, small.head, small.weights, impl=impl)
    (loss * 1e7).backward()
    assert error(hidden.grad, exact.grad_hidden) < 2e-2


# Precision of the head.


def test_a_float32_head_trains_in_float32_with_bfloat16_hidden_states(case, impl):
    problem = case()
    half = problem.to(torch.bfloat16)
    mixed = replace(half, head=problem.head, teacher=problem.teacher, weights=problem.weights)
    outcome, naive = mixed.run(impl), mixed.run("reference")
    assert outcome.grad_weight.dtype == torch.float32
    assert outcome.grad_hidden.dtype == torch.bfloat16
    truth = half.to(torch.float64).run("reference")
    assert error(outcome.grad_weight, truth.grad_weight) <= error(naive.grad_weight, truth.grad_weight) + 1e-3
    # Summed without rounding to bfloat16: hardly a value would survive that unchanged.
    assert (outcome.grad_weight != outcome.grad_weight.bfloat16()).float().mean() > 0.9


def test_a_head_cast_once_gives_what_a_head_cast_in_the_call_gives(case, impl):
    problem = case()
    half = problem.to(torch.bfloat16)
    weight = problem.head.weight_VD.clone().requires_grad_()
    results = []
    for head, teacher in (
        (Head(weight), problem.teacher),
        (cast_head(Head(weight), torch.bfloat16), cast_head(problem.teacher, torch.bfloat16)),
    ):
        loss, _ = replace(half, teacher=teacher).loss(half.hidden, head, problem.weights, impl=impl)
        results.append((loss, *torch.autograd.grad(loss, weight)))
    assert head.compute_weight_VD.dtype == torch.bfloat16
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert results[1][1].dtype == torch.float32


def test_autocast_decides_the_dtype_of_the_products(case, impl):
    problem = case()
    half = problem.to(torch.bfloat16)
    expected = replace(half, head=problem.head, teacher=problem.teacher, weights=problem.weights).run(impl)
    with torch.autocast(problem.hidden.device.type, dtype=torch.bfloat16):
        outcome = problem.run(impl)
    assert torch.equal(outcome.loss, expected.loss)
    assert outcome.grad_hidden.dtype == torch.float32
    torch.testing.assert_close(outcome.grad_weight, expected.grad_weight)


def test_auto_computes_float64_in_float64(case):
    problem = case().to(torch.float64)
    outcome, exact = problem.run("auto"), problem.run("reference")
    assert outcome.loss.dtype == torch.float64
    torch.testing.assert_close(outcome.grad_weight, exact.grad_weight, rtol=1e-12, atol=1e-13)


# Edges of the support, impossible tokens, and what is not a number.


def logits_case(case, student, original, control=None, **options):
    """Hidden states that pick rows of logits: the head is the transposed table of logits."""
    student, original = torch.as_tensor(student), torch.as_tensor(original)
    control = torch.zeros_like(original) if control is None else torch.as_tensor(control)
    num, vocabulary = student.shape
    problem = case(num, vocabulary, num, teacher_width=2 * num, **options)
    device = problem.hidden.device
    eye = torch.eye(2 * num, device=device)
    teacher = torch.cat([original, control]).T.contiguous().to(device)
    return replace(
        problem,
        hidden=eye[:num, :num].contiguous(),
        original=eye[:num],
        control=eye[num:],
        head=Head(student.T.contiguous().to(device)),
        teacher=Head(teacher),
    )


def test_ties_at_the_threshold_are_inside(case, impl):
    gap = -math.log(10.0)
    original = [[0.0, 2 * gap, 2 * gap, 2 * gap - 1e-3, -50.0], [3.0, 3.0, 3.0, 3.0 + 2 * gap, -9.0]]
    student = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))
    outcome = logits_case(case, student, original).run(impl, beta=0.1, temperature=2.0)
    assert outcome.statistics.support_size.tolist() == [3, 4]


def test_a_support_of_one_token_is_a_cross_entropy(case, impl):
    original = [[9.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0]]
    student = torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 0.5]])
    outcome = logits_case(case, student, original).run(impl, temperature=1.0, weighted=False)
    assert outcome.statistics.support_size.tolist() == [1, 1]
    expected = torch.nn.functional.cross_entropy(student, torch.tensor([0, 3]), reduction="none")
    torch.testing.assert_close(outcome.loss.cpu(), expected)


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_a_full_support_without_contrast_is_the_plain_divergence(case, impl, divergence):
    assert_as_exact_as_naive(case(), impl, torch.float32, 2e-6, divergence=divergence, alpha=0.0, beta=0.0)


def test_end_tokens_count_in_and_out_of_the_support(case, impl):
    original = [[4.0, 3.0, 0.0, -9.0]] * 3
    control = [[1.0, 3.0, 2.0, 5.0]] * 3
    student = torch.zeros(3, 4)
    problem = logits_case(case, student, original, control)
    for ends in ((0,), (1,), (3,), (0, 3), (0, 1, 2, 3)):
        fields = {"end_token_ids": ends, "temperature": 1.0, "anchor": 0.5}
        outcome, exact = problem.run(impl, **fields), problem.run("reference", **fields)
        torch.testing.assert_close(outcome.statistics.divergence, exact.statistics.divergence)
        torch.testing.assert_close(outcome.statistics.kl_target_original, exact.statistics.kl_target_original)
        torch.testing.assert_close(outcome.statistics.realised_contrast, exact.statistics.realised_contrast)


def bias_case(case, impossible, **options):
    """Impossible tokens by a bias of -inf (a weight of -inf would make NaN of a hidden state of zero)."""
    problem = case(num=4, vocabulary=97, bias=True, **options)
    for head, tokens in zip((problem.head, problem.teacher), impossible, strict=True):
        head.bias_V[list(tokens)] = -math.inf
    return problem


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize(
    "impossible", [((1, 5, 90), ()), ((), (1, 5, 90)), ((1, 2, 3), (2, 3, 4))], ids=["student", "teacher", "both"]
)
@pytest.mark.parametrize("beta", [0.1, 0.0])
def test_impossible_tokens_have_finite_values_and_gradients(case, impl, divergence, impossible, beta):
    problem = bias_case(case, impossible)
    fields = {"divergence": divergence, "beta": beta, "log_floor": -30.0}
    outcome, exact = problem.run(impl, **fields), problem.run("reference", **fields)
    assert outcome.grad_weight.isfinite().all()
    # A floored token costs 10^4 nats, so rounding is relative to that.
    torch.testing.assert_close(outcome.statistics.divergence, exact.statistics.divergence, rtol=4e-6, atol=4e-6)
    torch.testing.assert_close(outcome.grad_hidden, exact.grad_hidden, rtol=1e-5, atol=4e-6)
    torch.testing.assert_close(outcome.grad_weight, exact.grad_weight, rtol=1e-5, atol=4e-6)
    torch.testing.assert_close(outcome.statistics.student_entropy, exact.statistics.student_entropy)
    assert torch.equal(outcome.statistics.support_size, exact.statistics.support_size)


def test_a_token_the_student_rules_out_costs_the_floor_and_has_no_gradient(case, impl):
    original = [[1.0, 1.0, -30.0, -30.0]]
    student = [[0.0, -1e9, 0.0, 0.0]]
    problem = logits_case(case, student, original)
    fields = {"temperature": 1.0, "alpha": 0.0, "weighted": False}
    outcome, exact = problem.run(impl, **fields), problem.run("reference", **fields)
    assert outcome.loss.item() == pytest.approx(5000.0, rel=1e-3)
    torch.testing.assert_close(outcome.grad_weight, exact.grad_weight)


@pytest.mark.parametrize("where", ["hidden", "original", "control"])
@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_a_nan_comes_out_at_its_position_and_nowhere_else(case, impl, where, divergence):
    problem = case(num=3)
    getattr(problem, where)[1, 2] = math.nan
    values = problem.run(impl, divergence=divergence, weighted=False, log_floor=-30.0).statistics.divergence
    assert values.isnan().tolist() == [False, True, False]


def test_the_mass_off_the_support_is_summed_and_not_inferred(case, impl):
    """A student with mass 1e-9 off the support: 1 - (mass on it) would be 0 or 6e-8 in float32."""
    original = [[30.0, -30.0, -30.0, -30.0]]
    student = torch.tensor([[20.0, -0.7, -1.2, -2.0]])
    problem = logits_case(case, student, original)
    fields = {"divergence": "reverse_kl", "temperature": 1.0, "log_floor": -1e4, "weighted": False}
    exact = problem.to(torch.float64).run("reference", **fields)
    assert 1e-5 < exact.loss.item() < 3e-5
    assert problem.run(impl, **fields).loss.item() == pytest.approx(exact.loss.item(), rel=1e-3)


def test_the_argmax_is_unchanged_among_equals(case, impl):
    original = [[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [2.0, 1.5, 0.0]]
    control = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    outcome = logits_case(case, torch.zeros(3, 3), original, control).run(impl, temperature=1.0)
    assert outcome.statistics.argmax_changed.tolist() == [False, False, True]


def test_the_realised_contrast_is_the_contrast_of_the_sampled_token(case, impl):
    problem = case()
    ends = (int(problem.realised[0]),)
    outcome = problem.run(impl, temperature=1.5, end_token_ids=ends)
    logits = [view @ problem.teacher.weight_VD.T for view in (problem.original, problem.control)]
    delta = contrast(*(log_probs(x, 1.5) for x in logits), end_token_ids=ends)
    expected = delta.gather(-1, problem.realised[:, None]).squeeze(-1)
    torch.testing.assert_close(outcome.statistics.realised_contrast, expected, atol=4e-6, rtol=1e-5)
    assert outcome.statistics.realised_contrast[0] == 0


# Repeatability, chunks, dispatch.


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_two_calls_give_the_same_bits(case, impl, divergence):
    for dtype in (torch.float32, torch.bfloat16):
        first, second = (case().to(dtype).run(impl, divergence=divergence) for _ in range(2))
        assert torch.equal(first.loss, second.loss)
        assert torch.equal(first.grad_hidden, second.grad_hidden)
        assert torch.equal(first.grad_weight, second.grad_weight)


def test_the_result_does_not_depend_on_the_size_of_chunks(case, impl, monkeypatch):
    problem = case(num=7, vocabulary=301, bias=True, soft_cap=4.0)
    whole = problem.run(impl, **FIELDS)
    if impl == "chunked":
        row_bytes = 4 * 301
        monkeypatch.setattr("vcsd.loss.chunked.TILE_BYTES", dict.fromkeys(("cpu", "cuda"), 6 * row_bytes))
        monkeypatch.setattr("vcsd.loss.chunked.BLOCK_BYTES", {"cpu": 1, "cuda": 1})
    else:
        row_bytes = 4 * 320  # 301 tokens, padded
        monkeypatch.setattr("vcsd.loss.row_kernel.TILE_BYTES", (3 + 2 * 2) * row_bytes)
        monkeypatch.setattr("vcsd.loss.row_kernel.TEACHER_ROWS", 2)
        monkeypatch.setattr("vcsd.loss.row_kernel.BLOCK", 128)
    chunks = problem.run(impl, **FIELDS)
    torch.testing.assert_close(chunks.statistics.divergence, whole.statistics.divergence)
    torch.testing.assert_close(chunks.grad_hidden, whole.grad_hidden)
    torch.testing.assert_close(chunks.grad_weight, whole.grad_weight, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(chunks.grad_bias, whole.grad_bias, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(chunks.statistics.student_entropy, whole.statistics.student_entropy)
    assert torch.equal(chunks.statistics.support_size, whole.statistics.support_size)


def test_a_little_more_free_memory_gives_the_same_bits(case, impl, monkeypatch):
    """A resumed run finds other amounts of free memory, and must repeat the sums of the first one."""
    problem, module = case(num=40), {"chunked": "chunked", "triton": "row_kernel"}[impl]
    outcomes = []
    for free in range(20_000, 30_000, 2_000):
        monkeypatch.setattr(f"vcsd.loss.{module}.free_bytes", lambda device, free=free: free)
        outcomes.append(problem.run(impl).grad_weight)
    assert all(torch.equal(outcomes[0], other) for other in outcomes[1:])


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_blocks_without_support_are_skipped_without_loss(case, divergence, monkeypatch):
    """Blocks of 16 over 1,300 tokens: 82 of them, so that both words of flags are used."""
    monkeypatch.setattr("vcsd.loss.row_kernel.BLOCK", 128)
    problem = case(num=1, vocabulary=1300, width=4)
    assert_as_exact_as_naive(problem, "triton", torch.float32, 2e-6, divergence=divergence, beta=0.7, **FIELDS)


def test_auto_is_triton_on_cuda_and_chunked_elsewhere():
    assert which_impl("cpu") == "chunked"
    assert which_impl("cuda") == "triton"
    assert which_impl("cuda", torch.float64) == "chunked"


def test_importing_the_package_does_not_import_triton():
    code = (
        "import sys, vcsd.kernels; assert 'triton' not in sys.modules; assert 'vcsd.loss.row_kernel' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# What is refused.


def test_heads_over_different_vocabularies_are_refused(case):
    problem = case()
    with pytest.raises(ConfigError, match=r"student's head has 97 tokens and the teacher's 90.*tokenizer"):
        replace(problem, teacher=Head(problem.teacher.weight_VD[:90])).run("auto")


def test_an_unknown_word_is_refused_with_the_nearest_one(case):
    with pytest.raises(ConfigError, match="Did you mean 'chunked'"):
        case().run("chunkd")
    with pytest.raises(ConfigError, match="Did you mean 'forward_kl'"):
        case().run("auto", divergence="forwardkl")


def test_numbers_outside_their_range_are_refused_together(case):
    with pytest.raises(ConfigError, match="2 problems") as caught:
        case().run("auto", beta=1.7, temperature=0.0)
    assert "beta = 1.7 is outside [0, 1]" in str(caught.value)


def test_a_negative_scale_is_refused(case):
    with pytest.raises(ConfigError, match="logit_scale"):
        case(scale=-1.0).run("auto")
