"""Free memory of a GPU: what the driver and torch report, within the limit of the process."""

import pytest
import torch

from vcsd.kernels.device import free_bytes


@pytest.mark.parametrize(
    ("free", "reserved", "allocated", "fraction", "expected"),
    [
        (60, 30, 10, 1.0, 80),  # the driver's free memory, and what torch has reserved but does not use
        (60, 30, 10, 0.5, 40),  # of 50 that the process may use, 10 are taken
        (5, 30, 10, 0.5, 25),  # other processes have taken the rest
        (60, 55, 50, 0.5, 5),  # more is reserved than a later limit allows
    ],
)
def test_free_memory_respects_the_limit_of_the_process(monkeypatch, free, reserved, allocated, fraction, expected):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocated)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: fraction)
    assert free_bytes(torch.device("cuda")) == expected
