"""Which recurrence is used: fla only where its gradient is right."""

import functools
import itertools
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from vcsd.models import delta_net
from vcsd.models.delta_rule import gated_delta_rule
from vcsd.models.fused import fused_batches
from vcsd.models.layout import Layout, Segment

KERNEL = ModuleType("fla.ops.gated_delta_rule")


def faked(monkeypatch, *, triton="3.6.0", capability=(9, 0), installed=("fla",), kernel=KERNEL):
    monkeypatch.setitem(sys.modules, "fla.ops.gated_delta_rule", kernel)  # None: an import that fails
    monkeypatch.setattr(delta_net.importlib.util, "find_spec", lambda name: name if name in installed else None)
    monkeypatch.setattr(delta_net.importlib.metadata, "version", lambda name: triton)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    return delta_net.fla_problem.__wrapped__()


def test_fla_is_refused_where_its_gradient_is_wrong(monkeypatch):
    assert "Triton 3.6.0" in faked(monkeypatch)


@pytest.mark.parametrize(
    "changes",
    [
        {"triton": "3.7.1"},
        {"triton": "3.3.1"},
        {"capability": (10, 0)},
        {"capability": None},
        {"installed": ()},
        {"installed": ("fla", "tilelang")},
    ],
)
def test_fla_is_used_everywhere_else(monkeypatch, changes):
    assert faked(monkeypatch, **changes) is None


@pytest.mark.parametrize("installed", [("fla",), ("fla", "tilelang")])
def test_fla_that_cannot_be_imported_is_a_problem_on_a_gpu_alone(monkeypatch, installed):
    given = {"triton": "3.7.1", "kernel": None, "installed": installed}
    assert "cannot be imported (ModuleNotFoundError" in faked(monkeypatch, **given)
    assert faked(monkeypatch, capability=None, **given) is None


def test_a_kernel_is_used_where_it_is_installed_and_right_else_our_rule(monkeypatch, caplog):
    def kernel():
        pass

    def chosen():
        return delta_net._trainable.__wrapped__(kernel)

    monkeypatch.setattr(delta_net.importlib.util, "find_spec", lambda name: None)
    assert chosen() is gated_delta_rule
    monkeypatch.setattr(delta_net.importlib.util, "find_spec", lambda name: name)
    assert chosen() is kernel
    monkeypatch.setattr(delta_net, "fla_problem", lambda: "it is wrong here")
    assert chosen() is gated_delta_rule
    assert "wrong here" in caplog.text


def test_plain_batches_take_our_rule_only_where_they_are_to_be_fused(monkeypatch):
    def torch_rule(query, key, value, *, g, beta):
        return query + 1, None

    monkeypatch.setattr(delta_net, "gated_delta_rule", lambda query, *given, **settings: (query + 2, None))
    x, recur = torch.zeros(1, 2), delta_net._recurrence(torch_rule)
    assert torch.equal(recur(x, x, x, g=x, beta=x)[0], x + 1)
    with fused_batches():
        assert torch.equal(recur(x, x, x, g=x, beta=x)[0], x + 2)


def test_on_a_cpu_torch_computes_though_a_kernel_is_installed():
    def torch_rule(query, key, value, *, g, beta):
        return query + 1, None

    @functools.wraps(torch_rule)
    def kernel(*given, **settings):
        raise AssertionError("a kernel for GPUs was called")

    x = torch.zeros(1, 2)
    out, _ = delta_net._recurrence(kernel)(x, x, x, g=x, beta=x)
    assert torch.equal(out, x + 1)
    convolve = delta_net._convolution(functools.wraps(torch_rule)(kernel))
    with pytest.raises(TypeError, match="keyword-only"):  # the toy is no convolution, but it was torch's that was asked
        convolve(x, x)


def a_kernel_for_packed_segments(query, key, value, *, g, beta, cu_seqlens, initial_state, output_final_state):
    """What flash-linear-attention does with `cu_seqlens`: each segment by itself."""
    assert query.shape[0] == 1
    out, states = [], []
    for place, (start, end) in enumerate(itertools.pairwise(cu_seqlens)):
        own = (x[:, start:end] for x in (query, key, value))
        state = None if initial_state is None else initial_state[place : place + 1]
        rates = {"g": g[:, start:end], "beta": beta[:, start:end]}
        mixed, last = gated_delta_rule(*own, **rates, initial_state=state, output_final_state=output_final_state)
        out.append(mixed)
        states.append(last)
    return torch.cat(out, 1), torch.cat(states) if output_final_state else None


def test_packed_segments_give_what_padded_batches_give_and_the_same_gradients():
    segments = [Segment(9, None), Segment(70, 0), Segment(1, 0), Segment(5, None), Segment(3, 3), Segment(12, 3)]
    layout = Layout([*segments, Segment(4, None)], torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    wide = [torch.randn(layout.num_tokens, 2, 4, generator=generator).requires_grad_() for _ in range(3)]
    decay, beta = (torch.rand(layout.num_tokens, 2, generator=generator).requires_grad_() for _ in range(2))
    weights = torch.randn(layout.num_tokens, 2, 4, generator=generator)

    def found(run, rule):
        out = run(rule, layout, (*wide, -decay, beta), {})
        return [out, *torch.autograd.grad((out[0] * weights).sum(), [*wide, decay, beta])]

    padded = found(delta_net._in_batches, gated_delta_rule)
    packed = found(delta_net._packed, a_kernel_for_packed_segments)
    for one, other in zip(padded, packed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


class OnGpu(list):
    """Says of itself that it is on a GPU."""

    is_cuda = True


def test_a_kernel_gets_segments_packed_and_our_rule_gets_batches(monkeypatch):
    seen = []
    monkeypatch.setattr(delta_net, "_packed", lambda rule, *given: seen.append("packed"))
    monkeypatch.setattr(delta_net, "_in_batches", lambda rule, *given: seen.append("batches"))
    x = torch.zeros(1, 2, 1, 1)
    mixer = SimpleNamespace(layout=Layout([Segment(2, None)], torch.device("cpu")))
    recur = delta_net._recurrence(a_kernel_for_packed_segments)
    recur(x, x, x, g=x, beta=x, mixer=mixer)
    monkeypatch.setattr(delta_net, "_trainable", lambda original: original)
    recur(OnGpu(x), x, x, g=x, beta=x, mixer=mixer)
    assert seen == ["batches", "packed"]
