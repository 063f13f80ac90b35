"""Sampling presets and changes to them: `paper`, or `paper,temperature=0.7,max_new_tokens=512`."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, did_you_mean
from vcsd.rollout.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Mapping

PAPER_SAMPLING = Sampling(max_new_tokens=4096, temperature=0.0, top_p=0.8, top_k=20, presence_penalty=1.5)
"""The sampling of the paper's table: greedy, with a presence penalty. top-p and top-k have no effect at temperature 0;
they are still sent to a server, which would otherwise use its own defaults."""

SAMPLING: Mapping[str, Sampling] = {
    "paper": PAPER_SAMPLING,
    "greedy": Sampling(max_new_tokens=4096, temperature=0.0),
    "qwen3_vl": Sampling(max_new_tokens=16384, temperature=0.7, top_p=0.8, top_k=20, presence_penalty=1.5),
    "qwen3_5": Sampling(max_new_tokens=32768, temperature=1.0, top_p=0.95, top_k=20, presence_penalty=1.5),
}
"""Presets by name. The last two are VLMEvalKit's settings for these models; Qwen3.5's are meant for thinking."""


def parse_sampling(text: str) -> Sampling:
    """Parse a preset's name and changes to it; without a name, changes to `paper`.

    >>> parse_sampling("paper,temperature=0.7,top_k=none").temperature
    0.7
    >>> parse_sampling("max_new_tokens=16").presence_penalty
    1.5
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    name = words.pop(0) if words and "=" not in words[0] else "paper"
    if name not in SAMPLING:
        raise ConfigError([f"sampling = {name!r} is not a preset. {did_you_mean(name, SAMPLING)}"])
    kinds = {field.name: field.type for field in fields(Sampling)}
    changes: dict[str, Any] = {}
    problems = []
    for word in words:
        key, _, value = (part.strip() for part in word.partition("="))
        if key not in kinds:
            problems.append(f"sampling.{key} is not a sampling setting. {did_you_mean(key, kinds)}")
            continue
        try:
            changes[key] = _number(value, kinds[key])
        except ValueError:
            problems.append(f"sampling.{key} = {value!r} is not a number.")
    if problems:
        raise ConfigError(problems)
    return replace(SAMPLING[name], **changes)


def _number(value: str, kind: object) -> float | int | None:
    if value.lower() in ("none", "null") and "None" in str(kind):
        return None
    return int(value) if "int" in str(kind) else float(value)
