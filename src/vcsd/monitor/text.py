"""Two signs of collapse that can be read off a rollout: it repeats itself, or it leaves the language of its prompt.

Both are decided per rollout, and the monitor reports the share of rollouts. Neither needs a model or a word list.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

NGRAM = 6
"""Tokens in a row that count as a phrase. Shorter ones recur in any honest list or derivation."""

TAIL_TOKENS = 256
"""The end of a rollout, which is looked at. A loop, once begun, lasts to the end, after however much sound text."""

MIN_PHRASES = 32
"""Rollouts with fewer phrases are not judged: a short answer may well be one word, twice."""

REPEATED_SHARE = 0.5
"""The share of phrases, among those of the tail, that occurred before, from which on a rollout is repetitive."""


def is_repetitive(token_ids: Sequence[Hashable]) -> bool:
    """Whether at least half the phrases in the rollout's last 256 tokens occurred earlier in the same rollout.

    On tokens rather than words: Chinese has no spaces, and a loop may be of symbols. Not seen: endless text in which
    something changes, such as counting.

    >>> is_repetitive([5, 6, 7] * 20), is_repetitive(list(range(60))), is_repetitive([5] * 10)
    (True, False, False)
    """
    phrases = [tuple(token_ids[start : start + NGRAM]) for start in range(len(token_ids) - NGRAM + 1)]
    if len(phrases) < MIN_PHRASES:
        return False
    first_of_tail = max(0, len(phrases) - TAIL_TOKENS)
    seen = set(phrases[:first_of_tail])
    num_repeated = 0
    for phrase in phrases[first_of_tail:]:
        num_repeated += phrase in seen
        seen.add(phrase)
    return num_repeated >= REPEATED_SHARE * (len(phrases) - first_of_tail)


_SAME_SCRIPT = {"CJK": "HAN", "HENTAIGANA": "KANA", "HIRAGANA": "KANA", "KATAKANA": "KANA", "FULLWIDTH": "LATIN"}
_NO_SCRIPT = {
    *("GREEK", "OHM", "MICRO", "KELVIN", "ANGSTROM", "FEMININE", "MASCULINE", "ALEF", "BET", "GIMEL", "DALET"),
    *("MATHEMATICAL", "DOUBLE-STRUCK", "BLACK-LETTER", "SCRIPT", "PLANCK", "EULER", "INFORMATION", "MODIFIER"),
    *("SUPERSCRIPT", "TURNED", "ROMAN", "CARON", "IDEOGRAPHIC", "KATAKANA-HIRAGANA", "MASU", "VERTICAL", "VEDIC"),
}
"""Letters that belong to formulas or to several scripts: Unicode's Common and Inherited, and Greek."""


@cache
def script_of(character: str) -> str | None:
    """The script of a letter; None for what is no letter, or is used with every script.

    It is the first word of the letter's Unicode name, which is its script but for a few dozen signs. Hiragana and
    katakana count as one.

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
    """The scripts whose letters occur in a text.

    >>> sorted(scripts("Solve 求 x² = π."))
    ['HAN', 'LATIN']
    """
    found = {script_of(character) for character in set(text)}
    return frozenset(script for script in found if script is not None)


def has_drifted(text: str, prompt_scripts: Iterable[str]) -> bool:
    """Whether a text has a letter of a script that its prompt does not have.

    An approximation of the paper's language drift, the share of rollouts with tokens of another language: a change of
    language within a script, English to French, is not seen. A prompt without letters has no language to leave.

    >>> has_drifted("The area 面积 is 7.", {"LATIN"}), has_drifted("α = 7 cm", {"LATIN"}), has_drifted("七", ())
    (True, False, False)
    """
    allowed = set(prompt_scripts)
    return bool(allowed) and not scripts(text) <= allowed
