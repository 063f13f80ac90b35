"""The merges of a byte-pair tokenizer, learnt so that every word of a list is one token."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Merge: TypeAlias = tuple[str, str]


def learn_merges(words: Iterable[str]) -> list[Merge]:
    """Join the pair of neighbours that most words have, over and over, until every word is whole.

    A tokenizer applies merges in this order too, so it makes of each word what is made of it here. Of pairs in equally
    many places the first in the alphabet is taken: the outcome depends on the words alone, not on their order.

    >>> learn_merges(["red", "are"])
    [('r', 'e'), ('a', 're'), ('re', 'd')]
    """
    spelled = [tuple(word) for word in sorted(set(words))]
    merges: list[Merge] = []
    while counts := Counter(pair for pieces in spelled for pair in pairwise(pieces)):
        merge = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(merge)
        spelled = [_joined(pieces, merge) for pieces in spelled]
    return merges


def _joined(pieces: tuple[str, ...], merge: Merge) -> tuple[str, ...]:
    """The pieces of a word with every such pair made one, from left to right.

    >>> _joined(("a", "b", "a", "b", "b"), ("a", "b"))
    ('ab', 'ab', 'b')
    """
    joined: list[str] = []
    for piece in pieces:
        if joined and (joined[-1], piece) == merge:
            joined[-1] += piece
        else:
            joined.append(piece)
    return tuple(joined)
