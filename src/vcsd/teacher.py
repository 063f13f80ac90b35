"""The teacher: weights that follow the student slowly.

ema        teacher <- (1 - rate) teacher + rate student, after each optimizer step that was taken; the paper's choice
fixed      the student as it was at the start
current    the student itself
periodic   a copy of the student, renewed every few optimizer steps

The teacher starts as a copy of the student, checked bit for bit, and stays in eval mode without gradients. Its moving
weights are at least float32: at a rate of 0.05 and a learning rate of 2e-6, a bfloat16 teacher would not move. Build it
before the student is wrapped or sharded; after that it cannot be copied. Both are sharded the same way, and each rank
updates its own shards. Until then, a teacher that will be sharded (`is_alias`) uses the memory of the student's
weights: sharding copies each rank's part, so the host never holds the weights twice.

With LoRA the teacher has its own adapters around the student's frozen base, and only the adapters move.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from vcsd.errors import ConfigError, did_you_mean
from vcsd.models.freeze import alias_of, copy_of, is_adapter
from vcsd.models.inside import reshard
from vcsd.parallel.ranks import gathered
from vcsd.parallel.sharding import is_sharded, local_part, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor, nn

_NUM_VALUES = 16
"""How many values of each weight `weights_hash` reads."""

_PIECE_BYTES = 2**26
"""How much of a tensor `raw_bytes` copies at a time."""

KINDS = ("ema", "fixed", "current", "periodic")


class Teacher:
    """A model to score with, and the rule for following the student.

    >>> student = torch.nn.Linear(1, 1, bias=False)
    >>> with torch.no_grad():
    ...     teacher = Teacher(student, "ema", ema_rate=0.25)
    ...     _ = student.weight.add_(1.0)
    >>> before = teacher.module.weight.item()
    >>> teacher.update()
    >>> round(teacher.module.weight.item() - before, 6)      # a quarter of the way
    0.25
    """

    def __init__(
        self,
        student: nn.Module,
        kind: str = "ema",
        *,
        ema_rate: float = 0.05,
        every: int = 10,
        is_alias: bool = False,
    ) -> None:
        if kind not in KINDS:
            raise ConfigError([f"teacher = {kind!r} is not a kind of teacher. {did_you_mean(kind, KINDS)}"])
        if not 0 < ema_rate <= 1:
            raise ConfigError([f"ema_rate = {ema_rate} is outside (0, 1]. 0.05 is the paper's value."])
        if every < 1:
            raise ConfigError([f"every = {every} must be at least 1: the steps between copies of the student."])
        self.kind, self.ema_rate, self.every = kind, ema_rate, every
        self.student = student
        self.num_updates = 0
        """The number of optimizer steps so far."""
        self.module = student if kind == "current" else _frozen_copy(student, is_alias=is_alias)
        """The model to score with. A trainer may wrap it."""
        self._weights = self.module
        if not same_bits(named_tensors(self._weights), named_tensors(student)):
            raise AssertionError("the teacher's first weights are not the student's")

    @property
    def weights(self) -> nn.Module | None:
        """The teacher's own weights, which a checkpoint must hold; None if they are the student's."""
        return None if self.kind == "current" else self._weights

    @torch.no_grad()
    def update(self) -> None:
        """Follow the student. Call it after each optimizer step that was taken, not after a skipped one."""
        self.num_updates += 1
        reshard(self.student, self._weights)  # an update of gathered weights would be lost
        if self.kind == "ema":
            students, teachers = zip(*self._pairs(), strict=True)
            torch._foreach_lerp_(list(teachers), list(students), self.ema_rate)
        is_due = self.kind == "periodic" and self.num_updates % self.every == 0
        if is_due:
            for student, teacher in self._pairs():
                teacher.copy_(student)
        if self.kind == "ema" or is_due:
            for student, teacher in zip(self.student.buffers(), self._weights.buffers(), strict=True):
                teacher.copy_(student)

    @torch.no_grad()
    def distance(self) -> float:
        """Return |teacher - student| / |student| over all trained parameters; 0 if both are 0, as for new adapters."""
        if self.kind == "current":
            return 0.0
        gaps, sizes = [], []
        for student, teacher in self._pairs():
            gaps.append((teacher - student).norm().double())
            sizes.append(student.norm().double())
        gap, size = torch.stack(gaps).norm(), torch.stack(sizes).norm()
        if is_sharded(self.student):
            gap, size = torch.tensor(gathered([gap.item(), size.item()]), dtype=torch.float64).norm(dim=0)
        return float(gap / size) if gap else 0.0

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (student, teacher) for every trained parameter; frozen ones cannot differ.

        For a sharded parameter, yield this rank's part.
        """
        for student, teacher in zip(self.student.parameters(), self._weights.parameters(), strict=True):
            if student.requires_grad:
                yield local_part(student.detach()), local_part(teacher.detach())


