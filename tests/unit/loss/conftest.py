"""Without a GPU the Triton kernels are interpreted, which must be decided before they are defined."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from vcsd.loss import Objective, Statistics, distillation_loss
from vcsd.types import Head, Scores

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class Outcome:
    loss: Tensor
    statistics: Statistics
    grad_hidden: Tensor | None
    grad_weight: Tensor | None
    grad_bias: Tensor | None


@dataclass
class Case:
    """A small problem; `run` computes loss and gradients of it with one implementation."""

    hidden: Tensor
    original: Tensor
    control: Tensor | None
    head: Head
    teacher: Head
    weights: Tensor
    realised: Tensor
    sampled: Tensor

    def to(self, dtype: torch.dtype) -> Case:
        def cast(head: Head) -> Head:
            bias = None if head.bias_V is None else head.bias_V.to(dtype)
            return replace(head, weight_VD=head.weight_VD.to(dtype), bias_V=bias)

        control = None if self.control is None else self.control.to(dtype)
        return replace(
            self,
            hidden=self.hidden.to(dtype),
            original=self.original.to(dtype),
            control=control,
            head=cast(self.head),
            teacher=cast(self.teacher),
            weights=self.weights.to(torch.float64 if dtype == torch.float64 else torch.float32),
        )

    def loss(
        self,
        hidden: Tensor,
        head: Head,
        weights: Tensor | None = None,
        *,
        impl: str,
        realised_token_ids: Tensor | None = None,
        sampled_log_probs: Tensor | None = None,
        **fields: Any,
    ) -> tuple[Tensor, Statistics]:
        """The loss of these hidden states and this head; the teacher is the problem's own."""
        return distillation_loss(
            Scores(hidden, head),
            Scores(self.original, self.teacher),
            None if self.control is None else Scores(self.control, self.teacher),
            Objective(**fields),
            weights,
            realised_token_ids=realised_token_ids,
            sampled_log_probs=sampled_log_probs,
            impl=impl,
        )

    def run(self, impl: str, *, frozen: bool = False, weighted: bool = True, **fields: Any) -> Outcome:
        hidden = self.hidden.detach().clone().requires_grad_()
        weight = self.head.weight_VD.detach().clone().requires_grad_(not frozen)
        bias = None if self.head.bias_V is None else self.head.bias_V.detach().clone().requires_grad_(not frozen)
        head, weights = replace(self.head, weight_VD=weight, bias_V=bias), self.weights if weighted else None
        drawn = {"realised_token_ids": self.realised, "sampled_log_probs": self.sampled}
        loss, statistics = self.loss(hidden, head, weights, impl=impl, **drawn, **fields)
        if weighted:
            loss.backward()
        else:
            loss.backward(self.weights.to(loss.dtype))
        return Outcome(loss.detach(), statistics, hidden.grad, weight.grad, None if bias is None else bias.grad)


def make_case(
    num: int = 5,
    vocabulary: int = 97,
    width: int = 8,
    *,
    teacher_width: int | None = None,
    control: bool = True,
    bias: bool = False,
    scale: float = 1.0,
    soft_cap: float | None = None,
    seed: int = 0,
) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE)

    teacher_width = teacher_width or width
    original = draw(num, teacher_width)
    return Case(
        hidden=draw(num, width),
        original=original,
        control=original + draw(num, teacher_width) if control else None,
        head=Head(draw(vocabulary, width), draw(vocabulary) if bias else None, scale, soft_cap),
        teacher=Head(draw(vocabulary, teacher_width), draw(vocabulary) if bias else None, scale, soft_cap),
        weights=draw(num).abs() + 0.1,
        realised=torch.randint(vocabulary, (num,), generator=generator).to(DEVICE),
        sampled=-3 * draw(num).abs(),
    )


@pytest.fixture
def case() -> Any:
    """Builds a `Case`."""
    return make_case


@pytest.fixture(params=["chunked", "triton"])
def impl(request: pytest.FixtureRequest) -> str:
    return str(request.param)
