"""The reference of recipe keys as Markdown, from the descriptions of the fields.

    python -m vcsd.config.key_reference > docs/recipe_keys.md

A test compares the page with this text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from textwrap import fill
from typing import TYPE_CHECKING

from pydantic_core import PydanticUndefined

from vcsd.config.recipe import Recipe
from vcsd.config.sections import Section
from vcsd.config.value_sources import default_label
from vcsd.loss.objective import RANGES
from vcsd.method import CHOICES, METHODS, TRAINER_DEFAULTS, Method

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_START = """\
# Recipe keys

Every key of a recipe, its default, where the default comes from (the paper, the authors' public code, or us) and its
meaning. `vcsd config RECIPE` prints a recipe with all of them, `vcsd config RECIPE --sources` where each value comes
from. This page is written by `python -m vcsd.config.key_reference`.

## The key `base`

A recipe starts from another one with `base`: a path relative to the file, or the name of a shipped recipe. Sections are
merged key by key; every other value, lists included, replaces the base's. A `method` that is one word or gives a `name`
replaces the whole section, so another method inherits nothing from the first. Labels are inherited with their values.
`base` is read from files only: on the command line, name the recipe itself. A base that is missing, that is not a
recipe, or that leads back to the file is an error, and so are more than seven bases in a row.
"""


_METHOD_START = """\
The method: a name, or these keys. [Method](method.md) has the equations, [Views](views.md) the views and
[Training](training.md#teachers) the teachers. `method.preset` sets four keys at once, to the conventions of the paper
(`paper`) or of the authors' public code (`author_code`). A key that would have no effect is an error.
"""

_METHOD = {
    "target_view": "What the teacher sees while the student sees the original.",
    "contrast_view": "The control that the teacher is contrasted with; null: no contrast.",
    "alpha": "The weight of the contrast in the target.",
    "beta": "Only tokens with at least beta times the largest probability are in the target.",
    "anchor": "The weight of the teacher's log-probability in the target; above 1 sharpens it.",
    "end_tokens_keep_anchor": "true gives end tokens the anchor 1, whatever the anchor is.",
    "divergence": "How the student is compared with the target.",
    "js_weight": "The weight of the target in the mixture; for jensen_shannon only.",
    "log_floor": "The smallest log-probability of the target; for reverse_kl only.",
    "temperature": "Divides all logits in the loss; not the temperature of sampling.",
    "loss_scale": "The factor of the loss; null: the squared temperature.",
    "student_top_k": "Compare the student's k most probable tokens, and all others as one; null: every token.",
    "importance_clip": "Weight tokens by p now / p when sampled, at most this; null: equally.",
    "reduction": "The mean over each response and then over responses, or over all tokens.",
    "teacher": "Whose weights score: a moving average of the student, or another choice.",
    "ema_rate": "The weight of the student in each update; for the teacher ema only.",
    "teacher_every": "Steps between copies of the student; for the teacher periodic only.",
}


def key_reference() -> str:
    """Return the page."""
    parts, plain = [], []
    for name, field in Recipe.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            rows = [_row(f"{name}.{key}", inner) for key, inner in kind.model_fields.items()]
            parts.append(_section(name, kind.__doc__ or "", rows))
        elif name == "method":
            parts.append(_section(name, _METHOD_START, list(_method_rows())))
        elif name == "trainer":
            meaning = "Any key of `transformers.TrainingArguments`. These have other defaults here."
            parts.append(_section(name, meaning, [_line(f"trainer.{k}", v, "") for k, v in TRAINER_DEFAULTS.items()]))
        else:
            plain.append(_row(name, field))
    return "\n".join([_START, _section("on the top level", "Keys outside the sections.", plain), *parts])


def _section(name: str, meaning: str, rows: list[str]) -> str:
    title = name if " " in name else f"`{name}`"
    text = fill(meaning, 120, break_long_words=False, break_on_hyphens=False)
    head = f"## Keys {title}\n\n{text}\n\n| key | default | from | meaning |\n|---|---|---|---|\n"
    return head + "".join(rows)


def _row(key: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True) if not field.is_required() else "required"
    if default is PydanticUndefined:
        default = None
    return _line(key, default, field.description or "")


def _method_rows() -> list[str]:
    names = ", ".join(METHODS)
    keys = [key for key in fields(Method) if key.name != "name"]
    rows = [_line(f"method.{key.name}", key.default, _meaning(key.name)) for key in keys]
    return [_line("method.name", "vcsd", f"One of {names}."), *rows]


def _meaning(key: str) -> str:
    """Return what a key of the method means, with its choices or its range."""
    if key in CHOICES:
        return f"{_METHOD[key]} One of {', '.join('null' if word is None else word for word in CHOICES[key])}."
    return f"{_METHOD[key]} In {RANGES[key][0]}." if key in RANGES else _METHOD[key]


def _line(key: str, default: object, meaning: str) -> str:
    text = default if default == "required" else f"`{_text(default)}`"
    label = "" if default == "required" else default_label(key)
    return f"| `{key}` | {text} | {label} | {meaning.replace('|', chr(92) + '|')} |\n"


def _text(value: object) -> str:
    """Return a default as YAML."""
    if isinstance(value, Section):
        return "{}"
    if isinstance(value, str) or not isinstance(value, Mapping | list | tuple | bool | int | float | None):
        return str(value)
    return json.dumps(list(value) if isinstance(value, tuple) else value)


if __name__ == "__main__":
    sys.stdout.write(key_reference())
