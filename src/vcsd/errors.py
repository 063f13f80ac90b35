"""The error model: four kinds of failure.

ConfigError   The configuration is invalid. Reports all problems at once, each with its key, its value, what is allowed
              and how to fix it. Nothing has run yet.
DataError     One example cannot be used. Names the example; a caller may count it and continue, but never silently.
RunError      A run cannot continue, because of its numbers or the machine. Says what was saved.
assert        A bug: one part of the package broke a promise to another. Users should never see one.

Most errors are raised by code that recipes and Python share, and name a key of a recipe, such as `trainer.output_dir`.
`said_in_python` rewords them for callers of VCSDTrainer; a test checks that no key is left.
"""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

_FEW = 24
_FEW_NAMES = 5
_MOST_ENTRIES = 2000
"""Entries of a folder that are compared with a mistyped path."""

_MAX_SHOWN = 60
_MAX_PATH = 200
_MAX_ID = 200
_MAX_MESSAGE = 1500
"""Characters of a DataError's message: one is printed, or listed in a file, for every row that cannot be used."""

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
        self.example_id = example_id
        # It may quote a row, a library or a chat template, at any length.
        self.message = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]} ..."
        self.reason, self.file = reason, file
        super().__init__(f"example {shown(example_id, _MAX_ID)}: {self.message}")


class RunError(VcsdError, RuntimeError):
    """A run that had to stop. Everything saved so far is kept.

    >>> raise RunError("three steps in a row gave no finite loss. Their batches are in runs/a/inspect.")
    Traceback (most recent call last):
        ...
    vcsd.errors.RunError: three steps in a row gave no finite loss. Their batches are in runs/a/inspect.
    """


class NoRoomError(RunError):
    """Out of memory, on one rank or all of them. Every rank raises it, before the step has changed any weight."""


def is_checkout() -> bool:
    """Whether the package runs from a checkout, which has the tested versions, and not from a wheel."""
    return (Path(__file__).parents[2] / "constraints.txt").is_file()


def install_command(extra: str) -> str:
    """Return the command that installs an extra; in a checkout with the tested versions.

    >>> install_command("peft")
    "pip install -c constraints.txt -e '.[peft]'"
    """
    return f"pip install -c constraints.txt -e '.[{extra}]'" if is_checkout() else f"pip install 'vcsd[{extra}]'"


def shown(value: object, limit: int = _MAX_SHOWN) -> str:
    """Format a value for a message: short, on one line, whatever it is.

    >>> shown("a" * 100, limit=12), shown(10**5000)
    ("'aaaaaaaa...", '(a value of type int that is too large to show)')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with thousands of digits, a thousand nested lists
        return f"(a value of type {type(value).__name__} that is too large to show)"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def few(names: Sequence[str], most: int) -> str:
    """List the first few names, and count the others.

    >>> few(["a", "b", "c", "d", "e"], 3)
    'a, b, c and 2 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(given: object, allowed: Iterable[str]) -> str:
    """Suggest the nearest allowed word, or list all of them if none is near and they are few.

    >>> did_you_mean("bata", ["alpha", "beta"])
    "Did you mean 'beta'?"
    >>> did_you_mean("Blnk", ["BLINK", "MMStar"])
    "Did you mean 'BLINK'?"
    >>> did_you_mean("xyz", ["alpha", "beta"])
    'Allowed: alpha, beta.'
    """
    words = list(allowed)
    by_lower = {word.lower(): word for word in words}
    near = difflib.get_close_matches(str(given), words, n=1)
    near = near or [by_lower[word] for word in difflib.get_close_matches(str(given).lower(), by_lower, n=1)]
    if near:
        return f"Did you mean {near[0]!r}?"
    return (
        f"Allowed: {', '.join(words)}." if len(words) <= _FEW else f"None of the {len(words)} allowed words is similar."
    )


