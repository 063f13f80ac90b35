"""Sending the student's weights to an inference engine, and proving that they arrived.

A sync that goes wrong is silent in every engine: names that are left out keep their old values, features of images
survive in a cache, a restarted server serves the weights of its folder. So each sync

1. compares the names and shapes that are sent with those of a model built from the configuration alone;
2. sends them under a version, and reads the version back;
3. clears the caches of prefixes, images and encoder outputs;
4. has the engine answer a fixed question, and compares its log-probabilities with the student's (`sync_probe.py`).

Names are those of a released checkpoint. Tensors are sent one at a time, whole, in the engine's dtype.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from transformers import AutoModelForImageTextToText

from vcsd.errors import RunError, few
from vcsd.models.family import base_model
from vcsd.models.freeze import is_adapter
from vcsd.parallel.ranks import num_ranks
from vcsd.parallel.sharding import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import Tensor, nn
    from transformers import PretrainedConfig

log = logging.getLogger(__name__)

Named = tuple[str, "Tensor"]
_NAMED_IN_ERROR = 5
_CHUNK = 2**24
_PRIME = 2**31 - 1
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DeltaMismatchError(RunError):
    """A tensor that was rebuilt from a change is not the one that was sent."""


class OtherVersionError(RunError):
    """The engine does not use the weights of the step."""


class SyncTarget(Protocol):
    """An engine that takes new weights, in vLLM's protocol."""

    def start_weight_update(self) -> None:
        """Begin an update."""

    def load(self, weights: Iterable[Named]) -> None:
        """Take the weights."""

    def finish_weight_update(self, version: str) -> None:
        """End an update under a version."""

    def weight_version(self) -> str:
        """Return the version of the weights in use."""

    def clear_caches(self) -> None:
        """Forget prefixes, images and encoder outputs."""


@dataclass(frozen=True)
class SyncRecord:
    """One sync, as a line of the run's `weight_sync.jsonl`."""

    step: int
    version: str
    num_tensors: int
    num_bytes: int
    manifest: str
    """A hash of the names, shapes and contents that were sent."""
    seconds: float
    sent_bytes: int | None = None
    """Bytes that a server got, if only changes were sent."""
    probe_mean: float | None = None
    probe_max: float | None = None
    """Differences of log-probabilities between the engine and the student, in nats."""

    def as_line(self) -> dict[str, object]:
        """Return the record as plain values."""
        return asdict(self)


