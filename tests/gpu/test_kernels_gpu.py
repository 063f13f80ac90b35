"""The Triton loss at real vocabularies, against float64 on the same device."""

from __future__ import annotations

import pytest
import torch

from vcsd.loss import Objective, cast_head, distillation_loss
from vcsd.types import Head, Scores

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DIVERGENCES = ("forward_kl", "reverse_kl", "jensen_shannon")
VOCABULARIES = (151_936, 248_320, 151_939)  # Qwen3-VL, Qwen3.5, a prime
GIB = 2**30


def draw(num, vocabulary, width, dtype, *, std=3.0, seed=0):
    """Hidden states and heads whose logits have a standard deviation of about `std`: supports of tens of tokens."""
    generator = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape, scale=1.0):
        out = torch.empty(*shape, device="cuda", dtype=dtype)
        return out.normal_(generator=generator).mul_(scale)

    original = normal(num, width)
    return {
        "hidden": (original + 0.3 * normal(num, width)).requires_grad_(),
        "original": original,
        "control": original + 0.5 * normal(num, width),
        "weight": normal(vocabulary, width, scale=std / width**0.5).requires_grad_(),
        "weights": torch.rand(num, device="cuda", generator=generator) + 0.5,
        "realised": torch.randint(vocabulary, (num,), device="cuda", generator=generator),
    }


def run(case, impl, *, dtype=None, weighted=True, **fields):
    def cast(tensor):
        return tensor.detach() if dtype is None else tensor.detach().to(dtype)

    hidden, weight = cast(case["hidden"]).requires_grad_(), cast(case["weight"]).requires_grad_()
    teacher, weights = Head(weight.detach()), case["weights"] if weighted else None
    loss, statistics = distillation_loss(
        Scores(hidden, Head(weight)),
        Scores(cast(case["original"]), teacher),
        Scores(cast(case["control"]), teacher),
        Objective(end_token_ids=(7, 1000), log_floor=-30.0, **fields),
        weights,
        realised_token_ids=case["realised"],
        impl=impl,
    )
    loss.backward(None if weighted else case["weights"].to(loss.dtype))
    return loss.detach(), statistics, hidden.grad, weight.grad


def error(value, truth):
    return float((value.double() - truth).norm() / truth.norm().clamp(min=1e-6))


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("impl", ["triton", "chunked"])
def test_real_vocabularies_are_as_exact_as_the_naive_computation(vocabulary, divergence, dtype, impl):
    case = draw(70, vocabulary, 128, dtype)
    truth = run(case, "reference", dtype=torch.float64, divergence=divergence)
    naive = run(case, "reference", divergence=divergence)
    outcome = run(case, impl, divergence=divergence)
    tolerance = 2e-5 if dtype == torch.float32 else 2e-3
    for name, value, plain, exact in zip(
        ("loss", "hidden", "weight"), outcome[::2], naive[::2], truth[::2], strict=False
    ):
        assert error(value, exact) <= error(plain, exact) + tolerance, name
    assert error(outcome[3], truth[3]) <= error(naive[3], truth[3]) + tolerance
    for name in ("divergence", "kl_target_original", "student_entropy", "realised_contrast"):
        value, plain, exact = (getattr(x[1], name) for x in (outcome, naive, truth))
        assert error(value, exact) <= error(plain, exact) + tolerance, name
    if dtype == torch.float32:
        assert torch.equal(outcome[1].support_size, truth[1].support_size)
        assert torch.equal(outcome[1].argmax_changed, truth[1].argmax_changed)
    assert outcome[1].support_size.float().mean() > 1


@pytest.mark.parametrize("fields", [{"beta": 0.0}, {"beta": 1.0}, {"alpha": 0.0}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_shape_parameters_hold_at_a_real_vocabulary(fields, divergence):
    case = draw(16, 151_936, 64, torch.float32)
    truth = run(case, "reference", dtype=torch.float64, divergence=divergence, **fields)
    naive = run(case, "reference", divergence=divergence, **fields)
    outcome = run(case, "triton", divergence=divergence, **fields)
    for index in (0, 2, 3):
        assert error(outcome[index], truth[index]) <= error(naive[index], truth[index]) + 2e-5, index


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_two_calls_give_the_same_bits_over_several_chunks(divergence):
    case = draw(3000, 151_936, 256, torch.bfloat16)
    first, second = (run(case, "triton", divergence=divergence) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[2], second[2])
    assert torch.equal(first[3], second[3])


def test_several_chunks_agree_with_chunked_torch():
    case = draw(3000, 151_939, 128, torch.bfloat16)
    ours, plain = run(case, "triton"), run(case, "chunked")
    torch.testing.assert_close(ours[1].divergence, plain[1].divergence, rtol=1e-3, atol=1e-4)
    assert error(ours[2], plain[2].double()) < 1e-2  # two ways of rounding to bfloat16
    assert error(ours[3], plain[3].double()) < 4e-3


def test_any_upstream_gradient_is_exact_without_weights():
    case = draw(64, 151_936, 128, torch.float32)
    truth = run(case, "reference", dtype=torch.float64, weighted=False)
    outcome = run(case, "triton", weighted=False)
    assert error(outcome[2], truth[2]) < 1e-5
    assert error(outcome[3], truth[3]) < 1e-5


def test_an_upstream_factor_known_only_to_the_device_rescales():
    case = draw(64, 151_936, 128, torch.bfloat16)
    factor = torch.tensor(3.0, device="cuda", requires_grad=True)
    plain = run(case, "triton")
    hidden = case["hidden"].detach().requires_grad_()
    weight = case["weight"].detach().requires_grad_()
    head = Head(weight.detach())
    original, control = Scores(case["original"], head), Scores(case["control"], head)
    objective = Objective(end_token_ids=(7, 1000), log_floor=-30.0)
    loss, _ = distillation_loss(
        Scores(hidden, Head(weight)), original, control, objective, case["weights"], impl="triton"
    )
    (loss * factor).backward()
    torch.testing.assert_close(weight.grad, 3.0 * plain[3], rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize(("num", "vocabulary", "width"), [(4096, 151_936, 2048), (65_536, 248_320, 4096)])
def test_added_memory_is_at_most_two_gib_over_the_gradients(num, vocabulary, width):
    case = draw(num, vocabulary, width, torch.bfloat16)
    master = case["weight"].detach().float().requires_grad_()
    head = cast_head(Head(master), torch.bfloat16)
    case["weight"] = None
    teacher = Head(head.compute_weight_VD)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    original, control = Scores(case["original"], teacher), Scores(case["control"], teacher)
    loss, _ = distillation_loss(Scores(case["hidden"], head), original, control, Objective(), case["weights"] / num)
    loss.backward()
    torch.cuda.synchronize()
    gradients = master.grad.nbytes + case["hidden"].grad.nbytes
    assert torch.cuda.max_memory_allocated() - before - gradients <= 2 * GIB
    assert master.grad.isfinite().all()
