"""Which recurrence is used: always this package's for packed rows."""

import functools
from types import SimpleNamespace

import pytest
import torch

from vcsd.models.packed.layout import Layout, Segment
from vcsd.models.qwen import delta_net
from vcsd.models.qwen.delta_rule import gated_delta_rule
from vcsd.models.qwen.fused import fused_batches


def test_plain_batches_use_the_fused_rule_only_on_request(monkeypatch):
    def torch_rule(query, key, value, *, g, beta):
        return query + 1, None

    monkeypatch.setattr(delta_net, "gated_delta_rule", lambda query, *given, **settings: (query + 2, None))
    x, recur = torch.zeros(1, 2), delta_net.recurrence(torch_rule)
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
    out, _ = delta_net.recurrence(kernel)(x, x, x, g=x, beta=x)
    assert torch.equal(out, x + 1)
    convolve = delta_net.convolution(functools.wraps(torch_rule)(kernel))
    with pytest.raises(TypeError, match="keyword-only"):  # the toy is no convolution, but it was torch's that was asked
        convolve(x, x)


def test_a_row_takes_our_rule_though_a_kernel_is_installed(monkeypatch):
    seen = []

    def ours(query, *given, **settings):
        seen.append(settings["initial_state"] is not None)
        return gated_delta_rule(query, *given, **settings)

    def kernel(*given, **settings):
        raise AssertionError("another package's kernel was called for a row")

    monkeypatch.setattr(delta_net, "gated_delta_rule", ours)
    x, rate = torch.ones(1, 5, 1, 4), torch.full((1, 5, 1), 0.5)
    mixer = SimpleNamespace(layout=Layout([Segment(2, None), Segment(1, 0), Segment(2, 0)], torch.device("cpu")))
    out, _ = delta_net.recurrence(kernel)(x, x, x, g=-rate, beta=rate, mixer=mixer)
    assert out.shape == x.shape
    assert seen == [False, True], "the responses start from the state after the prompt"
