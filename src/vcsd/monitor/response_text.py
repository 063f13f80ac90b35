"""Two signs of collapse in a rollout: its response repeats itself, or leaves the language of its prompt.

Both are decided per rollout, and the monitor reports the share of rollouts. Neither needs a model or a word list.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

NGRAM = 6
"""Consecutive tokens that count as a phrase. Shorter phrases recur in any ordinary list or derivation."""

TAIL_TOKENS = 256
"""Tokens at the end of a response that are checked. Once a loop begins, it lasts to the end."""

MIN_PHRASES = 32
"""Responses with fewer phrases are not judged: a short one may legitimately repeat a word."""

REPEATED_SHARE = 0.5
"""A rollout is repetitive if at least this share of the tail's phrases occurred before."""


def is_repetitive(token_ids: Sequence[Hashable]) -> bool:
    """Whether at least half the phrases in the last 256 tokens occurred earlier in the same response.

    Uses tokens rather than words, because Chinese has no spaces and a loop may consist of symbols. It misses endless
    text in which something changes, such as counting.

    >>> is_repetitive([5, 6, 7] * 20), is_repetitive(list(range(60))), is_repetitive([5] * 10)
    (True, False, False)
    """
    phrases = list(zip(*(token_ids[start:] for start in range(NGRAM)), strict=False))
    first_of_tail = max(0, len(phrases) - TAIL_TOKENS)
    enough = REPEATED_SHARE * (len(phrases) - first_of_tail)
    if len(phrases) < MIN_PHRASES or len(phrases) - len(set(phrases)) < enough:  # too few repeated in the whole
        return False
    seen = set(phrases[:first_of_tail])
    num_repeated = 0
    for phrase in phrases[first_of_tail:]:
        num_repeated += phrase in seen
        seen.add(phrase)
    return num_repeated >= enough


_SAME_SCRIPT = {"CJK": "HAN", "HENTAIGANA": "KANA", "HIRAGANA": "KANA", "KATAKANA": "KANA", "FULLWIDTH": "LATIN"}
_NO_SCRIPT = {
    *("GREEK", "OHM", "MICRO", "KELVIN", "ANGSTROM", "FEMININE", "MASCULINE", "ALEF", "BET", "GIMEL", "DALET"),
    *("MATHEMATICAL", "DOUBLE-STRUCK", "BLACK-LETTER", "SCRIPT", "PLANCK", "EULER", "INFORMATION", "MODIFIER"),
    *("SUPERSCRIPT", "TURNED", "ROMAN", "CARON", "IDEOGRAPHIC", "KATAKANA-HIRAGANA", "MASU", "VERTICAL", "VEDIC"),
}
"""First words of the names of letters used in formulas or with several scripts: Common, Inherited, and Greek."""


@cache
def script_of(character: str) -> str | None:
    """Return the script of a letter; None for other characters and for letters used with every script.

    The first word of a letter's Unicode name is its script, with a few dozen exceptions. Hiragana and katakana count
    as one script.

    >>> [script_of(character) for character in "aйя中あツ"]
    ['LATIN', 'CYRILLIC', 'CYRILLIC', 'HAN', 'KANA', 'KANA']
    >>> [script_of(character) for character in "7 +πℝ𝑥。"]
    [None, None, None, None, None, None, None]
    """
    if not unicodedata.category(character).startswith("L"):
        return None
    words = unicodedata.name(character, "").split(" ")
    word = words[1] if words[0] == "HALFWIDTH" else words[0]
    return None if not word or word in _NO_SCRIPT else _SAME_SCRIPT.get(word, word)


def scripts(text: str) -> frozenset[str]:
    """Return the scripts whose letters occur in a text.

    >>> sorted(scripts("Solve 求 x² = π."))
    ['HAN', 'LATIN']
    """
    return frozenset(script for character in set(text) if (script := script_of(character)) is not None)


def has_drifted(text: str, prompt_scripts: Iterable[str]) -> bool:
    """Whether a text has letters of a script that its prompt lacks.

    Approximates the paper's language drift, the share of rollouts with tokens of another language. It misses a change
    of language within a script, such as English to French. A prompt without letters has no language to leave.

    >>> has_drifted("The area 面积 is 7.", {"LATIN"}), has_drifted("α = 7 cm", {"LATIN"}), has_drifted("七", ())
    (True, False, False)
    """
    allowed = set(prompt_scripts)
    return bool(allowed) and not scripts(text) <= allowed
