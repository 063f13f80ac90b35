"""Cards and machines as data, for projections: memory, speed and links from vendors' data sheets.

parse_machine("h200")       one H200
parse_machine("8xh100")     one node with eight H100
parse_machine("24GB")       the most common card of that size
"""

from __future__ import annotations

import difflib
import math
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

GPUS_PER_NODE = 8
PLAIN_PRODUCT = 0.71
"""The share of a data sheet's rate that a plain matrix product reaches: 705 of 989 TFLOP/s on an H200, as measured in
benchmarks/results/prefix_sharing_qwen3_vl.json."""

BETWEEN_NODES = 50e9
"""Bytes per second and GPU between nodes: the nominal rate of one 400 Gbit/s link each; assumed."""

HOST_LINK = 25e9
"""Bytes per second between a GPU and host memory, in each direction: PCIe 4.0 with 16 lanes; assumed."""

HOST_GIB = 128.0
"""Host memory per GPU; assumed. Rented nodes of eight such GPUs have 1 TiB or more."""


@dataclass(frozen=True)
class Card:
    """A GPU. Memory is what the driver reports; rates are the data sheet's, dense bfloat16 and device memory."""

    name: str
    gib: float
    flops: float
    bandwidth: float
    link: float
    """Bytes per second to the other GPUs of its node, in one direction."""
    host_gib: float = HOST_GIB
    """Host memory next to each GPU."""


CARDS: Mapping[str, Card] = {
    "rtx4090": Card("RTX 4090", 24.0, 165e12, 1.01e12, 25e9),
    "l40s": Card("L40S", 45.0, 362e12, 0.86e12, 25e9),
    "a100-80": Card("A100 80 GB", 79.3, 312e12, 2.04e12, 300e9),
    "h100": Card("H100 80 GB", 79.2, 989e12, 3.35e12, 450e9),
    "h200": Card("H200", 139.8, 989e12, 4.8e12, 450e9),
    "b200": Card("B200", 178.4, 2250e12, 8.0e12, 900e9),
}
"""From small to large."""

SLOWER_CARDS: Mapping[str, Card] = {
    "l4": Card("L4", 22.5, 121e12, 0.3e12, 25e9),
    "a10": Card("A10", 22.5, 125e12, 0.6e12, 25e9),
    "a10g": Card("A10G", 22.5, 70e12, 0.6e12, 25e9),
    "rtx3090": Card("RTX 3090", 24.0, 71e12, 0.936e12, 25e9),
}
"""Cards with 24 GB that are slower than the one that stands for them. Known by name, never proposed."""

_KNOWN = {**CARDS, **SLOWER_CARDS}

ALIASES = {"24gb": "rtx4090", "48gb": "l40s", "80gb": "a100-80", "a100": "a100-80", "141gb": "h200"}


@dataclass(frozen=True)
class Machine:
    """One or more cards of one kind, eight to a node.

    >>> Machine(CARDS["h100"], 16).name
    '16x H100 80 GB (2 nodes)'
    """

    card: Card
    num_gpus: int = 1

    @property
    def name(self) -> str:
        """The machine in words."""
        nodes = -(-self.num_gpus // GPUS_PER_NODE)
        several = f"{self.num_gpus}x {self.card.name}"
        return self.card.name if self.num_gpus == 1 else several if nodes == 1 else f"{several} ({nodes} nodes)"

    @property
    def gpus_per_node(self) -> int:
        """The GPUs of its fullest node."""
        return min(self.num_gpus, GPUS_PER_NODE)

    @property
    def host_gib(self) -> float:
        """Host memory of a node."""
        return self.gpus_per_node * self.card.host_gib

    @property
    def word(self) -> str:
        """The machine as `parse_machine` reads it; for a measured card, which it does not know, the card's name.

        >>> Machine(CARDS["h100"], 8).word
        '8xh100'
        """
        key = next((key for key, card in _KNOWN.items() if card == self.card), self.card.name)
        return key if self.num_gpus == 1 else f"{self.num_gpus}x{key}"

    @property
    def link(self) -> float:
        """Bytes per second that each GPU sends to the others, the slowest link of a ring."""
        return self.card.link if self.num_gpus <= GPUS_PER_NODE else min(self.card.link, BETWEEN_NODES)


MACHINES = [
    *(Machine(card) for card in CARDS.values()),
    *(Machine(CARDS[name], GPUS_PER_NODE) for name in ("a100-80", "h100", "h200", "b200")),
    Machine(CARDS["h100"], 16),
    Machine(CARDS["h200"], 16),
]
"""Machines to propose, from small to large."""


def measure_card(device: torch.device, dtype: torch.dtype, total_bytes: float) -> Card:
    """Time a matrix product and a copy on a device, and describe it as a card. Takes about a second on a CPU."""
    import torch

    side = 8192 if device.type == "cuda" else 512
    square = torch.randn(side, side, device=device, dtype=dtype)
    product = _seconds(lambda: square @ square, device)
    block = torch.empty(16 * side * side, device=device, dtype=torch.uint8)
    copy = _seconds(block.clone, device)
    flops = 2 * side**3 / product / PLAIN_PRODUCT
    return Card(str(device), total_bytes / 2**30, flops, 2 * block.numel() / copy, 25e9, math.inf)


_REPEATS = 5
"""Measurements of which the fastest counts."""


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    import torch

    times = []
    for _ in range(_REPEATS):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times)


def parse_machine(text: str) -> Machine:
    """Read a machine such as `h200`, `8xh100` or `24GB`. Raise a ConfigError if it is unknown.

    >>> parse_machine("8xH100").num_gpus
    8
    """
    match = re.fullmatch(r"(?:(\d{1,4})x)?(.+)", text.strip().lower().replace(" ", ""))
    number, key = (match[1] or "1", match[2].replace("_", "-")) if match else ("1", "")
    key = ALIASES.get(key, key)
    if key not in _KNOWN:
        known = [*_KNOWN, *ALIASES]
        # The nearest spelling of a memory size is a wrong size: 141gb for 16gb.
        near = [] if re.fullmatch(r"\d{1,3}(gb)?", key) else difflib.get_close_matches(key, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        allowed = f"Allowed: {', '.join(known)}; several as in 8xh100."
        raise ConfigError([f"card {text!r} is not known.{hint} {allowed}"])
    if not 1 <= int(number) <= 1024:
        raise ConfigError([f"card {text!r} has {number} GPUs. Allowed: 1 to 1024."])
    return Machine(_KNOWN[key], int(number))
