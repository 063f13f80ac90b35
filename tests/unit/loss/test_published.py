"""The published OPSD in the loss: the student's top tokens with a tail, and importance weights."""

import math

import pytest
import torch

from vcsd.core import importance_weight, jensen_shannon, log_probs, top_and_tail
from vcsd.errors import ConfigError
from vcsd.loss import Objective, distillation_loss
from vcsd.method import METHODS
from vcsd.types import Head, Scores

PUBLISHED = {"alpha": 0.0, "beta": 0.0, "divergence": "jensen_shannon", "temperature": 1.0, "student_top_k": 7}


@pytest.mark.parametrize("divergence", ["forward_kl", "reverse_kl", "jensen_shannon"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("clip", [None, 1.5])
def test_chunks_compute_the_published_loss_as_exactly_as_full_logits(case, divergence, dtype, clip):
    fields = {**PUBLISHED, "divergence": divergence, "importance_clip": clip, "log_floor": -30.0}
    tolerance = 2e-6 if dtype == torch.float32 else 4e-3
    problem = case(9, 97, control=False).to(dtype)
    truth = problem.to(torch.float64).run("reference", **fields)
    naive, chunked = problem.run("reference", **fields), problem.run("chunked", **fields)
    for name in ("loss", "grad_hidden", "grad_weight"):
        exact, plain, found = (getattr(outcome, name).double() for outcome in (truth, naive, chunked))
        assert (found - exact).norm() <= (plain - exact).norm() + tolerance * exact.norm().clamp(min=1), name


@pytest.mark.parametrize("top_k", [1, 1.0])
def test_the_loss_of_one_position_by_hand(top_k):
    # logits are the rows of the head: student [0.6, 0.2, 0.1, 0.1], teacher [0.3, 0.1, 0.2, 0.4], token 0 sampled
    # at 0.4: weight 1.5. Buckets {0}, rest: student 0.6 and 0.4, teacher 0.3 and 0.7, mixture 0.45 and 0.55.
    head = Head(torch.eye(4, dtype=torch.float64))
    student, teacher = ([0.6, 0.2, 0.1, 0.1], [0.3, 0.1, 0.2, 0.4])
    scores = [Scores(torch.tensor([p], dtype=torch.float64).log(), head) for p in (student, teacher)]
    objective = Objective(**{**PUBLISHED, "student_top_k": top_k, "importance_clip": 2.0})
    sampled = {"realised_token_ids": torch.tensor([0]), "sampled_log_probs": torch.tensor([math.log(0.4)])}
    loss, statistics = distillation_loss(scores[0], scores[1], None, objective, **sampled)
    teacher_side = 0.3 * math.log(0.3 / 0.45) + 0.7 * math.log(0.7 / 0.55)
    student_side = 0.6 * math.log(0.6 / 0.45) + 0.4 * math.log(0.4 / 0.55)
    assert loss.item() == pytest.approx(1.5 * (teacher_side + student_side) / 2)
    assert statistics.divergence.item() == pytest.approx(loss.item())


def test_the_importance_weight_is_taken_at_temperature_one(case):
    problem = case(6, 30, control=False).to(torch.float64)
    fields = {**PUBLISHED, "temperature": 2.0}
    plain, weighed = (problem.run("chunked", importance_clip=clip, **fields) for clip in (None, 1e6))
    logits = problem.hidden @ problem.head.weight_VD.T
    now = log_probs(logits).gather(1, problem.realised[:, None])[:, 0]
    weight = importance_weight(now, problem.sampled.double(), clip=1e6)
    torch.testing.assert_close(weighed.statistics.divergence, plain.statistics.divergence * weight)
    student, target = log_probs(logits, 2.0), log_probs(problem.original @ problem.teacher.weight_VD.T, 2.0)
    expected = jensen_shannon(*top_and_tail(target, student, 7))
    torch.testing.assert_close(plain.statistics.divergence, expected)


def test_the_published_objective_is_never_given_to_a_kernel_that_lacks_it(case):
    objective = METHODS["opsd_published"].objective()
    assert (objective.student_top_k, objective.importance_clip, objective.needs_chunked) == (100, 2.0, True)
    with pytest.raises(ConfigError, match="supports neither student_top_k nor importance_clip"):
        case(control=False).run("triton", **PUBLISHED)


def test_a_divergence_that_the_kernel_lacks_is_computed_by_the_chunked_loss(case, monkeypatch):
    monkeypatch.setattr("vcsd.loss.objective.DIVERGENCES", ("forward_kl", "total_variation"))
    assert Objective(divergence="total_variation").needs_chunked
    assert not Objective(divergence="forward_kl").needs_chunked
    with pytest.raises(ConfigError, match="and of the divergences only forward_kl, reverse_kl, jensen_shannon"):
        case().run("triton", divergence="total_variation")


def test_importance_weights_without_recorded_probabilities_are_an_error(case):
    problem = case(control=False)
    with pytest.raises(ConfigError, match="needs the sampled tokens and their log-probs"):
        problem.loss(problem.hidden, problem.head, impl="chunked", importance_clip=2.0, **PUBLISHED)
