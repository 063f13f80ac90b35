"""Drawing tokens: the right distribution, the filters of vLLM, and streams that depend on their key alone."""

import pytest
import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from vcsd.errors import ConfigError
from vcsd.rollout.sampling import Sampling, draw, filtered, rollout_key, uniforms


def some_logits(rows: int = 4, vocabulary: int = 3000) -> torch.Tensor:
    return 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_tokens_are_drawn_with_their_probability() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 2.0, -1.0]]).expand(20000, -1)
    uniform = uniforms([f"{i}" for i in range(20000)], 0, 4)[:, 3]
    counts = torch.bincount(draw(logits, uniform, Sampling(temperature=2.0)), minlength=5)
    expected = (logits[0] / 2).softmax(-1)
    assert counts[2] == 0
    assert (counts / 20000 - expected).abs().max() < 4 * (0.25 / 20000) ** 0.5


def test_the_ends_of_the_unit_interval_draw_possible_tokens() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]]).expand(2, -1)
    assert draw(logits, torch.tensor([0.0, 1 - 2**-52], dtype=torch.float64), Sampling()).tolist() == [1, 2]


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize(
    "row", [[0.0, torch.nan, 1.0], [0.0, torch.inf, 1.0], [torch.nan] * 3, [-torch.inf] * 3, [torch.inf] * 3]
)
def test_logits_that_are_not_finite_draw_no_token(row: list[float], temperature: float) -> None:
    logits = torch.tensor([row, [0.0, -torch.inf, -torch.inf]])
    assert draw(logits, torch.full((2,), 0.5), Sampling(temperature=temperature)).tolist() == [3, 0]


def test_temperature_zero_is_greedy() -> None:
    logits = some_logits()
    assert torch.equal(draw(logits, torch.zeros(4), Sampling(temperature=0, top_k=1)), logits.argmax(-1))


@pytest.mark.parametrize(
    ("sampling", "warper"),
    [
        (Sampling(top_k=7), TopKLogitsWarper(7)),
        (Sampling(top_p=0.9), TopPLogitsWarper(0.9)),
        (Sampling(top_p=0.999), TopPLogitsWarper(0.999)),
        (Sampling(top_p=0.01), TopPLogitsWarper(0.01)),
        (Sampling(min_p=0.05), MinPLogitsWarper(0.05)),
    ],
)
@pytest.mark.parametrize("sharpness", [0.1, 1.0])
def test_each_filter_keeps_the_tokens_that_transformers_keeps(sampling: Sampling, warper, sharpness: float) -> None:
    logits = sharpness * some_logits()
    expected = warper(None, logits.clone())
    assert torch.equal(filtered(logits, sampling).isfinite(), expected.isfinite())


def test_top_p_is_taken_of_what_min_p_and_top_k_leave() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    kept = filtered(logits, Sampling(top_k=2, top_p=0.55)).isfinite()
    assert kept.tolist() == [[True, False, False, False]], "0.4 of 0.7 is already 0.57"
    assert filtered(logits, Sampling(top_p=0.55)).isfinite().tolist() == [[True, True, False, False]]
    assert filtered(logits, Sampling(min_p=0.6)).isfinite().tolist() == [[True, True, False, False]]
    assert filtered(logits, Sampling(min_p=0.6, top_k=3)).isfinite().tolist() == [[True, True, False, False]]


def test_a_presence_penalty_is_subtracted_once_from_what_the_rollout_contains() -> None:
    logits = torch.tensor([[1.0, 0.9, 0.0], [1.0, 0.9, 0.0]])
    seen = torch.tensor([[True, False, False], [False, False, False]])
    sampling = Sampling(temperature=0, presence_penalty=0.5)
    assert draw(logits, torch.zeros(2), sampling, seen).tolist() == [1, 0]


def test_a_presence_penalty_comes_before_the_temperature() -> None:
    logits, seen = torch.tensor([[2.0, 0.0]]), torch.tensor([[True, False]])
    p_first = torch.sigmoid(torch.tensor((2.0 - 1.0) / 0.5)).item()
    sampling = Sampling(temperature=0.5, presence_penalty=1.0)
    for uniform, token in ((p_first - 1e-3, 0), (p_first + 1e-3, 1)):
        assert draw(logits, torch.tensor([uniform]), sampling, seen).item() == token


def test_a_stream_depends_on_seed_step_example_and_index() -> None:
    keys = [rollout_key(*k) for k in [(0, 0, "a", 0), (1, 0, "a", 0), (0, 1, "a", 0), (0, 0, "b", 0), (0, 0, "a", 1)]]
    numbers = uniforms(keys, 0, 100)
    assert len({tuple(row) for row in numbers.tolist()}) == 5
    assert torch.equal(uniforms(keys[2:3], 64, 36)[0], numbers[2, 64:])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.05


def test_every_impossible_value_is_named() -> None:
    with pytest.raises(ConfigError) as error:
        Sampling(max_new_tokens=0, temperature=-1, top_p=0, top_k=0, min_p=1, presence_penalty=3)
    assert len(error.value.problems) == 6
    assert "sampling.top_p = 0 must be in (0, 1]; 1 is off." in error.value.problems


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in (float("inf"), float("nan"), 1e-40, 0.009, True, False, "1", None)),
        *(("max_new_tokens", value) for value in (2.5, float("inf"), True, "8", None)),
        *(("top_k", value) for value in (1.5, True, "8")),
        *(("top_p", value) for value in ("0.9", float("nan"), True, None)),
        *(("min_p", value) for value in ("0.1", float("nan"), False)),
        *(("presence_penalty", value) for value in ("1", float("nan"), None)),
    ],
)
def test_what_is_not_a_number_of_its_kind_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as error:
        Sampling(**{name: value})
    assert len(error.value.problems) == 1
    assert f"sampling.{name} = {value!r} must be " in error.value.problems[0]


@pytest.mark.parametrize("temperature", [0, 0.0, 0.01, 1, 1e30])
def test_every_temperature_that_can_be_divided_by_is_accepted(temperature: float) -> None:
    logits = some_logits()
    uniform = uniforms([f"{row}" for row in range(4)], 0, 4)[:, 3]
    assert (draw(logits, uniform, Sampling(temperature=temperature)) < logits.shape[1]).all()
