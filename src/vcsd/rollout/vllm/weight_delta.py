"""Sends only the values that changed since the last sync; the receiver rebuilds each tensor bit for bit.

At a learning rate of 2e-6 an update moves most float32 weights by less than bfloat16 resolves. The sender compares each
tensor bit for bit with the copy it sent last, and makes the smallest of three patches:

    positions   the place (int32) and the value of each changed element
    mask        one bit per element, and the values of the changed ones
    whole       the tensor itself, also for a tensor that was never sent

Every patch carries a checksum of the whole tensor. The receiver rebuilds the tensor from its own copy and refuses
another checksum; the sender then starts over with whole tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from vcsd.rollout.vllm.weight_sync import DeltaMismatchError, checksum, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from vcsd.rollout.vllm.weight_sync import Named

Form = Literal["whole", "positions", "mask"]

_MOST_POSITIONS = 2**31 - 1
_BITS = 8


@dataclass(frozen=True, eq=False)
class WeightPatch:
    """What changed in one tensor. `places` holds positions or the mask; it is None if the tensor is whole."""

    name: str
    form: Form
    values: Tensor
    places: Tensor | None
    checksum: int

    @property
    def num_bytes(self) -> int:
        """Bytes of values and places."""
        places = 0 if self.places is None else self.places.numel() * self.places.element_size()
        return self.values.numel() * self.values.element_size() + places


class DeltaSender:
    """Remembers what was sent, on the device of the weights, and makes patches."""

    def __init__(self) -> None:
        self._sent: dict[str, Tensor] = {}

    def forget(self) -> None:
        """Send whole tensors next time: the receiver's copies may be wrong."""
        self._sent.clear()

    @torch.no_grad()
    def patches(self, weights: Iterable[Named]) -> Iterator[WeightPatch]:
        """Yield one patch per tensor, and update its copy before it is sent: after a failure, call `forget`."""
        for name, tensor in weights:
            patch = make_patch(name, tensor.detach(), self._sent.get(name))
            self._remember(name, tensor.detach())
            yield patch

    def _remember(self, name: str, tensor: Tensor) -> None:
        known = self._sent.get(name)
        if known is not None and known.shape == tensor.shape and known.dtype == tensor.dtype:
            known.copy_(tensor)
        else:
            self._sent[name] = tensor.clone()


class DeltaReceiver:
    """Keeps the tensors that arrived, and applies patches to them."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    @torch.no_grad()
    def apply(self, patch: WeightPatch) -> Named:
        """Return the whole tensor after a patch. Raise a DeltaMismatchError if it is not the sender's."""
        if patch.form == "whole":
            self._tensors[patch.name] = patch.values
        else:
            self._change(patch)
        tensor = self._tensors[patch.name]
        if int(checksum(tensor)) != patch.checksum:
            del self._tensors[patch.name]
            raise DeltaMismatchError(f"the weight {patch.name}, rebuilt from changes, is not the one sent.")
        return patch.name, tensor

    def _change(self, patch: WeightPatch) -> None:
        known = self._tensors.get(patch.name)
        if known is None or patch.places is None:
            raise DeltaMismatchError(
                f"only changes of the weight {patch.name} were sent, but the receiver has no copy of it."
            )
        words = words_of(known)
        places = patch.places.long() if patch.form == "positions" else _unpacked(patch.places, words.numel())
        words[places] = words_of(patch.values)


def make_patch(name: str, tensor: Tensor, sent: Tensor | None) -> WeightPatch:
    """Compare a tensor with the copy that was sent, and choose the smallest form."""
    number = int(checksum(tensor))
    if sent is None or sent.shape != tensor.shape or sent.dtype != tensor.dtype:
        return WeightPatch(name, "whole", tensor, None, number)
    flat = tensor.contiguous().view(-1)
    is_changed = words_of(tensor) != words_of(sent)
    num_changed, size = int(is_changed.sum()), tensor.element_size()
    costs: dict[Form, int] = {
        "positions": num_changed * (4 + size) if flat.numel() <= _MOST_POSITIONS else 2**62,
        "mask": num_changed * size + -(-flat.numel() // _BITS),
        "whole": flat.numel() * size,
    }
    form = min(costs, key=lambda form: costs[form])
    if form == "whole":
        return WeightPatch(name, form, tensor, None, number)
    positions = is_changed.nonzero()[:, 0]
    places = positions.int() if form == "positions" else _packed(is_changed)
    return WeightPatch(name, form, flat[positions], places, number)


def _packed(mask: Tensor) -> Tensor:
    """Pack booleans into bytes, the first in the lowest bit."""
    padded = torch.nn.functional.pad(mask, (0, -len(mask) % _BITS)).view(-1, _BITS)
    shifts = torch.arange(_BITS, dtype=torch.uint8, device=mask.device)
    return (padded.to(torch.uint8) << shifts).sum(-1, dtype=torch.uint8)


def _unpacked(packed: Tensor, length: int) -> Tensor:
    shifts = torch.arange(_BITS, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] >> shifts) & 1).bool().view(-1)[:length]
