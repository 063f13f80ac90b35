"""Tests run with the network cable out, on one torch thread, and the same way every time."""

import gc
import os
import signal
import socket

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

from hopper_compiler import hopper_compiler

if not torch.cuda.is_available():
    # Triton decides when a kernel is defined whether it is interpreted, and any test may be the first to define one.
    os.environ.setdefault("TRITON_INTERPRET", "1")

try:
    import hypothesis
except ImportError:  # a machine for GPU tests only
    pass
else:
    hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=100)
    hypothesis.settings.load_profile("repeatable")


def pytest_configure(config):
    torch.set_num_threads(1)


def pytest_collection_modifyitems(config, items):
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_collection_finish(session):
    """Keep the garbage collector away from modules and collected tests: visiting them takes half a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def compile_for_hopper():
    """A function that runs a program which compiles Triton kernels, in a process where these are not interpreted."""
    pytest.importorskip("triton")
    with hopper_compiler() as run:
        yield run


@pytest.fixture
def _default_interrupt():
    """Ctrl-C interrupts, even if a shell that started the tests in the background lets them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    connect = socket.socket.connect

    def connect_at_home(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_at_home)
