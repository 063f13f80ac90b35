"""The longest prompt that a model takes, and a fast check for texts that are far longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PretrainedConfig

_PIECE = 2**16
"""Characters that are tokenized at a time."""


def longest_prompt(config: PretrainedConfig, max_new_tokens: int) -> int | None:
    """Return the most tokens of a prompt that leave room for a response within the positions a model was trained for.

    If the response alone could fill all positions, return their number. None if the configuration does not give it.
    """
    return longest_within(getattr(config.get_text_config(), "max_position_embeddings", None), max_new_tokens)


def longest_within(positions: object, max_new_tokens: int) -> int | None:
    """Return the number of tokens of a prompt that leave room for a response; None if the positions are not known.

    >>> longest_within(4096, 1024), longest_within(512, 1024), longest_within(None, 1)
    (3072, 512, None)
    """
    if not isinstance(positions, int) or positions < 1:
        return None
    return positions - max_new_tokens if positions > max_new_tokens else positions


def within_model(settings: Mapping[str, Any], config: PretrainedConfig, max_new_tokens: int) -> dict[str, Any]:
    """Return prompt settings with the model's own limit if they have none."""
    return {**settings, "max_tokens": settings.get("max_tokens") or longest_prompt(config, max_new_tokens)}


def is_far_longer(tokenizer: Any, text: str, max_tokens: int) -> bool:
    """Whether a text has more than twice as many tokens as allowed, found without tokenizing all of a huge text.

    A text cut into pieces has a few tokens more than the whole one, far less than twice as many. The caller counts
    shorter texts exactly.
    """
    num_tokens = 0
    for start in range(0, len(text) if len(text) > _PIECE else 0, _PIECE):
        num_tokens += len(tokenizer.encode(text[start : start + _PIECE], add_special_tokens=False))
        if num_tokens > 2 * max_tokens:
            return True
    return False
