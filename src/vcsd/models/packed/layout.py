"""The layout of a packed row: which segment continues which, and how tokens are arranged for each kind of layer.

A row is a forest of segments. A segment continues its parent: a response continues its prompt, so several responses
share one prompt. Token-wise layers need no layout; layers that mix tokens read it.

    segment   0          1     2        3          4
    row      [prompt A | A.1 | A.2    | prompt B | B.1 ]
    parent    -          0     0        -          3

Shape legend: T tokens in the row, M rows after a gather, N segments of one level, L the longest of them, K taps of the
short convolution.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from vcsd.kernels.device import sent
from vcsd.kernels.sources import Sources


@dataclass(frozen=True)
class Segment:
    """A run of tokens that continues another segment, or nothing (parent None)."""

    length: int
    parent: int | None


class Gather:
    """Copies rows: out[m] = x[index[m]], or a zero row where index[m] is num_sources.

    A row that is copied several times receives the sum of several gradients. It is computed in float32, in a fixed
    order and without atomics, so that gradients are bitwise reproducible on any device.
    """

    def __init__(self, index_M: Tensor, num_sources: int, device: torch.device) -> None:
        self.num_sources, self.device = num_sources, device
        self._cpu_index_M = index_M
        self.index_M = sent(index_M.clamp(max=num_sources - 1), device)
        zeros = (index_M == num_sources).nonzero()[:, 0]
        self.zeros = sent(zeros, device) if len(zeros) else None

    def __call__(self, x: Tensor) -> Tensor:
        """Gather along the first dimension of x (num_sources, ...)."""
        if not (x.requires_grad and torch.is_grad_enabled()):
            return self.copies(x)
        out: Tensor = _Gather.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def copies(self, x: Tensor) -> Tensor:
        """The gathered rows, without a gradient."""
        out = x.index_select(0, self.index_M)
        return out if self.zeros is None else out.index_fill_(0, self.zeros, 0)

    @cached_property
    def references(self) -> list[tuple[Tensor, Tensor]]:
        """For each number of copies c: the rows copied c times (R,), and the places of their copies (R * c,)."""
        counts = torch.bincount(self._cpu_index_M, minlength=self.num_sources + 1)[: self.num_sources]
        starts = counts.cumsum(0) - counts
        places = self._cpu_index_M.argsort(stable=True)
        references = []
        for count in sorted(set(counts.tolist())):
            rows = (counts == count).nonzero()[:, 0]
            if count:
                where = places[(starts[rows][:, None] + torch.arange(count)).flatten()]
                references.append((sent(rows, self.device), sent(where, self.device)))
        return references

    def add_up(self, grad: Tensor) -> Tensor:
        """The gradient of every source row: the sum over its copies, in the order of their places."""
        if len(self.references) == 1 and len(self.references[0][0]) == self.num_sources == len(self.references[0][1]):
            return grad.index_select(0, self.references[0][1])
        out = grad.new_zeros(self.num_sources, *grad.shape[1:])
        wide = torch.promote_types(grad.dtype, torch.float32)
        for rows, where in self.references:
            copies = grad.index_select(0, where).view(len(rows), -1, *grad.shape[1:])
            out.index_copy_(0, rows, copies.sum(1, dtype=wide).to(grad.dtype))
        return out


class _Context(Protocol):
    gather: Gather


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, gather: Gather) -> Tensor:
        ctx.gather = gather
        return gather.copies(x)

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.gather.add_up(grads[0]), None


@dataclass(frozen=True, eq=False)
class Level:
    """Segments of equal depth as a right-padded batch. A zero row is an exact no-op of the delta rule."""

    batch: Gather
    shape_NL: tuple[int, int]
    fork: Gather | None
    """From the segments of the level above to the segments that continue them; None for the roots."""
    is_real_NS: Tensor
    """Which keys are tokens and not padding: those of the ancestors, level by level, then the level's own."""

    @cached_property
    def sees_NLS(self) -> Tensor:
        """Which keys each token sees: the tokens of its ancestors, and its own segment up to itself."""
        num_segments, longest = self.shape_NL
        own = torch.ones(longest, longest, dtype=torch.bool, device=self.is_real_NS.device).tril()
        ancestors_NS = self.is_real_NS[:, None, : self.is_real_NS.shape[1] - longest]
        return torch.cat([ancestors_NS.expand(-1, longest, -1), own.expand(num_segments, -1, -1)], 2)


