"""The loss on CUDA: one program per row reads each logit about once and writes the gradient over the student's logits.

Derivation
----------
Write y for a row of logits over temperature, L(y) = log Σ exp y, and s, o, c for student, original, control. Then
log p_x = y_x - L(y_x). The support is S = {v : y_o(v) >= max y_o + log β}, the target's score there is
u(v) = λ log p_o(v) + α (log p_o(v) - log p_c(v)), and log q = u - L(u over S). Only three logsumexps and a maximum run
over the whole vocabulary; everything else needs only S, which is small. Divergence and gradient on y_s, with p the
student's probabilities:

    forward KL   Σ_S q (log q - log p)                                  p - q
    reverse KL   Σ p (log p - t),  t = max(log q, floor)                p (log p - t - loss)
    JSD          w Σ_S q (log q - log m) + (1 - w) R,                   (1 - w) p (r - R)
                 m = w q + (1 - w) p,  r = log p - log m,  R = Σ p r

Off the support t is the floor and r is -log(1 - w), so those sums are a constant times the student's mass off the
support. That mass is summed directly: 1 - (mass on S) would lose it to rounding just when training succeeds.
As in `vcsd.core`, log-probabilities are floored at LOG_FLOOR and ties at the threshold stay in the support. A token
that the student rules out (below the floor) costs forward KL a constant and has no gradient: with Q the target's mass
on all other tokens, the gradient is p Q - q on those and 0 on it. Without such tokens, Q is one.
The gradient on a raw logit has the factor weight * logit_scale / T and, with a soft cap, 1 - tanh².

Memory
------
The student's tile holds C rows and the teacher's a few of them at a time, TILE_BYTES in total for any N; all chunks
share them. The gradient on the student's logits overwrites the student's tile. C is as large as possible because each
chunk reads and writes the head's float32 gradient: with V = 248,320 in bfloat16, 3,072 student rows (1.42 GiB) and 512
rows of two views (0.47 GiB). At N = 65,536 the three full tensors would take 91 GiB, and their float32 copies twice
that.

Traffic
-------
Per row: read o, c and s once for the logsumexps; read s again and write its gradient. The second pass over s runs
backwards to reuse what is still in the cache. The support is processed only in runs of RUN tokens (256 in bfloat16)
that contain part of it: the first pass records the original's maximum of each run, and the runs that reach the
threshold are listed and gathered a block at a time. No atomics, so results are bitwise repeatable.

Logarithms in the kernel are to base 2, like the hardware's exponential: `y2` = y log2(e) = `gain` * `z`, where `z` is
the raw logit (or its tanh, with a soft cap). Maxima are taken over z, so that each exponent `gain * z - shift` is one
instruction.
"""

# Kernels are Python only in form: their arguments are pointers and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped,attr-defined"
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from vcsd.core.contrast import TIE_SLACK
from vcsd.core.probability import LOG_FLOOR
from vcsd.kernels.device import free_bytes, on_device_of
from vcsd.loss.chunk_loop import power_of_two
from vcsd.loss.objective import KERNEL_CODES

if TYPE_CHECKING:
    from torch import Tensor

    from vcsd.loss.chunk_loop import Problem, Tiles
    from vcsd.loss.drawn import Drawn
    from vcsd.loss.objective import Objective
    from vcsd.loss.statistics import Statistics
    from vcsd.types import Head

TILE_BYTES = int(1.9 * 2**30)
"""Sum of all tiles: fewer and larger chunks touch the float32 gradient of the head less often."""

TEACHER_ROWS = 512
"""Rows the teacher scores at a time, or a multiple of it. They fill whole tiles of its matrix products, and just less
than two waves of 264 programs (two on each of 132 multiprocessors). A few more rows would need a third wave."""

FREE_FRACTION = 0.5
"""Share of the free memory that the tiles may take."""

CHUNK_ROWS: int | None = None
"""Rows of the student's tile, overriding TILE_BYTES; for measurements."""

