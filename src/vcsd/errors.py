"""The error model: four kinds of failure.

ConfigError   The configuration is invalid. Reports all problems at once, each with its key, its value, what is allowed
              and how to fix it. Nothing has run yet.
DataError     One example cannot be used. Names the example; a caller may count it and continue, but never silently.
RunError      A run cannot continue, because of its numbers or the machine. Says what was saved.
assert        A bug: one part of the package broke a promise to another. Users should never see one.
"""

import difflib
from collections.abc import Iterable

_FEW = 24
_MAX_SHOWN = 60

UNGIVEN = "unusable"
"""The default reason of a DataError."""


class VcsdError(Exception):
    """Base class of errors meant for users: print the message, not the traceback."""


class ConfigError(VcsdError, ValueError):
    """An invalid configuration, with all its problems.

    >>> print(ConfigError(["method.beta = 1.7 is outside [0, 1].", "method.gamma is not a key."]))
    2 problems:
      method.beta = 1.7 is outside [0, 1].
      method.gamma is not a key.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        assert self.problems, "a ConfigError needs at least one problem"
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(self.problems[0] if len(self.problems) == 1 else f"{len(self.problems)} problems:{lines}")


class DataError(VcsdError, ValueError):
    """An example that cannot be used. `reason` is a word to count by; `file` is the file at fault.

    >>> print(DataError("virl-00042", "the image 'a.png' is truncated. Download it again.", file="a.png"))
    example 'virl-00042': the image 'a.png' is truncated. Download it again.
    """

    def __init__(self, example_id: str, message: str, *, reason: str = UNGIVEN, file: str | None = None) -> None:
        self.example_id, self.message = example_id, message
        self.reason, self.file = reason, file
        super().__init__(f"example {example_id!r}: {message}")


class RunError(VcsdError, RuntimeError):
    """A run that had to stop. Everything saved so far is kept.

    >>> raise RunError("three steps in a row gave no finite loss. Their batches are in runs/a/inspect.")
    Traceback (most recent call last):
        ...
    vcsd.errors.RunError: three steps in a row gave no finite loss. Their batches are in runs/a/inspect.
    """


class NoRoomError(RunError):
    """Out of memory, on one rank or all of them. Every rank raises it, before the step has changed any weight."""


def shown(value: object, limit: int = _MAX_SHOWN) -> str:
    """Format a value for a message: short, on one line, whatever it is.

    >>> shown("a" * 100, limit=12), shown(10**5000)
    ("'aaaaaaaa...", '(a value of type int that is too large to show)')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a thousand lists in each other
        return f"(a value of type {type(value).__name__} that is too large to show)"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def did_you_mean(given: object, allowed: Iterable[str]) -> str:
    """Suggest the nearest allowed word, or list all of them if none is near and they are few.

    >>> did_you_mean("bata", ["alpha", "beta"])
    "Did you mean 'beta'?"
    >>> did_you_mean("xyz", ["alpha", "beta"])
    'Allowed: alpha, beta.'
    """
    words = list(allowed)
    near = difflib.get_close_matches(str(given), words, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return (
        f"Allowed: {', '.join(words)}." if len(words) <= _FEW else f"None of the {len(words)} allowed words is similar."
    )
