"""Several ranks on one machine: processes forked from one that has imported torch, so that a rank starts quickly."""

import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from forked_python import context

TIMEOUT = timedelta(minutes=3)
"""How long a rank may wait for another. A test that hangs fails after it."""


def exit_codes(num_ranks: int, run: Callable[..., None], *given: Any) -> list[int | None]:
    """Call `run(*given)` on every rank, and return the exit codes: 0, 1 after an exception, or what `os._exit` got."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = started(num_ranks, f"file://{Path(folder) / 'rendezvous'}", run, *given)
        for process in ranks:
            process.join(2 * TIMEOUT.total_seconds())
            process.kill()  # only one that hangs is still alive
        return [process.exitcode for process in ranks]


def started(num_ranks: int, where: str, run: Callable[..., None], *given: Any) -> list[ForkServerProcess]:
    """Start ranks that meet at an address and call `run(*given)`."""
    ranks = [context().Process(target=_rank, args=(rank, num_ranks, where, run, given)) for rank in range(num_ranks)]
    for process in ranks:
        process.start()
    return ranks


def on_ranks(num_ranks: int, run: Callable[..., None], *given: Any) -> None:
    """Call a function on every rank, without errors."""
    assert exit_codes(num_ranks, run, *given) == [0] * num_ranks, "the error is on stderr"


def _rank(rank: int, num_ranks: int, where: str, run: Callable[..., None], given: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=num_ranks, timeout=TIMEOUT)
    dist.barrier()  # a rank that fails at once would close its connections while others still make theirs
    run(*given)
    dist.destroy_process_group()
    sys.stderr.flush()


def tiny_model(seed: int = 0) -> nn.Module:
    """Odd shapes, so that shards are uneven; the last has one row, so that some ranks hold nothing of it."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3), nn.Linear(3, 1))
    model.register_buffer("scale", torch.tensor([2.0, 3.0]))
    return model


def shard(model: nn.Module) -> nn.Module:
    """Spread a model over all ranks, each layer as a unit."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for unit in (*model.children(), model):
        fully_shard(unit, mesh=mesh)
    return model


def optimizer_of(model: nn.Module) -> torch.optim.AdamW:
    """AdamW with two groups of parameters."""
    first, *rest = model.parameters()
    return torch.optim.AdamW([{"params": [first], "lr": 0.1}, {"params": rest}], lr=0.05)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, num_steps: int) -> None:
    """Take steps on data that is the same on every rank, so that the mean over ranks is that of one process."""
    for step in range(num_steps):
        inputs = torch.linspace(-1, 1, 20).reshape(4, 5).roll(step, 0)
        model(inputs).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def whole(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies of the tensors with all their shards."""
    return {name: t.full_tensor() if hasattr(t, "full_tensor") else t.clone() for name, t in tensors.items()}