def _frozen_copy(student: nn.Module, *, is_alias: bool) -> nn.Module:
    """Copy the student in eval mode without gradients. Its trained parameters must be at least float32."""
    with torch.no_grad():
        teacher = (alias_of(student) if is_alias else copy_of(student)).eval()
        for weight, copied in zip(student.parameters(), teacher.parameters(), strict=True):
            copied.grad = None
            dtype = weight.dtype
            if weight.requires_grad and dtype.itemsize < torch.float32.itemsize:
                raise ConfigError(
                    [f"a trained parameter is {dtype}, whose average would not move. Load the student in float32."]
                )
    return teacher.requires_grad_(False)


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and saved buffers by name. A tied parameter appears once, under its first name."""
    first_names: dict[int, str] = {}
    saved = module.state_dict(keep_vars=True)
    for name, tensor in saved.items():
        first_names.setdefault(id(tensor), name)
    return {name: saved[name].detach() for name in first_names.values()}


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return what a run must save of a model: all tensors, or those of its adapters if it has any."""
    tensors = named_tensors(module)
    return {name: tensor for name, tensor in tensors.items() if is_adapter(name)} or tensors


def same_bits(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    """Whether names, types, shapes and bits agree. Compares on the device, where it is faster than hashing on the CPU.

    >>> zeros = {"a": torch.zeros(2)}
    >>> same_bits(zeros, {"a": torch.zeros(2)}), same_bits(zeros, {"a": -torch.zeros(2)})
    (True, False)
    """
    return ours.keys() == theirs.keys() and all(_is_same(tensor, theirs[name]) for name, tensor in ours.items())


def _is_same(ours: Tensor, theirs: Tensor) -> bool:
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(ours.dtype.itemsize, torch.int64)
    mine, other = (tensor.detach().contiguous().view(-1).view(words) for tensor in (ours, theirs))
    return torch.equal(mine, other)


def fingerprint(tensors: dict[str, Tensor]) -> str:
    """Hash the names, types, shapes and bytes of tensors. Collective if they are spread over ranks.

    >>> fingerprint({"a": torch.zeros(2)}) == fingerprint({"a": torch.zeros(2)})
    True
    >>> fingerprint({"a": torch.zeros(2)}) == fingerprint({"a": -torch.zeros(2)})
    False
    """
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        for part in raw_bytes(tensor):
            digest.update(part)
    return digest.hexdigest()


def weights_hash(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Hash names, types, shapes and a few values of each weight: fast, and enough to tell models apart."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in weights:
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        flat = weight.detach().reshape(-1)
        few = flat[:: max(1, len(flat) // _NUM_VALUES)].contiguous().cpu().view(torch.uint8)
        digest.update(few.numpy().tobytes())
    return digest.hexdigest()


def raw_bytes(tensor: Tensor) -> Iterable[memoryview]:
    """Yield the bytes of a tensor in pieces, copying one at a time to the CPU. A sharded tensor is gathered."""
    flat = whole(tensor.detach()).contiguous().view(-1)
    if flat.numel() == 0:
        return
    bytes_flat = flat.view(torch.uint8)
    for start in range(0, len(bytes_flat), _PIECE_BYTES):
        yield memoryview(bytes_flat[start : start + _PIECE_BYTES].cpu().numpy())  # type: ignore[arg-type]
