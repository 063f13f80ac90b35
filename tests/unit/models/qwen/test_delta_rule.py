"""The gated delta rule in chunks is the rule token by token, and transformers' own, gradients included."""

import inspect

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.qwen3_5 import modeling_qwen3_5

from tiny_groups import nonlinear_loss, three_groups
from tiny_models import build_model, exact_arithmetic
from vcsd.models.family import family_of
from vcsd.models.qwen.delta_rule import gated_delta_rule
from vcsd.models.score import hidden_states

NUM, HEADS, KEY, VALUE = 2, 3, 4, 5


def drawn(length, *, with_state, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    inputs = {
        "query": normal(NUM, length, HEADS, KEY),
        "key": normal(NUM, length, HEADS, KEY),
        "value": normal(NUM, length, HEADS, VALUE),
        "g": (-torch.rand(NUM, length, HEADS, generator=generator, dtype=torch.float64)).requires_grad_(),
        "beta": torch.rand(NUM, length, HEADS, generator=generator, dtype=torch.float64).requires_grad_(),
    }
    return inputs | ({"initial_state": normal(NUM, HEADS, KEY, VALUE)} if with_state else {})


def token_by_token(query, key, value, g, beta, initial_state=None):
    """The rule as its docstring states it."""
    query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    query = query * KEY**-0.5
    state = torch.zeros(NUM, HEADS, KEY, VALUE, dtype=torch.float64) if initial_state is None else initial_state
    out = []
    for t in range(query.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        expected = (state * key[:, t, :, :, None]).sum(2)
        change = beta[:, t, :, None] * (value[:, t] - expected)
        state = state + key[:, t, :, :, None] * change[:, :, None]
        out.append((state * query[:, t, :, :, None]).sum(2))
    return torch.stack(out, 1), state


def outcome(rule, inputs, **settings):
    out, state = rule(**inputs, **settings)
    (out.sin().sum() + state.cos().sum()).backward()
    grads = [x.grad.clone() for x in inputs.values()]
    for x in inputs.values():
        x.grad = None
    return [out.detach(), state.detach(), *grads]


def ours(query, key, value, **rest):
    return gated_delta_rule(query, key, value, **rest)


def test_a_head_of_keys_serves_consecutive_heads_of_values():
    """As transformers passes them since 5.23: before, the layer repeated queries and keys itself."""
    inputs = {name: x.detach() for name, x in drawn(11, with_state=True).items()}
    inputs["query"], inputs["key"] = (inputs[name][:, :, :1] for name in ("query", "key"))
    whole = inputs | {name: inputs[name].expand(-1, -1, HEADS, -1) for name in ("query", "key")}
    settings = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    for mine, true in zip(ours(**inputs, **settings), ours(**whole, **settings), strict=True):
        assert torch.equal(mine, true)


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize(("length", "chunk"), [(1, 8), (7, 8), (8, 8), (19, 8), (40, 16)])
def test_chunks_give_what_tokens_one_by_one_give(length, chunk, with_state):
    inputs = drawn(length, with_state=with_state)
    settings = {"output_final_state": True, "use_qk_l2norm_in_kernel": True, "chunk_size": chunk}
    with exact_arithmetic():
        found = outcome(ours, inputs, **settings)
    for mine, true in zip(found, outcome(token_by_token, inputs), strict=True):
        assert mine.shape == true.shape
        torch.testing.assert_close(mine, true, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("normalised", [False, True])
def test_it_is_the_function_of_transformers(normalised):
    inputs = drawn(37, with_state=True, seed=1)
    settings = {"output_final_state": True, "use_qk_l2norm_in_kernel": normalised, "chunk_size": 16}
    theirs = inspect.unwrap(modeling_qwen3_5.torch_chunk_gated_delta_rule)
    with exact_arithmetic():
        found, true = outcome(ours, inputs, **settings), outcome(theirs, inputs, **settings)
    for mine, own in zip(found, true, strict=True):
        torch.testing.assert_close(mine, own, rtol=1e-10, atol=1e-11)


def test_the_state_is_kept_back_unless_asked_for_and_types_return():
    inputs = {name: x.detach().bfloat16() for name, x in drawn(5, with_state=False).items()}
    out, state = ours(**inputs)
    assert state is None
    assert out.dtype == torch.bfloat16


class CumulativeSums(TorchDispatchMode):
    """Counts the cumulative sums of floating-point numbers, which CUDA refuses in deterministic mode."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        is_sum = operation.overloadpacket in (torch.ops.aten.cumsum, torch.ops.aten.cumsum_)
        self.count += is_sum and args[0].is_floating_point()
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_no_cumulative_sum_is_taken_while_a_row_is_scored(family):
    model = build_model(family).train()
    family_of(model).prepare(model)
    with CumulativeSums() as sums:
        torch.rand(3).cumsum(0)
        assert sums.count == 1, "they are counted"
        nonlinear_loss(hidden_states(model, three_groups(family))).backward()
    assert sums.count == 1