def nearest_path(path: str, *, wants_file: bool = False) -> str:
    """Return a sentence that names the existing folder nearest to a path, or the nearest file; empty if none is near.

    Each part of the path that does not exist is replaced by the most similar name. Where none is similar, the sentence
    says what the folder holds.
    """
    if (similar := similar_path(path, wants_file=wants_file)) is not None:
        return f" Did you mean {similar!r}?"
    reached, num_missing = _follow(path, wants_file=wants_file)
    has_start = reached not in (Path(), Path(reached.anchor))
    return _holds(reached, wants_file=wants_file) if num_missing and has_start else ""


def similar_path(path: str, *, wants_file: bool = False) -> str | None:
    """Return the existing folder, or file, whose parts are all similar to those of a path; None if there is none."""
    reached, num_missing = _follow(path, wants_file=wants_file)
    return None if num_missing or reached == Path() else _written(path, reached)


def _follow(path: str, *, wants_file: bool) -> tuple[Path, int]:
    """Follow a path, or similar names where a part is missing. Return how far it leads and how many parts are left."""
    parts = expanded(path).parts
    reached = Path(parts[0]) if parts and Path(parts[0]).is_absolute() else Path()
    rest = parts[1:] if reached.is_absolute() else parts
    for place, part in enumerate(rest):
        following = _step(reached, part, wants_file=wants_file and place == len(rest) - 1)
        if following is None:
            return reached, len(rest) - place
        reached = following
    return reached, 0


def refuse_missing_folder(folder: Path) -> None:
    """Raise a ConfigError that names the nearest folder if there is none at a path."""
    if not (is_folder(folder) or is_file(folder)):
        raise ConfigError([f"there is no folder {shown(str(folder), _MAX_PATH)}.{nearest_path(str(folder))}"])


def first_part_exists(path: str) -> bool:
    """Whether the first part of a path is a folder here, so that no model of the hub is meant."""
    first = expanded(path).parts[:1]
    return bool(first) and is_folder(Path(first[0]))


