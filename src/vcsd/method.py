"""A method is data: which views the teacher sees, how its target is shaped, how the student is pulled towards it.

`METHODS` holds one row per method. VCSD, its ablations and answer-hint OPSD differ in values only; one engine runs
them all. Two presets fix the points on which the paper and the authors' public code differ.

What is not here: the size of a batch, the learning rate, the model. A method says what is learnt, a recipe how.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.types import Example

CHOICES: dict[str, tuple[str | None, ...]] = {
    "target_view": ("original", "hint", "crop", "crop_added", "demonstration", "feedback"),
    "contrast_view": (None, "black", "noise", "blur", "no_image"),
    "divergence": ("forward_kl", "reverse_kl", "jensen_shannon"),
    "reduction": ("response_mean", "token_mean"),
    "teacher": ("ema", "fixed", "current", "periodic"),
}
"""What the fields that are words may say."""

NEEDS = {
    "hint": "answer",
    "crop": "boxes",
    "crop_added": "boxes",
    "demonstration": "demonstration",
    "feedback": "feedback",
}
"""The field of an Example that a view shows."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to distil. The defaults are the paper's VCSD; a combination that makes no sense cannot be built.

    >>> Method(alpha=0.5).loss_factor      # loss_scale defaults to the squared temperature
    4.0
    """

    name: str = "vcsd"
    # What the teacher sees. `contrast_view` None: no second look, hence no contrast.
    target_view: str = "original"
    contrast_view: str | None = "black"
    # The target: anchor * log p(original) + alpha * contrast, on tokens with p >= beta * max p.
    alpha: float = 1.0
    beta: float = 0.1
    anchor: float = 1.0
    end_tokens_keep_anchor: bool = False
    # The loss. `loss_scale` None: temperature squared.
    divergence: str = "forward_kl"
    js_weight: float = 0.5
    log_floor: float = -1e4
    temperature: float = 2.0
    loss_scale: float | None = None
    reduction: str = "response_mean"
    # The teacher's weights. `ema_rate` is the weight of the student in each update; a periodic teacher becomes the
    # student after every `teacher_every` updates.
    teacher: str = "ema"
    ema_rate: float = 0.05
    teacher_every: int = 10

    def __post_init__(self) -> None:
        problems = [*_word_problems(self), *_number_problems(self)]
        problems = problems or _sense_problems(self)
        if problems:
            raise ConfigError(problems)

    @property
    def loss_factor(self) -> float:
        """What the mean divergence is multiplied by: T_KD² in the paper (Eq. 10)."""
        return self.temperature**2 if self.loss_scale is None else self.loss_scale

    def preset(self, name: str) -> Method:
        """This method with the conventions of `paper` or `author_code`.

        >>> METHODS["vcsd"].preset("author_code").temperature
        1.0
        """
        if name not in PRESETS:
            raise ConfigError([f"method.preset = {name!r} is not a preset. {did_you_mean(name, PRESETS)}"])
        return replace(self, **PRESETS[name])

    def check(self, example: Example) -> None:
        """Raise a DataError if this method would show its teacher something the example does not have."""
        column = NEEDS.get(self.target_view)
        if column is not None and not getattr(example, column):
            raise DataError(
                example.id,
                f"view {self.target_view!r} needs {_WORDS[column]}, but there is none. "
                f"Fill the column {column!r}, or choose target_view: original.",
            )
        if self.alpha > 0 and not example.images:
            raise DataError(
                example.id,
                f"view {self.contrast_view!r} erases images, but there is none: the contrast would be zero. "
                "Drop the example, or choose a method without contrast.",
            )


_WORDS = {
    "answer": "an answer",
    "boxes": "an evidence box",
    "demonstration": "a demonstration",
    "feedback": "feedback",
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "temperature": 2.0,
        "loss_scale": None,  # temperature squared: 4
        "reduction": "response_mean",
        "end_tokens_keep_anchor": False,
    },
    "author_code": {
        "temperature": 1.0,
        "loss_scale": 4.0,
        "reduction": "token_mean",
        "end_tokens_keep_anchor": True,
    },
}
"""The paper evaluates every distribution at T = 2 and multiplies by T² = 4; the authors' public code appears to
evaluate at T = 1 and multiply by 4, averages over tokens, and keeps the anchor of end tokens at one."""


def _word_problems(method: Method) -> list[str]:
    problems = []
    for name, allowed in CHOICES.items():
        value = getattr(method, name)
        if value not in allowed:
            hint = did_you_mean(value, ["null (off)" if word is None else word for word in allowed])
            if name == "contrast_view" and value == "none":
                hint = "Write no_image for a control without the image, or null for no contrast at all."
            problems.append(f"method.{name} = {value!r} is not a choice. {hint}")
    if not isinstance(method.name, str) or not method.name:
        problems.append(f"method.name = {method.name!r} is not a name.")
    if not isinstance(method.end_tokens_keep_anchor, bool):
        problems.append(f"method.end_tokens_keep_anchor = {method.end_tokens_keep_anchor!r} is not true or false.")
    return problems


_RANGES: dict[str, tuple[str, str]] = {
    "alpha": ("[0, 100]", "1 is the paper's value; 0 switches the contrast off."),
    "beta": ("[0, 1]", "0.1 is the paper's value; 0 shapes the full vocabulary."),
    "anchor": ("[0, 100]", "1 is the paper's value; 0 removes the original-image anchor."),
    "js_weight": ("(0, 1)", "0.5 is the symmetric Jensen-Shannon divergence."),
    "log_floor": ("[-1e6, 0)", "-10000 is the authors' value."),
    "temperature": ("[0.01, 100]", "2 is the paper's value."),
    "loss_scale": ("(0, 1e6]", "Leave it out for the squared temperature."),
    "ema_rate": ("(0, 1]", "It is the weight of the student; 0.05 is the paper's value."),
    "teacher_every": ("[1, inf)", "It counts optimizer steps."),
}
"""Field -> interval and a word of advice."""


def _number_problems(method: Method) -> list[str]:
    problems = []
    for name, (interval, advice) in _RANGES.items():
        value = getattr(method, name)
        if value is None and name == "loss_scale":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            problems.append(f"method.{name} = {value!r} is not a number. {advice}")
        elif not _inside(value, interval):
            problems.append(f"method.{name} = {value!r} is outside {interval}. {advice}")
        elif name == "teacher_every" and value != int(value):
            problems.append(f"method.{name} = {value!r} is not a whole number. {advice}")
    return problems


def _inside(value: float, interval: str) -> bool:
    """Whether a number lies in an interval written as in mathematics.

    >>> _inside(0, "[0, 1)"), _inside(1, "[0, 1)"), _inside(float("nan"), "[0, 1)")
    (True, False, False)
    """
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below


_ONLY_WITH = {
    "js_weight": ("divergence", "jensen_shannon"),
    "log_floor": ("divergence", "reverse_kl"),
    "ema_rate": ("teacher", "ema"),
    "teacher_every": ("teacher", "periodic"),
}
"""Fields that do nothing unless another field has this value."""


def _sense_problems(method: Method) -> list[str]:
    problems = []
    if method.contrast_view is None and method.alpha > 0:
        problems.append(
            f"method.alpha = {method.alpha!r} needs a contrast view, but method.contrast_view is null. "
            "Set contrast_view: black (the paper's), or alpha: 0."
        )
    if method.alpha == 0 and method.anchor == 0:
        problems.append("method.alpha and method.anchor are both 0: the target would be uniform. Set one of them to 1.")
    if method.alpha == 0 and method.contrast_view not in (None, "black"):
        problems.append(
            f"method.contrast_view = {method.contrast_view!r} has no effect with alpha: 0. Remove it, or raise alpha."
        )
    defaults = {field.name: field.default for field in fields(Method)}
    for name, (owner, needed) in _ONLY_WITH.items():
        if getattr(method, owner) != needed and getattr(method, name) != defaults[name]:
            problems.append(
                f"method.{name} = {getattr(method, name)!r} has no effect with {owner}: {getattr(method, owner)}. "
                f"Remove it, or set {owner}: {needed}."
            )
    return problems


_VCSD = Method()
METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        _VCSD,
        replace(_VCSD, name="no_contrast", alpha=0.0),
        replace(_VCSD, name="no_support", beta=0.0),
        replace(_VCSD, name="no_anchor", anchor=0.0),
        Method(name="opsd", target_view="hint", contrast_view=None, alpha=0.0, beta=0.0),
    )
}
"""The rows that work today, at the `paper` preset; `opsd` is matched to VCSD in all but the source of asymmetry."""
