"""The file of a capsule: JSON with a seal, the hash of everything else in it.

The seal shows whether a file was changed after it was written. It cannot show that the file was written honestly:
invented numbers can be sealed too. Running it again shows that, so `vcsd replay` trains and compares. A seal that was
published elsewhere, for example in a paper, cannot be replaced together with the file (`vcsd replay --seal`).
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypedDict, cast, get_type_hints

from vcsd.checkpoint.whole_file import write_whole
from vcsd.errors import ConfigError, shown
from vcsd.monitor.machine import are_sessions

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "vcsd capsule 1"
_MAX_BYTES = 2**26
"""A step takes about a kilobyte, so 60,000 steps fit. Parsing JSON of this size may need 20 times the memory."""


class Capsule(TypedDict):
    """What a capsule holds."""

    format: str
    recipe: dict[str, Any]
    """The whole recipe. Of absolute paths, only the last name is kept."""
    environment: dict[str, Any]
    content: dict[str, Any]
    """Hashes of data, images, first weights, tokenizer and chat template."""
    steps: list[dict[str, Any]]
    """The metrics of every step with the ids of its rows, without times and memory."""
    evaluations: list[dict[str, Any]]
    """The scores that the run measured itself."""
    last_step: int
    weights: dict[str, str]
    """The hash of each file of tensors in the checkpoint after the last step."""
    scorecards: list[dict[str, Any]]
    """Results of `vcsd eval`, with intervals."""


def seal_of(capsule: Capsule) -> str:
    """Return the hash of a capsule, whatever the order of its keys."""
    text = json.dumps(capsule, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def write_capsule(capsule: Capsule, path: Path) -> str:
    """Write a capsule, and return its seal. A kill while writing leaves the previous file."""
    try:
        seal = seal_of(capsule)
    except ValueError:
        raise ConfigError(
            ["the run's files hold a number that is not finite, which no run writes. Restore them."]
        ) from None
    text = json.dumps({**capsule, "seal": seal}, indent=1, allow_nan=False) + "\n"
    if len(text) > _MAX_BYTES:
        raise ConfigError([f"the capsule would be larger than {_MAX_BYTES // 2**20} MiB, which vcsd replay refuses."])
    try:
        write_whole(path, text)
    except OSError as error:
        raise ConfigError([f"{path} cannot be written: {error.strerror}. Choose another --output."]) from error
    return seal


def read_capsule(path: Path, seal: str | None = None) -> Capsule:
    """Read a capsule. Raise a ConfigError if the file is not a capsule, was changed, or does not have this seal."""
    if path.exists() and not path.is_file():  # reading a pipe or a device may never end
        raise ConfigError([f"{path} is not a file. Pass a file that vcsd capsule wrote."])
    try:
        is_small = path.stat().st_size <= _MAX_BYTES
        tree = json.loads(path.read_bytes(), object_pairs_hook=_without_repetition) if is_small else None
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror}. Pass a file that vcsd capsule wrote."]) from error
    except (ValueError, RecursionError):
        raise ConfigError([f"{path} is not JSON, or has a key twice. Pass a file that vcsd capsule wrote."]) from None
    if not is_small:
        raise ConfigError([f"{path} is larger than {_MAX_BYTES // 2**20} MiB, so it is not a capsule."])
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise ConfigError(
            [f"{path} is not a capsule of this version ({FORMAT!r}). Pass a file that vcsd capsule wrote."]
        )
    written = tree.pop("seal", None)
    capsule = _checked(tree, path)
    try:
        is_whole = written == seal_of(capsule)
    except (ValueError, RecursionError):  # json reads NaN and 1e999, which no capsule has
        raise ConfigError([f"{path} holds a number that is not finite, so it is not a capsule."]) from None
    if not is_whole:
        raise ConfigError([f"{path} was changed after it was written: its seal does not fit. Get the original file."])
    if seal is not None and seal.strip().lower() != written:
        raise ConfigError([f"{path} is not the capsule with the seal {shown(seal)}: its own is {written}."])
    return capsule


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object without repeated keys: the seal covers the last one, but other readers may take the first."""
    tree = dict(pairs)
    if len(tree) < len(pairs):
        raise ValueError("a key is repeated")
    return tree


def _checked(tree: dict[str, Any], path: Path) -> Capsule:
    """Return the tree if it has the keys of a capsule, with values of the right kinds."""
    kinds = {name: getattr(kind, "__origin__", kind) for name, kind in get_type_hints(Capsule).items()}
    problems = [f"{path} has no {name!r}, so it is not a whole capsule." for name in kinds if name not in tree]
    problems += [f"{path} has {shown(name)}, which no capsule has." for name in tree if name not in kinds]
    for name, kind in kinds.items():
        if name in tree and (not isinstance(tree[name], kind) or isinstance(tree[name], bool)):
            problems.append(f"{path}: {name} is {shown(tree[name])}, not {kind.__name__}.")
    for name in ("steps", "evaluations", "scorecards"):
        if isinstance(tree.get(name), list) and not all(isinstance(line, dict) for line in tree[name]):
            problems.append(f"{path}: {name} holds something other than records.")
    problems = problems or _about_steps(cast("Capsule", tree), path)
    problems = problems or _about_sessions(cast("Capsule", tree), path)
    if problems:
        raise ConfigError(problems)
    return cast("Capsule", tree)


def _about_sessions(capsule: Capsule, path: Path) -> list[str]:
    """Say what is wrong with the machines that made the steps."""
    sessions = capsule["environment"].get("sessions")
    if are_sessions(sessions):
        starts = [session["after_step"] for session in sessions]
        if starts and starts[0] == 0 and starts == sorted(set(starts)) and starts[-1] < capsule["last_step"]:
            return []
    return [f"{path} does not say which machine made which step, so it is not a whole capsule."]


def _about_steps(capsule: Capsule, path: Path) -> list[str]:
    """Return what is missing in steps and hashes: whatever a capsule leaves out would not be compared."""
    numbers, last = [line.get("step") for line in capsule["steps"]], capsule["last_step"]
    are_steps = all(type(number) is int for number in numbers)
    if last < 1 or len(numbers) != last or not are_steps or numbers != list(range(1, last + 1)):
        return [f"{path} does not hold the steps 1 to {shown(last)}, so it is not a whole capsule."]
    if not all("loss" in line and "examples" in line for line in capsule["steps"]):
        return [f"{path} holds a step without its loss or its rows, so it is not a whole capsule."]
    if not capsule["weights"] or not {"weights", "data"} <= set(capsule["content"]):
        return [f"{path} lacks hashes of weights or data, so it is not a whole capsule."]
    asked = [line.get("step") for line in capsule["evaluations"]]
    if not all(type(step) is int and 0 <= step <= last for step in asked) or len(set(asked)) < len(asked):
        return [f"{path} holds an evaluation without a step of its own, so it is not a whole capsule."]
    return []
