"""The error model: four kinds of trouble, four ways to say it.

ConfigError   what the user asked for makes no sense. All problems are reported at once, each with its path, what was
              given, what is allowed and what to do. Nothing has run yet.
DataError     one example cannot be used. It names the example; a caller may count it and go on, never silently.
RunError      a run cannot go on: its numbers went wrong, or the machine has no room for it. It says what was kept.
assert        a programmer broke a promise between two rooms of the package. Users should never see one.
"""

import difflib
from collections.abc import Iterable

_FEW = 24

UNGIVEN = "unusable"
"""The reason of a DataError that nobody gave one."""


class VcsdError(Exception):
    """Base of the errors that are meant for users: print the message, not the traceback."""


class ConfigError(VcsdError, ValueError):
    """A configuration that cannot be run, with every problem found in it.

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
    """An example that cannot be used, and why; in one word too, and because of which file, for those who count them.

    >>> print(DataError("virl-00042", "the image 'a.png' is truncated. Download it again.", file="a.png"))
    example 'virl-00042': the image 'a.png' is truncated. Download it again.
    """

    def __init__(self, example_id: str, message: str, *, reason: str = UNGIVEN, file: str | None = None) -> None:
        self.example_id, self.message = example_id, message
        self.reason, self.file = reason, file
        super().__init__(f"example {example_id!r}: {message}")


class RunError(VcsdError, RuntimeError):
    """A run that had to stop, and why; what it has done so far is kept.

    >>> raise RunError("three steps in a row gave no finite loss. Their batches are in runs/a/inspect.")
    Traceback (most recent call last):
        ...
    vcsd.errors.RunError: three steps in a row gave no finite loss. Their batches are in runs/a/inspect.
    """


def did_you_mean(given: object, allowed: Iterable[str]) -> str:
    """A sentence that names the nearest allowed word or, when none is near, all of them if they are few.

    >>> did_you_mean("bata", ["alpha", "beta"])
    "Did you mean 'beta'?"
    >>> did_you_mean("xyz", ["alpha", "beta"])
    'Allowed: alpha, beta.'
    """
    words = list(allowed)
    near = difflib.get_close_matches(str(given), words, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Allowed: {', '.join(words)}." if len(words) <= _FEW else f"None of the {len(words)} allowed words is near."
