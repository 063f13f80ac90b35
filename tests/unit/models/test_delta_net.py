"""Which recurrence is used: fla only where its gradient is right."""

import functools

import pytest
import torch

from vcsd.models import delta_net
from vcsd.models.delta_rule import gated_delta_rule
from vcsd.models.fused import fused_batches


def faked(monkeypatch, *, triton="3.6.0", capability=(9, 0), installed=("fla",)):
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
