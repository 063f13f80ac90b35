"""Python list literals in cells of benchmark files and in answers."""

from __future__ import annotations

import ast


def read_list(text: str) -> list[object]:
    """Return the values of a list or tuple literal. Raises ValueError for any other text, also untrusted text.

    >>> read_list(" ['a', 2] ")
    ['a', 2]
    """
    try:
        values = ast.literal_eval(text.strip())
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:  # the last two: thousands of brackets
        raise ValueError(str(error) or "it is nested too deeply") from error
    if not isinstance(values, list | tuple):
        raise ValueError(f"it is a {type(values).__name__}")
    return list(values)
