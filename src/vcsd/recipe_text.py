"""From the text of a recipe to plain values: YAML as people read it, without YAML 1.1's surprises.

`1e-5` is a number, `no` and `on` are words, `010` is ten, a date is text, and a key written twice is an error.
"""

import json
import re
from typing import Any

import yaml

from vcsd.errors import ConfigError

_MAX_SHOWN = 60


def parse_yaml(text: str, *, source: str) -> Any:
    """Plain Python values from YAML (or JSON) text; anything unreadable is a ConfigError that names the line.

    >>> parse_yaml("{learning_rate: 1e-5, control: no}", source="example")
    {'learning_rate': 1e-05, 'control': 'no'}
    """
    try:
        tree = yaml.load(text, Loader=_RecipeLoader)
        json.dumps(tree)
    except yaml.YAMLError as error:
        raise ConfigError([f"{source} is not valid YAML: {_one_line(error)}"]) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:  # constructors of !!tags
        raise ConfigError(
            [f"{source} holds what a recipe cannot: a circle, a huge number, too deep a nest, or a tagged object."]
        ) from error
    return tree


def shown(value: object) -> str:
    """A value as it appears in a message: short, on one line."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


class _RecipeLoader(yaml.SafeLoader):
    """The scalars of YAML 1.2's core schema, and unique text keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own attribute

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Like the parent's, but a key that is not text, or comes twice, is an error."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is not text", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} comes twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _integer(_: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = node.value
    base = {"0x": 16, "0o": 8}.get(text[:2], 10)
    return int(text if base == 10 else text[2:], base)


_FLOAT = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
):
    _RecipeLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)
_RecipeLoader.add_constructor("tag:yaml.org,2002:int", _integer)


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{getattr(error, 'problem', None) or str(error).splitlines()[0]}{where}."
