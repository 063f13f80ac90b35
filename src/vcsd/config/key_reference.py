"""The reference of recipe keys as Markdown, from the descriptions of the fields.

    python -m vcsd.config.key_reference > docs/recipe_keys.md

A test compares the page with this text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from pydantic_core import PydanticUndefined

from vcsd.config.recipe import Recipe
from vcsd.config.sections import Section
from vcsd.config.value_sources import default_label
from vcsd.method import METHODS, TRAINER_DEFAULTS, Method

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
`base` is read from files only: on the command line, name the recipe itself. A base that is missing, that is no recipe,
or that leads back to the file is an error, and so are more than seven bases in a row.
"""


def key_reference() -> str:
    """Return the page."""
    parts, plain = [], []
    for name, field in Recipe.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            rows = [_row(f"{name}.{key}", inner) for key, inner in kind.model_fields.items()]
            parts.append(_section(name, kind.__doc__ or "", rows))
        elif name == "method":
            parts.append(_section(name, "The method: a name, or these keys.", list(_method_rows())))
        elif name == "trainer":
            meaning = "Any key of `transformers.TrainingArguments`. These have other defaults here."
            parts.append(_section(name, meaning, [_line(f"trainer.{k}", v, "") for k, v in TRAINER_DEFAULTS.items()]))
        else:
            plain.append(_row(name, field))
    return "\n".join([_START, _section("on the top level", "Keys outside the sections.", plain), *parts])


def _section(name: str, meaning: str, rows: list[str]) -> str:
    title = name if " " in name else f"`{name}`"
    head = f"## Keys {title}\n\n{' '.join(meaning.split())}\n\n| key | default | from | meaning |\n|---|---|---|---|\n"
    return head + "".join(rows)


def _row(key: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True) if not field.is_required() else "required"
    if default is PydanticUndefined:
        default = None
    return _line(key, default, field.description or "")


def _method_rows() -> list[str]:
    names = ", ".join(METHODS)
    rows = [_line(f"method.{field.name}", field.default, "") for field in fields(Method) if field.name != "name"]
    return [_line("method.name", "vcsd", f"One of {names}."), *rows]


def _line(key: str, default: object, meaning: str) -> str:
    text = default if default == "required" else f"`{_text(default)}`"
    label = "" if default == "required" else default_label(key)
    return f"| `{key}` | {text} | {label} | {meaning.replace('|', chr(92) + '|')} |\n"


def _text(value: object) -> str:
    """Return a default as YAML would have it."""
    if isinstance(value, Section):
        return "{}"
    if isinstance(value, str) or not isinstance(value, Mapping | list | tuple | bool | int | float | None):
        return str(value)
    return json.dumps(list(value) if isinstance(value, tuple) else value)


if __name__ == "__main__":
    sys.stdout.write(key_reference())