def expected_shapes(config: PretrainedConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every weight of a model, from its configuration alone; tied weights once."""
    plain = type(config).from_dict(config.to_dict())  # without what was patched into the live model's configuration
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(plain, trust_remote_code=False)  # type: ignore[no-untyped-call]
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def student_weights(student: nn.Module, dtype: torch.dtype) -> Iterator[Named]:
    """Yield the student's weights one at a time: whole, with adapters merged, and in the engine's dtype."""
    base = base_model(student)
    adapted = {name: module for name, module in base.named_modules() if hasattr(module, "base_layer")}
    for name, parameter in base.named_parameters():
        if is_adapter(name):
            continue
        weight = whole(parameter.detach())
        layer, is_adapted, rest = name.partition(".base_layer.")
        if is_adapted and rest == "weight":
            weight = weight.float() + _change(adapted[layer])
        yield (f"{layer}.{rest}" if is_adapted else name), weight.to(dtype)


@torch.no_grad()
def _change(layer: nn.Module) -> Tensor:
    """The sum of what a layer's active adapters add to its weight, in float32."""
    changes = [layer.get_delta_weight(adapter) for adapter in layer.active_adapters]  # type: ignore[operator, union-attr]
    return torch.stack([whole(change).float() for change in changes]).sum(0)


class WeightSync:
    """Sends weights to an engine, and makes all checks except the probe."""

    def __init__(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        self._expected = dict(expected)

    def send(self, target: SyncTarget, weights: Callable[[], Iterable[Named]], step: int) -> SyncRecord:
        """Send all weights under the version of a step. Raise a RunError if something is missing or not in use."""
        start, version = time.monotonic(), version_of(step)
        manifest = _load(target, weights)
        target.finish_weight_update(version)
        self.refuse_incomplete(manifest.shapes)
        target.clear_caches()
        refuse_other_version(target, version)
        return manifest.record(step, time.monotonic() - start)

    def noted(self, weights: Iterable[Named], step: int) -> SyncRecord:
        """Return the record of weights that another rank sends."""
        start, manifest = time.monotonic(), _Manifest()
        for _ in manifest.noting(weights):
            pass
        return manifest.record(step, time.monotonic() - start)

    def refuse_incomplete(self, sent: Mapping[str, tuple[int, ...]]) -> None:
        """Raise a RunError unless exactly the expected names and shapes were sent."""
        missing = sorted(self._expected.keys() - sent.keys())
        unknown = sorted(sent.keys() - self._expected.keys())
        other = sorted(name for name in self._expected.keys() & sent.keys() if self._expected[name] != sent[name])
        problems = [
            f"{what}: {few(names, _NAMED_IN_ERROR)}"
            for what, names in (("missing", missing), ("unknown", unknown), ("of another shape", other))
            if names
        ]
        if problems:
            raise RunError(
                f"the weights sent for rollouts are not those of the model; {'; '.join(problems)}. The engine would "
                "keep old values there without an error."
            )


def version_of(step: int) -> str:
    """Name the weights of a step, counted from 1."""
    return f"step-{step}"


def step_of(version: str) -> int:
    """Return the step that a version names.

    >>> step_of(version_of(12))
    12
    """
    return int(version.removeprefix("step-"))


def _load(target: SyncTarget, weights: Callable[[], Iterable[Named]]) -> _Manifest:
    """Send the weights. If the engine cannot apply changes, send everything."""
    manifest = _Manifest()
    target.start_weight_update()
    try:
        target.load(manifest.noting(weights()))
    except DeltaMismatchError as error:
        if num_ranks() > 1:  # the other ranks gather each weight once
            raise
        log.warning("Sending all weights again: %s", error)
        manifest = _Manifest()
        target.start_weight_update()
        target.load(manifest.noting(weights()))
    return manifest


def refuse_other_version(target: SyncTarget, version: str) -> None:
    """Raise a RunError unless the engine uses the weights of a version."""
    used = target.weight_version()
    if used != version:
        raise OtherVersionError(
            f"the rollout engine uses the weights {used!r} instead of {version!r}. It was restarted, or another "
            "trainer sends weights to it."
        )


class _Manifest:
    """Records the name, shape and a checksum of each tensor that is sent."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.num_bytes = 0
        self._checksums: list[tuple[str, Tensor]] = []

    def noting(self, weights: Iterable[Named]) -> Iterator[Named]:
        for name, tensor in weights:
            if name in self.shapes:
                raise RunError(f"the weight {name} would be sent twice.")
            self.shapes[name] = tuple(tensor.shape)
            self.num_bytes += tensor.numel() * tensor.element_size()
            self._checksums.append((name, checksum(tensor)))
            yield name, tensor

    def record(self, step: int, seconds: float) -> SyncRecord:
        return SyncRecord(step, version_of(step), len(self.shapes), self.num_bytes, self.digest(), seconds)

    def digest(self) -> str:
        digest = hashlib.sha256()
        for name, number in self._checksums:
            digest.update(f"{name} {self.shapes[name]} {number.item()}\n".encode())
        return digest.hexdigest()[:16]


def checksum(tensor: Tensor) -> Tensor:
    """Hash the bits of a tensor on its device, position by position: two swapped values change it.

    >>> a = torch.tensor([1.0, 2.0])
    >>> bool(checksum(a) == checksum(a.clone())), bool(checksum(a) == checksum(a.flip(0)))
    (True, False)
    """
    flat = words_of(tensor.detach())
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK].long() % _PRIME
        place = torch.arange(start + 1, start + 1 + len(part), device=part.device) % 65_521
        total = (total * 31 + (part * place % _PRIME).sum()) % _PRIME
    return total


def words_of(tensor: Tensor) -> Tensor:
    """View the bits of a tensor as whole numbers, one per element. -0 and 0 differ; a NaN equals itself.

    >>> words_of(torch.tensor([0.0, -0.0])).tolist()
    [0, -2147483648]
    """
    return tensor.contiguous().view(-1).view(_WORDS[tensor.element_size()])
