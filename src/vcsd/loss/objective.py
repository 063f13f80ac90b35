"""What the loss computes, apart from the tensors: the shape of the target, the divergence and the temperature."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

DIVERGENCES = ("forward_kl", "reverse_kl", "jensen_shannon")

KERNEL_CODES: Mapping[str, int] = {"forward_kl": 0, "reverse_kl": 1, "jensen_shannon": 2}
"""The divergences that the Triton kernel computes, by the code of its cases. The chunked loss computes the others."""

RANGES: Mapping[str, tuple[str, str]] = {
    "alpha": ("[0, 100]", "1 is the paper's value; 0 switches the contrast off."),
    "beta": ("[0, 1]", "0.1 is the paper's value; 0 shapes the full vocabulary."),
    "anchor": ("[0, 100]", "1 is the paper's value; 0 removes the original-image anchor."),
    "js_weight": ("(0, 1)", "0.5 is the symmetric Jensen-Shannon divergence."),
    "log_floor": ("[-1e6, 0)", "-10000 is the authors' value."),
    "temperature": ("[0.01, 100]", "2 is the paper's value."),
    "loss_scale": ("(0, 1e6]", "Leave it out for the squared temperature."),
    "student_top_k": ("[1, 1e6]", "100 is the published OPSD's value; null compares the whole vocabulary."),
    "importance_clip": ("[1, 1e6]", "2 is the published OPSD's value; null gives every token the weight one."),
    "ema_rate": ("(0, 1]", "It is the weight of the student; 0.05 is the paper's value."),
    "teacher_every": ("[1, inf)", "It counts optimizer steps."),
}
"""Valid interval and advice for every number of an `Objective` and of a `vcsd.Method`."""

MAY_BE_NULL = ("loss_scale", "student_top_k", "importance_clip")
_WHOLE = ("student_top_k", "teacher_every")


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Target shape, divergence and temperature; names and defaults as in `vcsd.Method`. Validated when built."""

    alpha: float = 1.0
    beta: float = 0.1
    anchor: float = 1.0
    end_token_ids: tuple[int, ...] = ()
    end_tokens_keep_anchor: bool = False
    divergence: str = "forward_kl"
    js_weight: float = 0.5
    log_floor: float = -1e4
    temperature: float = 2.0
    student_top_k: int | None = None
    importance_clip: float | None = None

    @property
    def needs_chunked(self) -> bool:
        """Whether only `vcsd.core` computes this: the Triton kernel has neither buckets nor importance weights.

        Nor has it a divergence of your own, until you add it there.
        """
        return self.student_top_k is not None or self.importance_clip is not None or self.divergence not in KERNEL_CODES

    def __post_init__(self) -> None:
        numbers = {field.name: getattr(self, field.name) for field in fields(self) if field.name in RANGES}
        problems = range_problems(numbers)
        if self.divergence not in DIVERGENCES:
            problems.append(
                f"divergence = {self.divergence!r} is not a choice. {did_you_mean(self.divergence, DIVERGENCES)}"
            )
        if problems:
            raise ConfigError(problems)
        for name, value in numbers.items():
            object.__setattr__(self, name, in_its_type(name, value))


def range_problems(numbers: Mapping[str, object], prefix: str = "") -> list[str]:
    """Describe each number that is outside its range. `prefix` goes before the names, as in "method.".

    >>> range_problems({"alpha": -1.0, "beta": 0.1})
    ["alpha = -1.0 is outside [0, 100]. 1 is the paper's value; 0 switches the contrast off."]
    """
    problems = []
    for name, value in numbers.items():
        interval, advice = RANGES[name]
        if value is None and name in MAY_BE_NULL:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            problems.append(f"{prefix}{name} = {shown(value)} is not a number. {advice}")
        elif not _inside(value, interval):
            problems.append(f"{prefix}{name} = {shown(value)} is outside {interval}. {advice}")
        elif name in _WHOLE and value != int(value):
            problems.append(f"{prefix}{name} = {shown(value)} is not a whole number. {advice}")
    return problems


def in_its_type(name: str, value: float | None) -> float | None:
    """Return a valid number as its field is declared, so that 1 and 1.0 are the same setting.

    >>> in_its_type("alpha", 1), in_its_type("teacher_every", 10.0), in_its_type("loss_scale", None)
    (1.0, 10, None)
    """
    if value is None:
        return None
    return int(value) if name in _WHOLE else float(value)


def _inside(value: float, interval: str) -> bool:
    """Whether a number lies in an interval written as in mathematics.

    >>> _inside(0, "[0, 1)"), _inside(1, "[0, 1)"), _inside(float("nan"), "[0, 1)")
    (True, False, False)
    """
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below