class Layout:
    """Where every token of a packed row is, and which tokens come before it.

    Not a dataclass: FSDP2 rebuilds dataclasses among a layer's arguments, so that `seen` would count on a copy.
    """

    def __init__(self, segments: list[Segment], device: torch.device, num_taps: int = 4) -> None:
        assert segments, "a row without segments"
        assert all(segment.length > 0 for segment in segments), "an empty segment"
        self.segments, self.device, self.num_taps = segments, device, num_taps
        self.num_tokens = sum(segment.length for segment in segments)
        self.lengths_q = [segment.length for segment in segments]
        self.lengths_k = [len(path) for path in self._paths]
        self.seen: Counter[str] = Counter()
        """How many layers of each kind mixed tokens by this layout in the current forward."""

    @cached_property
    def _own(self) -> list[Tensor]:
        """Each segment's rows."""
        return list(torch.split(torch.arange(self.num_tokens), self.lengths_q))

    @cached_property
    def _paths(self) -> list[Tensor]:
        """Each segment's rows preceded by its ancestors' rows: what its last token sees."""
        paths: list[Tensor] = []
        for segment, own in zip(self.segments, self._own, strict=True):
            paths.append(own if segment.parent is None else torch.cat([paths[segment.parent], own]))
        return paths

    @cached_property
    def keys(self) -> Gather:
        """The keys and values that each segment sees, one segment after the other."""
        return Gather(torch.cat(self._paths), self.num_tokens, self.device)

    @cached_property
    def cu_q(self) -> Tensor:
        """Where each segment's queries begin, and the end."""
        return self._cumulative(self.lengths_q)

    @cached_property
    def cu_k(self) -> Tensor:
        """Where each segment's gathered keys begin, and the end."""
        return self._cumulative(self.lengths_k)

    @cached_property
    def _tap_rows(self) -> tuple[Tensor, Tensor]:
        """The rows of all segments, each preceded by the K - 1 before it (M,), and where each token's own is (T,)."""
        before = self.num_tokens + torch.zeros(self.num_taps - 1, dtype=torch.long)
        rows = [
            torch.cat([before, path])[-(len(own) + self.num_taps - 1) :]
            for path, own in zip(self._paths, self._own, strict=True)
        ]
        starts = torch.arange(len(rows)).repeat_interleave(torch.tensor(self.lengths_q)) + 1
        return torch.cat(rows), torch.arange(self.num_tokens) + (self.num_taps - 1) * starts

    @cached_property
    def taps(self) -> tuple[Gather, Gather]:
        """Gathers each segment with the K - 1 tokens before it (zeros before a root), and the inverse."""
        index_M, back_T = self._tap_rows
        return Gather(index_M, self.num_tokens, self.device), Gather(back_T, len(index_M), self.device)

    @cached_property
    def sources(self) -> Sources:
        """The last K tokens of every token's path, for a kernel that does the gathering."""
        index_M, back_T = self._tap_rows
        source_TK = index_M[back_T[:, None] + torch.arange(1 - self.num_taps, 1)]
        return Sources(source_TK.masked_fill(source_TK == self.num_tokens, -1), self.device)

    @cached_property
    def levels(self) -> list[Level]:
        """The segments by depth: roots first, then the segments that continue them."""
        depths: list[int] = []
        for segment in self.segments:
            depths.append(0 if segment.parent is None else depths[segment.parent] + 1)
        levels: list[Level] = []
        for depth in range(max(depths) + 1):
            levels.append(self._level(depths, depth, levels[-1] if levels else None))
        return levels

    @property
    def num_pairs(self) -> int:
        """(query, key) pairs of all segments, each with its path."""
        return sum(q * k for q, k in zip(self.lengths_q, self.lengths_k, strict=True))

    @cached_property
    def num_padded_pairs(self) -> int:
        """The same if the segments of a level are padded to the longest."""
        return sum(level.shape_NL[1] * level.is_real_NS.numel() for level in self.levels)

    @cached_property
    def unpad(self) -> Gather:
        """From all levels' batches, flattened and concatenated, back to the row."""
        there = torch.cat([level.batch._cpu_index_M for level in self.levels])
        place_T = torch.empty(self.num_tokens + 1, dtype=torch.long)
        place_T[there] = torch.arange(len(there))
        return Gather(place_T[:-1], len(there), self.device)

    def _level(self, depths: list[int], depth: int, parent_level: Level | None) -> Level:
        members = [i for i, d in enumerate(depths) if d == depth]
        above = {i: slot for slot, i in enumerate(i for i, d in enumerate(depths) if d == depth - 1)}
        longest = max(len(self._own[i]) for i in members)
        index_NL = torch.full((len(members), longest), self.num_tokens)
        for row, i in zip(index_NL, members, strict=True):
            row[: len(self._own[i])] = self._own[i]
        parents = [above[parent] for i in members if (parent := self.segments[i].parent) is not None]
        fork = Gather(torch.tensor(parents), len(above), self.device) if above else None
        is_real = sent(index_NL < self.num_tokens, self.device)
        if fork is not None and parent_level is not None:
            is_real = torch.cat([parent_level.is_real_NS.index_select(0, fork.index_M), is_real], 1)
        return Level(
            batch=Gather(index_NL.flatten(), self.num_tokens, self.device),
            shape_NL=(len(members), longest),
            fork=fork,
            is_real_NS=is_real,
        )

    def _cumulative(self, lengths: list[int]) -> Tensor:
        return sent(torch.tensor([0, *lengths]).cumsum(0).to(torch.int32), self.device)
