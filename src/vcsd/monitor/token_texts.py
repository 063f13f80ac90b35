"""The text of single tokens, for people to read."""

from __future__ import annotations


class TokenTexts:
    """The text of each token, looked up once. A token that is part of a character is shown as in the vocabulary."""

    def __init__(self, tokenizer: object) -> None:
        self._tokenizer, self._known = tokenizer, dict[int, str]()

    def of(self, token_id: int) -> str:
        """Return the text of a token, special ones included."""
        if token_id not in self._known:
            self._known[token_id] = self._text(token_id)
        return self._known[token_id]

    def _text(self, token_id: int) -> str:
        text = str(self._tokenizer.decode([token_id], skip_special_tokens=False))  # type: ignore[attr-defined]
        if text and "\ufffd" not in text:
            return text
        name = self._tokenizer.convert_ids_to_tokens(token_id)  # type: ignore[attr-defined]
        return str(name) if name else f"[{token_id}]"
