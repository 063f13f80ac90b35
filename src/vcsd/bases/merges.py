"""Byte-pair merges that make every word of a list one token."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Merge: TypeAlias = tuple[str, str]


def learn_merges(words: Iterable[str]) -> list[Merge]:
    """Repeatedly merge the most frequent pair of neighbours until every word is one token.

    A tokenizer applies merges in the same order, so it gets the same tokens. Ties go to the first pair in alphabetical
    order, so that the result depends only on the words and not on their order.

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
    """Apply a merge to the pieces of a word, from left to right.

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