ROW_MULTIPLE = 512
"""Rows of the student's tile are a multiple of this if it fits, so that the teacher's tiles are full."""

BLOCK = 4096
"""Logits that a program holds at a time."""

NUM_WARPS = 8

STRIDE_MULTIPLE = 64
"""Rows of a tile start at multiples of this many entries, so that any vocabulary is read 16 bytes at a time."""

RESCALE_BLOCK = 4096
RESCALE_PROGRAMS = 132 * 8

FORWARD, REVERSE, JENSEN_SHANNON = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
PER_POSITION = (
    *("realised_ptr", "weights_ptr", "divergence_ptr", "support_ptr"),
    *("kl_ptr", "changed_ptr", "entropy_ptr", "contrast_ptr"),
)
"""Pointers into vectors of N. The start of a chunk in them must not trigger another compilation."""

LOG2_E = math.log2(math.e)
LN_2 = tl.constexpr(math.log(2))
FLOOR_2 = tl.constexpr(LOG_FLOOR * LOG2_E)
MINUS_INF = tl.constexpr(-math.inf)


@triton.jit
def _floored(log2_p):
    # Not tl.maximum: that would turn a NaN into the floor.
    return tl.where(log2_p < FLOOR_2, FLOOR_2, log2_p)


@triton.jit
def _load_z(row_ptr, bias_ptr, inner, at, V, V_LOAD, RAGGED: tl.constexpr, EVICT: tl.constexpr):
    """Raw logits with bias, or the tanh of the soft cap; -inf beyond V. None means no bias (`bias_ptr`) or cap."""
    z = tl.load(row_ptr + at, mask=at < V_LOAD, other=MINUS_INF, eviction_policy=EVICT).to(tl.float32)
    if bias_ptr is not None:
        z += tl.load(bias_ptr + at, mask=at < V, other=0.0).to(tl.float32)
    if inner is not None:
        z = 1.0 - 2.0 / (tl.exp2(z * inner) + 1.0)
    if RAGGED or inner is not None:
        z = tl.where(at < V, z, MINUS_INF)
    return z


@triton.jit
def _load_y2(row_ptr, bias_ptr, gain, inner, at, V, V_LOAD, RAGGED: tl.constexpr, EVICT: tl.constexpr):
    """Logits over temperature in base 2."""
    return gain * _load_z(row_ptr, bias_ptr, inner, at, V, V_LOAD, RAGGED, EVICT)


@triton.jit
def _finite_or_zero(maximum):
    # -inf - -inf is NaN; with zero instead, an impossible token stays at probability zero.
    return tl.where(maximum == MINUS_INF, 0.0, maximum)


