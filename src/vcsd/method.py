"""A method is data: which views the teacher sees, how its target is shaped, and how the student is compared with it.

`METHODS` holds one row per method. VCSD, its ablations and answer-hint OPSD differ only in values; one engine runs them
all. Two presets set the values on which the paper and the authors' public code differ.

Batch size, learning rate and model are not part of a method: a method says what is learned, a recipe how.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, DataError, did_you_mean, shown
from vcsd.loss.objective import DIVERGENCES, RANGES, Objective, in_its_type, range_problems

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from vcsd.types import Example

CHOICES: dict[str, tuple[str | None, ...]] = {
    "target_view": ("original", "hint", "crop", "crop_added", "demonstration", "feedback"),
    "contrast_view": (None, "black", "noise", "blur", "no_image", "given"),
    "divergence": DIVERGENCES,
    "reduction": ("response_mean", "token_mean"),
    "teacher": ("ema", "fixed", "current", "periodic"),
}
"""Allowed values of the fields that take a word."""

NEEDS = {
    "hint": "answer",
    "crop": "boxes",
    "crop_added": "boxes",
    "demonstration": "demonstration",
    "feedback": "feedback",
    "given": "control_images",
}
"""The field of an Example that each view needs."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to distill. The defaults are the paper's VCSD. Raises a ConfigError for values that do not fit together.

    >>> Method(alpha=0.5).loss_factor      # loss_scale defaults to the squared temperature
    4.0
    """

    name: str = "vcsd"
    # What the teacher sees. Without a `contrast_view` there is no second look and no contrast.
    target_view: str = "original"
    contrast_view: str | None = "black"
    # The target: anchor * log p(original) + alpha * contrast, on tokens with p >= beta * max p.
    alpha: float = 1.0
    beta: float = 0.1
    anchor: float = 1.0
    end_tokens_keep_anchor: bool = False
    # The loss. Without a `loss_scale` it is the squared temperature.
    divergence: str = "forward_kl"
    js_weight: float = 0.5
    log_floor: float = -1e4
    temperature: float = 2.0
    loss_scale: float | None = None
    # From the published OPSD: compare the student's top k tokens and the rest as one; weight tokens by importance.
    student_top_k: int | None = None
    importance_clip: float | None = None
    reduction: str = "response_mean"
    # The teacher's weights. `ema_rate` is the weight of the student in each update; a periodic teacher copies the
    # student every `teacher_every` updates.
    teacher: str = "ema"
    ema_rate: float = 0.05
    teacher_every: int = 10

    def __post_init__(self) -> None:
        problems = [*_word_problems(self), *_number_problems(self)]
        problems = problems or _sense_problems(self)
        if problems:
            raise ConfigError(problems)
        for name in RANGES:
            object.__setattr__(self, name, in_its_type(name, getattr(self, name)))

    @property
    def loss_factor(self) -> float:
        """The factor of the mean divergence: T_KD² in the paper (Eq. 10)."""
        return self.temperature**2 if self.loss_scale is None else self.loss_scale

    def objective(self, end_token_ids: Collection[int] = ()) -> Objective:
        """Return what the loss computes under this method, for a model with these end tokens.

        >>> METHODS["no_support"].objective(end_token_ids=[151645]).beta
        0.0
        """
        shared = {field.name for field in fields(Objective)} & {field.name for field in fields(self)}
        values = {name: getattr(self, name) for name in shared}
        return Objective(end_token_ids=tuple(sorted(set(end_token_ids))), **values)

    def preset(self, name: str) -> Method:
        """Return this method with the conventions of `paper` or `author_code`.

        >>> METHODS["vcsd"].preset("author_code").temperature
        1.0
        """
        if name not in PRESETS:
            raise ConfigError([f"method.preset = {name!r} is not a preset. {did_you_mean(name, PRESETS)}"])
        if self.student_top_k is not None:
            raise ConfigError(
                [f"method.preset = {name!r} sets conventions of VCSD; {self.name} has its own. Remove it."]
            )
        return replace(self, **PRESETS[name])

    def check(self, example: Example) -> None:
        """Raise a DataError if the example lacks something that this method shows its teacher."""
        for view, instead in (
            (self.target_view, "target_view: original"),
            (self.contrast_view, "contrast_view: black"),
        ):
            column = NEEDS.get(view or "")
            if column is not None and not getattr(example, column):
                raise DataError(
                    example.id,
                    f"view {view!r} needs {_WORDS[column]}, but there is none. "
                    f"Fill the column {column!r}, or choose {instead}.",
                )
        if self.alpha > 0 and not example.images:
            raise DataError(
                example.id,
                f"view {self.contrast_view!r} erases images, but there is none: the contrast would be zero. "
                "Leave such rows out (data.text_only=drop), or choose a method without contrast.",
            )


_WORDS = {
    "answer": "an answer",
    "boxes": "an evidence box",
    "demonstration": "a demonstration",
    "feedback": "feedback",
    "control_images": "a control image",
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
            problems.append(f"method.{name} = {shown(value)} is not a choice. {hint}")
    if not isinstance(method.name, str) or not method.name:
        problems.append(f"method.name = {shown(method.name)} is not a name.")
    if not isinstance(method.end_tokens_keep_anchor, bool):
        value = shown(method.end_tokens_keep_anchor)
        problems.append(f"method.end_tokens_keep_anchor = {value} is not true or false.")
    return problems


def _number_problems(method: Method) -> list[str]:
    return range_problems({name: getattr(method, name) for name in RANGES}, prefix="method.")


_ONLY_WITH = {
    "js_weight": ("divergence", "jensen_shannon"),
    "log_floor": ("divergence", "reverse_kl"),
    "ema_rate": ("teacher", "ema"),
    "teacher_every": ("teacher", "periodic"),
}
"""Fields that have no effect unless another field has this value."""


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
    if method.student_top_k is not None and (method.alpha > 0 or method.beta > 0):
        problems.append(
            f"method.student_top_k = {method.student_top_k!r} compares on tokens that the student chooses, but a "
            "shaped target lies on tokens that the teacher finds plausible. Set it to null, or alpha: 0 and beta: 0."
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
_OPSD = Method(name="opsd", target_view="hint", contrast_view=None, alpha=0.0, beta=0.0)
METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        _VCSD,
        replace(_VCSD, name="no_contrast", alpha=0.0),
        replace(_VCSD, name="no_support", beta=0.0),
        replace(_VCSD, name="no_anchor", anchor=0.0),
        _OPSD,
        replace(
            _OPSD,
            name="opsd_published",
            divergence="jensen_shannon",
            temperature=1.0,
            student_top_k=100,
            importance_clip=2.0,
            reduction="token_mean",
        ),
    )
}
"""All methods, at the `paper` preset. `opsd` has VCSD's settings, but its teacher sees the answer and its target has
neither contrast nor support. `opsd_published` is the baseline of the paper's main table, with the conventions of its
public code; no preset changes them."""

TRAINER_DEFAULTS: Mapping[str, str | int | float | bool] = {
    "output_dir": "runs/vcsd",
    "max_steps": 90,
    "learning_rate": 2e-6,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 10,
    "max_grad_norm": 1.0,
    "bf16": True,
    "logging_steps": 1,
    "save_steps": 10,
    "save_total_limit": 2,
    "report_to": "none",
    "disable_tqdm": True,
}
"""The paper's training configuration (Section 4.1) as TrainingArguments, clipping from the authors' code, and defaults
for precision, logging and saving."""