def expanded(path: str) -> Path:
    """Return a path with its ~ expanded, if that is possible."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # ~nobody
        return Path(path)


def _step(folder: Path, name: str, *, wants_file: bool) -> Path | None:
    """Return the entry of this name, else the most similar one; None if none is similar."""
    if name == ".." or (is_folder(folder / name) and not wants_file):
        return folder / name
    names = _names(folder, wants_file=wants_file)
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return folder / by_lower[close[0]] if close else None


def _holds(folder: Path, *, wants_file: bool) -> str:
    names = _names(folder, wants_file=wants_file)
    if not names:
        return f" The nearest folder is {str(folder)!r}."
    return f" {str(folder)!r} holds {few(names, _FEW_NAMES)}."


def _names(folder: Path, *, wants_file: bool) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        chosen = [each.name for each in islice(entries, _MOST_ENTRIES) if wants_file or each.is_dir()]
        return sorted(name for name in chosen if not name.startswith("."))
    return []


def _written(path: str, folder: Path) -> str:
    """Write a path the way the user does: with ./ or ~ if they did."""
    if path.startswith("~"):
        with suppress(ValueError, RuntimeError):
            return str(Path("~") / folder.relative_to(Path.home()))
    return f"./{folder}" if path.startswith("./") else str(folder)


def is_folder(path: Path) -> bool:
    """Whether a folder exists; False for a name that no folder can have."""
    try:
        return path.is_dir()
    except OSError:  # a name that is too long
        return False


def is_file(path: Path) -> bool:
    """Whether a file exists; False for a name that no file can have."""
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


_MAX_PIXELS = "max_pixels (processing_class=load_processor(FOLDER, max_pixels=N))"
_MAX_NEW_TOKENS = "max_new_tokens (rollout=RolloutSettings(Sampling(N), 8))"

_PHRASES = {
    "vcsd train RECIPE --from-last-good resumes there; add guard=warn to continue nevertheless": "trainer.train(FOLDER "
    "OF THE CHECKPOINT) resumes there; monitors=[Watch(..., stops=False)] only warns",
    "set data.images to the folder that they start from": "start Python in the folder that they start from",
    "Set data.images to the folder of the images; it may be the data folder itself, if a link in it leads elsewhere "
    "and you trust that": "Move it there, or pass rows instead of a file",
    ", or set data.images": "",
    "For data without images, set data.columns.images to null": "For data without images, give each row 'images': []",
    "Leave such rows out (data.text_only=drop)": "Leave such rows out",
    "or name other columns with data.columns": "or rename the columns",
    "set data.columns.id to null to name rows by their number": "leave the ids out to name rows by their number",
    "Raise data.max_prompt_tokens": "Raise max_tokens in prompt_settings",
    "raise data.max_skipped_share": "pass skips=Skips(FILE, max_share=SHARE)",
    ", or its name as data.split": "",
    "data.path = ": "train_dataset = ",
    "Lower model.max_pixels or rollout.max_new_tokens": f"Lower {_MAX_PIXELS} or {_MAX_NEW_TOKENS}",
    "lower model.max_pixels": f"lower {_MAX_PIXELS}",
    "Lower rollout.vllm_memory_share or model.max_pixels": f"Lower memory_share in VLLMSettings or {_MAX_PIXELS}",
    "model.dither": "dither",
    "lora.rank: 32": "peft_config=LoraConfig(r=32)",
    "Set evaluation.every and evaluation.benchmarks in the recipe.": "Score the run with `vcsd eval OUTPUT_DIR`.",
    "questions are asked as the recipe's evaluation section says": "`vcsd eval OUTPUT_DIR` asks questions",
    "resume: auto continues from": 'trainer.train("auto") continues from',
    "Resume from it, or choose": 'Resume with trainer.train("auto"), or choose',
    "he same command starts again": 'rainer.train("auto") starts again',
    "he same command resumes": 'rainer.train("auto") resumes',
    "-m vcsd train RECIPE trainer.fsdp=true": "SCRIPT.py` with `TrainingArguments(fsdp=True)",
    "-m vcsd train RECIPE": "SCRIPT.py",
    "set rollout.engine: transformers": "leave out vllm=",
    "set rollout.engine: vllm": "pass vllm=VLLMSettings(...) without a server",
    "rollout.engine = vllm": "vllm=VLLMSettings(...)",
    "rollout.server_url": "the url in ServerSettings",
    "trainer.bf16 is false": "args.bf16 is False",
    "save_strategy=no": "save_strategy='no'",
}
"""Phrase for recipes -> phrase for Python; longer phrases first."""

_PATTERNS = (
    (r"[Ss]et data\.columns\.(\w+)(?:=COLUMN)? to (?:use another one|another column)", r"rename a column to '\1'"),
    (r"([.?]) rename a column", r"\1 Rename a column"),
    (r"(?<![\w./'\"-])data\.(split|columns|images)\b", r"\1"),  # arguments of load_examples
    (r"(?<![\w./'\"-])trainer\.(?!train\()(?=[a-z_]+)", "args."),
    (r"\b((?:args\.)?[a-z_0-9]+)(?:: | = )true\b", r"\1=True"),
    (r"\b((?:args\.)?[a-z_0-9]+)(?:: | = )false\b", r"\1=False"),
)


def in_python(text: str) -> str:
    """Reword a message for a Python caller.

    >>> in_python("Set trainer.gradient_checkpointing: true, or choose another trainer.output_dir.")
    'Set args.gradient_checkpointing=True, or choose another args.output_dir.'
    """
    for phrase, instead in _PHRASES.items():
        text = text.replace(phrase, instead)
    for pattern, instead in _PATTERNS:
        text = re.sub(pattern, instead, text)
    return text


@contextmanager
def said_in_python() -> Iterator[None]:
    """Reword errors that are meant for users."""
    try:
        yield
    except VcsdError as error:
        error.args = tuple(in_python(part) if isinstance(part, str) else part for part in error.args)
        if isinstance(error, ConfigError):
            error.problems = tuple(map(in_python, error.problems))
        raise