@triton.jit
def _by_lane(x, WARPS: tl.constexpr, WIDE: tl.constexpr):
    """A block (runs, RUN) as (groups, WARPS, 32, WIDE): axes 1 and 2 index the thread, 0 and 3 its own values."""
    return tl.reshape(x, [x.shape[0] // WARPS, WARPS, 32, WIDE])


@triton.jit
def _lane_max(x):
    return tl.max(tl.max(x, 3), 0)


@triton.jit
def _lane_sum(x):
    return tl.sum(tl.sum(x, 3), 0)


@triton.jit
def _logsumexp_step(tops, totals, z, gain):
    """Each thread keeps its own maximum of z and sum of 2^(gain z); they are combined once per row, not per block."""
    new_tops = tl.maximum(tops, _lane_max(z))
    shift = gain * _finite_or_zero(new_tops)
    totals = totals * tl.exp2(gain * tops - shift) + _lane_sum(tl.exp2(gain * z - shift[None, :, :, None]))
    return new_tops, totals


@triton.jit
def _logsumexp_end(tops, totals):
    """Logsumexp in two parts, the maximum and the rest; subtracting one after the other loses less to rounding."""
    top = tl.max(tops)
    return top, tl.log2(tl.sum(totals * tl.exp2(tops - _finite_or_zero(top))))


@triton.jit
def _listed(ids_ptr, first, num_listed, beyond, RUNS: tl.constexpr, RUN: tl.constexpr):
    """Offsets within the row of the next RUNS listed runs; past the end of the list, offsets past the row's end."""
    which = first + tl.arange(0, RUNS)
    ids = tl.load(ids_ptr + which, mask=which < num_listed, other=beyond)
    return ids[:, None] * RUN + tl.arange(0, RUN)[None, :]


@triton.jit
def _target_block(
    original_ptr, control_ptr, bias_ptr, gain, inner, ends_ptr, at, V, V_LOAD,
    threshold, top_o, rest_o, top_c, rest_c, alpha, anchor,
    RAGGED: tl.constexpr, NUM_ENDS: tl.constexpr, KEEP_ANCHOR: tl.constexpr,
):  # fmt: skip
    """For a block: which tokens are in the support, which have the original's maximum, log p_o, and u (-inf off S)."""
    y2 = _load_y2(original_ptr, bias_ptr, gain, inner, at, V, V_LOAD, RAGGED, "")
    inside = (y2 >= threshold) & (y2 > MINUS_INF)
    log_p = _floored(y2 - top_o - rest_o)
    score = anchor * log_p
    is_end = at < 0  # none yet
    for e in tl.static_range(NUM_ENDS):
        is_end = is_end | (at == tl.load(ends_ptr + e))
    if KEEP_ANCHOR:
        score = tl.where(is_end, log_p, score)
    if control_ptr is not None:
        y2_c = _load_y2(control_ptr, bias_ptr, gain, inner, at, V, V_LOAD, RAGGED, "")
        contrast = log_p - _floored(y2_c - top_c - rest_c)
        score += alpha * tl.where(is_end, 0.0, contrast)
    return inside, y2 >= top_o, log_p, tl.where(inside, score, MINUS_INF)


@triton.jit
def _log2_mixture(log2_q, log2_p, log2_w, log2_1mw):
    a, b = log2_q + log2_w, log2_p + log2_1mw
    high, low = tl.maximum(a, b), tl.minimum(a, b)
    return high + tl.log2(1.0 + tl.exp2(low - high))


@triton.jit
def _surplus(log_p, log_q, inside, log2_floor, log2_w, log2_1mw, DIVERGENCE: tl.constexpr):
    """The student's log-probability minus the target's (reverse KL) or the mixture's (JSD)."""
    if DIVERGENCE == REVERSE:
        above = log_p - tl.where(log_q < log2_floor, log2_floor, log_q)
    else:
        above = tl.where(inside, log_p - _log2_mixture(log_q, log_p, log2_w, log2_1mw), -log2_1mw)
    return above


@triton.jit
def _store_gradient(row_ptr, at, g, y2, gain, inner, V, mask, RAGGED: tl.constexpr):
    """Multiply by the soft cap's derivative and store over the logits; set the row's padding back to -inf."""
    if inner is not None:
        tanh = y2 / gain
        g *= 1.0 - tanh * tanh
    if RAGGED or inner is not None:
        g = tl.where(at < V, g, MINUS_INF)
    tl.store(row_ptr + at, g.to(row_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize_on_alignment=PER_POSITION)
def _row_kernel(  # noqa: C901, PLR0912, PLR0915  one pass over a row, phase by phase; branches are compile-time
    student_ptr, original_ptr, control_ptr, stride,
    student_bias_ptr, teacher_bias_ptr, ends_ptr, realised_ptr, weights_ptr, run_max_ptr, run_ids_ptr,
    divergence_ptr, support_ptr, kl_ptr, changed_ptr, entropy_ptr, contrast_ptr,
    V, V_LOAD, num_blocks,
    student_gain, student_inner, teacher_gain, teacher_inner, grad_factor,
    alpha, anchor, log2_beta, log2_floor, js_weight, log2_w, log2_1mw,
    DIVERGENCE: tl.constexpr, NUM_ENDS: tl.constexpr, KEEP_ANCHOR: tl.constexpr, RAGGED: tl.constexpr,
    RUNS: tl.constexpr, RUN: tl.constexpr, MAX_RUNS: tl.constexpr, WARPS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One row: logsumexps, the target on its support, divergence and statistics, gradient in place.

    Pointers that may be None: control, biases, sampled tokens, and weights (then no gradient is computed).
    A block is RUNS runs of RUN logits; `run_max_ptr` and `run_ids_ptr` are MAX_RUNS entries of scratch per row.
    """
    row = tl.program_id(0).to(tl.int64)
    student_ptr += row * stride
    original_ptr += row * stride
    if control_ptr is not None:
        control_ptr += row * stride
    run_max_ptr += row * MAX_RUNS
    run_ids_ptr += row * MAX_RUNS
    runs = tl.arange(0, RUNS)
    within = runs[:, None] * RUN + tl.arange(0, RUN)[None, :]

    # 1. Logsumexp of original and control; the original's maximum of every run.
    tops_o, totals_o = tl.full([WARPS, 32], MINUS_INF, tl.float32), tl.zeros([WARPS, 32], tl.float32)
    tops_c, totals_c = tops_o, totals_o
    for i in range(num_blocks):
        at = i * (RUNS * RUN) + within
        z = _load_z(original_ptr, teacher_bias_ptr, teacher_inner, at, V, V_LOAD, RAGGED, "evict_first")
        if control_ptr is not None:
            z_c = _load_z(control_ptr, teacher_bias_ptr, teacher_inner, at, V, V_LOAD, RAGGED, "evict_first")
            tops_c, totals_c = _logsumexp_step(tops_c, totals_c, _by_lane(z_c, WARPS, WIDE), teacher_gain)
        tl.store(run_max_ptr + i * RUNS + runs, teacher_gain * tl.max(z, 1))
        tops_o, totals_o = _logsumexp_step(tops_o, totals_o, _by_lane(z, WARPS, WIDE), teacher_gain)
    top_o, rest_o = _logsumexp_end(teacher_gain * tops_o, totals_o)
    top_c, rest_c = _logsumexp_end(teacher_gain * tops_c, totals_c)
    threshold = top_o + log2_beta

    # 2. List the runs that contain support. Threads read what others wrote, hence the barriers.
    tl.debug_barrier()
    every = tl.arange(0, MAX_RUNS)
    run_max = tl.load(run_max_ptr + every, mask=every < num_blocks * RUNS, other=float("nan"))
    holds = run_max >= threshold
    num_listed = tl.sum(holds.to(tl.int32), 0)
    tl.store(run_ids_ptr + tl.cumsum(holds.to(tl.int32), 0) - 1, every, mask=holds)
    tl.debug_barrier()

    # 3. Logsumexp and entropy of the student; except for forward KL, also its mass in runs without support.
    # Moments are sums of p (y2 - top), where top is the running maximum.
    tops_s, totals_s = tl.full([WARPS, 32], MINUS_INF, tl.float32), tl.zeros([WARPS, 32], tl.float32)
    moments, offs, off_moments = totals_s, totals_s, totals_s
    for i in range(num_blocks):
        at = i * (RUNS * RUN) + within
        z = _load_z(student_ptr, student_bias_ptr, student_inner, at, V, V_LOAD, RAGGED, "evict_last")
        z = _by_lane(z, WARPS, WIDE)
        new_tops = tl.maximum(tops_s, _lane_max(z))
        shift = student_gain * _finite_or_zero(new_tops)
        step = tl.where(tops_s == MINUS_INF, 0.0, student_gain * tops_s - shift)
        shrink = tl.exp2(step)
        below = student_gain * z - shift[None, :, :, None]
        mass = tl.exp2(below)
        # exp2(-1000) is 0 like exp2(-inf), but 0 * -1000 is 0 where 0 * -inf is NaN.
        weighted = mass * tl.maximum(below, -1000.0)
        moments = shrink * (moments + step * totals_s) + _lane_sum(weighted)
        totals_s = shrink * totals_s + _lane_sum(mass)
        tops_s = new_tops
        if DIVERGENCE != FORWARD:
            without = tl.where(tl.load(run_max_ptr + i * RUNS + runs) >= threshold, 0.0, 1.0)
            without = tl.reshape(without, [RUNS // WARPS, WARPS])[:, :, None, None]
            off_moments = shrink * (off_moments + step * offs) + _lane_sum(weighted * without)
            offs = shrink * offs + _lane_sum(mass * without)
    tops_s *= student_gain
    top_s, rest_s = _logsumexp_end(tops_s, totals_s)
    # Make the moments relative to the logsumexp: p log p = p (y2 - log Z) sums to minus the entropy.
    gap = tops_s - top_s - rest_s
    scale = tl.exp2(gap)
    gap = tl.where(tops_s == MINUS_INF, 0.0, gap)
    entropy2 = -tl.sum(scale * (moments + gap * totals_s))

    # 4. The target: its normaliser, its distance to student and original.
    top_u, total_u, to_student, to_original, covered = float("-inf"), 0.0, 0.0, 0.0, 0.0
    best_of_top = float("-inf")
    support_size = 0
    for first in range(0, num_listed, RUNS):
        at = _listed(run_ids_ptr, first, num_listed, num_blocks * RUNS, RUNS, RUN)
        inside, is_top, log_p_o, score = _target_block(
            original_ptr, control_ptr, teacher_bias_ptr, teacher_gain, teacher_inner, ends_ptr, at, V, V_LOAD,
            threshold, top_o, rest_o, top_c, rest_c, alpha, anchor, RAGGED, NUM_ENDS, KEEP_ANCHOR)  # fmt: skip
        y2 = _load_y2(student_ptr, student_bias_ptr, student_gain, student_inner, at, V, V_LOAD, RAGGED, "evict_last")
        log_p_s = y2 - top_s - rest_s
        new_top = tl.maximum(top_u, tl.max(score))
        shift = _finite_or_zero(new_top)
        shrink = tl.exp2(top_u - shift)
        mass = tl.exp2(score - shift)
        total_u = total_u * shrink + tl.sum(mass)
        to_student = to_student * shrink + tl.sum(tl.where(inside, mass * (score - _floored(log_p_s)), 0.0))
        to_original = to_original * shrink + tl.sum(tl.where(inside, mass * (score - log_p_o), 0.0))
        covered = covered * shrink + tl.sum(tl.where(log_p_s >= FLOOR_2, mass, 0.0))
        top_u = new_top
        best_of_top = tl.maximum(best_of_top, tl.max(tl.where(is_top, score, MINUS_INF)))
        support_size += tl.sum(inside.to(tl.int32))
    rest_u = tl.log2(total_u)
    covered = covered / total_u
    divergence2 = to_student / total_u - top_u - rest_u
    kl2 = to_original / total_u - top_u - rest_u

    # 5. Reverse KL: expected = Σ p (log p - t). JSD: expected = R = Σ p r. Listed runs token by token, others in bulk:
    # no large numbers cancel where the student is near the target.
    expected = 0.0
    if DIVERGENCE != FORWARD:
        on_target = 0.0
        off = tl.sum(scale * offs)
        if DIVERGENCE == REVERSE:
            expected = tl.sum(scale * (off_moments + gap * offs)) - log2_floor * off
        else:
            expected = -log2_1mw * off
        for first in range(0, num_listed, RUNS):
            at = _listed(run_ids_ptr, first, num_listed, num_blocks * RUNS, RUNS, RUN)
            inside, is_top, log_p_o, score = _target_block(
                original_ptr, control_ptr, teacher_bias_ptr, teacher_gain, teacher_inner, ends_ptr, at, V, V_LOAD,
                threshold, top_o, rest_o, top_c, rest_c, alpha, anchor, RAGGED, NUM_ENDS, KEEP_ANCHOR)  # fmt: skip
            y2 = _load_y2(
                student_ptr, student_bias_ptr, student_gain, student_inner, at, V, V_LOAD, RAGGED, "evict_last"
            )
            log_p_s = _floored(y2 - top_s - rest_s)
            log_q = score - top_u - rest_u
            surplus = _surplus(log_p_s, log_q, inside, log2_floor, log2_w, log2_1mw, DIVERGENCE)
            expected += tl.sum(tl.exp2(log_p_s) * surplus)
            if DIVERGENCE == JENSEN_SHANNON:
                log_m = _log2_mixture(log_q, log_p_s, log2_w, log2_1mw)
                on_target += tl.sum(tl.where(inside, tl.exp2(log_q) * (log_q - log_m), 0.0))
        # A NaN among the original's logits leaves the support empty, so there is no target: return NaN here too.
        expected = tl.where(total_u > 0.0, expected, float("nan"))
        divergence2 = expected
        if DIVERGENCE == JENSEN_SHANNON:
            divergence2 = js_weight * on_target + (1.0 - js_weight) * expected

    tl.store(divergence_ptr + row, divergence2 * LN_2)
    tl.store(support_ptr + row, support_size)
    tl.store(kl_ptr + row, kl2 * LN_2)
    tl.store(changed_ptr + row, (best_of_top < top_u).to(tl.int8))
    tl.store(entropy_ptr + row, entropy2 * LN_2)
    if realised_ptr is not None:
        token = tl.load(realised_ptr + row)
        y2_o = _load_y2(original_ptr, teacher_bias_ptr, teacher_gain, teacher_inner, token, V, V_LOAD, RAGGED, "")
        y2_c = _load_y2(control_ptr, teacher_bias_ptr, teacher_gain, teacher_inner, token, V, V_LOAD, RAGGED, "")
        contrast2 = _floored(y2_o - top_o - rest_o) - _floored(y2_c - top_c - rest_c)
        for e in tl.static_range(NUM_ENDS):
            contrast2 = tl.where(token == tl.load(ends_ptr + e), 0.0, contrast2)
        tl.store(contrast_ptr + row, contrast2 * LN_2)

    # 6. Overwrite the student's logits with their gradient: listed runs token by token, then the others, last block
    # first, since that one is still in the cache.
    if weights_ptr is not None:
        factor = tl.load(weights_ptr + row).to(tl.float32) * grad_factor
        if DIVERGENCE != FORWARD:
            factor *= LN_2
        if DIVERGENCE == JENSEN_SHANNON:
            factor *= 1.0 - js_weight
        for first in range(0, num_listed, RUNS):
            at = _listed(run_ids_ptr, first, num_listed, num_blocks * RUNS, RUNS, RUN)
            inside, is_top, log_p_o, score = _target_block(
                original_ptr, control_ptr, teacher_bias_ptr, teacher_gain, teacher_inner, ends_ptr, at, V, V_LOAD,
                threshold, top_o, rest_o, top_c, rest_c, alpha, anchor, RAGGED, NUM_ENDS, KEEP_ANCHOR)  # fmt: skip
            y2 = _load_y2(student_ptr, student_bias_ptr, student_gain, student_inner, at, V, V_LOAD, RAGGED, "")
            log_p_s = y2 - top_s - rest_s
            log_q = score - top_u - rest_u
            if DIVERGENCE == FORWARD:
                g = tl.exp2(log_p_s) * covered - tl.where(log_p_s >= FLOOR_2, tl.exp2(log_q), 0.0)
            else:
                surplus = _surplus(_floored(log_p_s), log_q, inside, log2_floor, log2_w, log2_1mw, DIVERGENCE)
                g = tl.exp2(log_p_s) * (surplus - expected)
            _store_gradient(student_ptr, at, g * factor, y2, student_gain, student_inner, V, at < V_LOAD, RAGGED)
        for j in range(num_blocks):
            i = num_blocks - 1 - j
            at = i * (RUNS * RUN) + within
            y2 = _load_y2(
                student_ptr, student_bias_ptr, student_gain, student_inner, at, V, V_LOAD, RAGGED, "evict_first"
            )
            below = y2 - top_s
            if DIVERGENCE == FORWARD:
                g = tl.exp2(below) * (tl.exp2(-rest_s) * covered * factor)
            elif DIVERGENCE == REVERSE:
                log_p_s = below - rest_s
                g = tl.exp2(log_p_s) * (_floored(log_p_s) - (log2_floor + expected)) * factor
            else:
                g = tl.exp2(below) * (tl.exp2(-rest_s) * (-log2_1mw - expected) * factor)
            done = tl.load(run_max_ptr + i * RUNS + runs) >= threshold
            others = (at < V_LOAD) & (done[:, None] == 0)
            _store_gradient(student_ptr, at, g, y2, student_gain, student_inner, V, others, RAGGED)


@triton.jit
def _rescale_kernel(x_ptr, factor_ptr, size, BLOCK: tl.constexpr):
    """Multiply by a number on the device; do nothing if it is one."""
    factor = tl.load(factor_ptr).to(tl.float32)
    if factor != 1.0:
        start = tl.program_id(0).to(tl.int64) * BLOCK
        stride = tl.num_programs(0).to(tl.int64) * BLOCK
        for base in range(start, size, stride):
            at = base + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + at, mask=at < size).to(tl.float32) * factor
            tl.store(x_ptr + at, x.to(x_ptr.dtype.element_ty), mask=at < size)


class TritonEngine:
    """Runs `_row_kernel` on the tiles of a chunk."""

    def rows_per_chunk(self, problem: Problem) -> tuple[int, int]:
        """Reserve TEACHER_ROWS, give the rest of TILE_BYTES to the student's rows, and any remainder to the teacher.

        If memory is short, a power of two: small changes in free memory must not change the order of summation.
        """
        num, stride = problem.num_positions, _stride(problem.vocabulary)
        student_bytes = stride * problem.student.views[0].element_size()
        teacher_bytes = stride * sum(view_ND.element_size() for view_ND in problem.teacher.views)
        budget = min(TILE_BYTES, power_of_two(FREE_FRACTION * free_bytes(problem.student.weight_VD.device)))
        least = min(TEACHER_ROWS, num, max(budget // (student_bytes + teacher_bytes), 1))
        rows = CHUNK_ROWS or _spread(num, max((budget - least * teacher_bytes) // student_bytes, least))
        rows = min(rows, num)
        left = (budget - rows * student_bytes) // teacher_bytes
        return rows, min(max(left // TEACHER_ROWS * TEACHER_ROWS, least), rows)

    def new_tile(self, num_rows: int, problem: Problem, dtype: torch.dtype) -> Tensor:
        """Rows start at aligned addresses; the padding after the vocabulary holds -inf."""
        stride, vocabulary = _stride(problem.vocabulary), problem.vocabulary
        tile = torch.empty(num_rows, stride, dtype=dtype, device=problem.student.weight_VD.device)
        tile[:, vocabulary:] = -math.inf
        return tile[:, :vocabulary]

    def work(
        self, tiles: Tiles, problem: Problem, drawn_C: Drawn | None, weights_C: Tensor | None, out: Statistics
    ) -> None:
        """Fill `out`; with weights, replace the student's tile by the gradient of the weighted sum on it."""
        vocabulary, objective = problem.vocabulary, problem.objective
        student, teacher = problem.student.head, problem.teacher.head
        num_blocks = triton.cdiv(vocabulary, BLOCK)
        shape = _block_shape(tiles, num_blocks)
        scratch = (len(tiles.student_CV), shape["MAX_RUNS"])
        ends = _end_ids(objective.end_token_ids, tiles.student_CV.device) if objective.end_token_ids else None
        with on_device_of(tiles.student_CV):
            _row_kernel[(len(tiles.student_CV),)](
                tiles.student_CV,
                tiles.original_CV,
                tiles.control_CV,
                tiles.student_CV.stride(0),
                _contiguous(student.bias_V),
                _contiguous(teacher.bias_V),
                ends,
                None if drawn_C is None or not problem.has_contrast else _contiguous(drawn_C.token_ids_N),
                _contiguous(weights_C),
                tiles.student_CV.new_empty(scratch, dtype=torch.float32),
                tiles.student_CV.new_empty(scratch, dtype=torch.int32),
                out.divergence,
                out.support_size,
                out.kl_target_original,
                out.argmax_changed.view(torch.int8),
                out.student_entropy,
                out.realised_contrast,
                vocabulary,
                _stride(vocabulary),
                num_blocks,
                **_head_constants(student, "student", objective),
                **_head_constants(teacher, "teacher", objective),
                **_objective_constants(objective),
                grad_factor=student.logit_scale / objective.temperature,
                RAGGED=vocabulary % STRIDE_MULTIPLE != 0,
                **shape,
                num_warps=NUM_WARPS,
            )

    def rescale_(self, gradient: Tensor, factor: Tensor) -> None:
        """Multiply in place without synchronising."""
        programs = min(RESCALE_PROGRAMS, triton.cdiv(gradient.numel(), RESCALE_BLOCK))
        if programs > 0:
            with on_device_of(gradient):
                _rescale_kernel[(programs,)](gradient, factor, gradient.numel(), BLOCK=RESCALE_BLOCK)


def _spread(total: int, most: int) -> int:
    """Rows of a chunk: as few chunks as `most` allows, of even size; a multiple of ROW_MULTIPLE where that fits.

    >>> _spread(16384, 5689), _spread(4096, 1383), _spread(100, 4096)
    (5632, 1366, 100)
    """
    even = math.ceil(total / math.ceil(total / most))
    rounded = math.ceil(even / ROW_MULTIPLE) * ROW_MULTIPLE
    return min(rounded if rounded <= most else even, total)


def _stride(vocabulary: int) -> int:
    return math.ceil(vocabulary / STRIDE_MULTIPLE) * STRIDE_MULTIPLE


def _block_shape(tiles: Tiles, num_blocks: int) -> dict[str, int]:
    """How a block maps to threads: 16 bytes per thread and one run per warp, repeated until the block is covered."""
    wide = 16 // max(tiles.student_CV.element_size(), tiles.original_CV.element_size())
    runs = BLOCK // (32 * wide)
    return {
        "RUNS": runs,
        "RUN": 32 * wide,
        "MAX_RUNS": triton.next_power_of_2(num_blocks * runs),
        "WARPS": min(NUM_WARPS, runs),
        "WIDE": wide,
    }


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


@functools.lru_cache(maxsize=16)
def _end_ids(token_ids: tuple[int, ...], device: torch.device) -> Tensor:
    """End tokens on a device, cached: a copy from the host for every chunk would stall the queue."""
    return torch.tensor(token_ids, dtype=torch.int32, device=device)


def _head_constants(head: Head, whose: str, objective: Objective) -> dict[str, Any]:
    """y2 = gain * raw, or with a cap gain * tanh(raw * scale / cap), where tanh x = 1 - 2 / (1 + 2^(inner x))."""
    cap = head.soft_cap
    per_temperature = LOG2_E / objective.temperature
    return {
        f"{whose}_gain": (head.logit_scale if cap is None else cap) * per_temperature,
        f"{whose}_inner": None if cap is None else 2 * LOG2_E * head.logit_scale / cap,
    }


def _objective_constants(objective: Objective) -> dict[str, Any]:
    beta, weight = objective.beta, objective.js_weight
    return {
        "alpha": float(objective.alpha),  # for an int, Triton would compile another kernel
        "anchor": float(objective.anchor),
        "log2_beta": -math.inf if beta == 0 else (math.log(beta) - TIE_SLACK) * LOG2_E,
        "log2_floor": objective.log_floor * LOG2_E,
        "js_weight": float(weight),
        "log2_w": math.log2(weight),
        "log2_1mw": math.log1p(-weight) * LOG2_E,
        "DIVERGENCE": KERNEL_CODES[objective.divergence],
        "NUM_ENDS": len(objective.end_token_ids),
        "KEEP_ANCHOR": objective.end_tokens_keep_anchor,
    }
