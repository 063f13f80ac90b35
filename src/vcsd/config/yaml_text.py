"""Parse the text of a recipe into plain values: YAML as people read it, without the surprises of YAML 1.1.

`1e-5` is a number, `no` and `on` are words, `010` is ten, a date is text, and a repeated key is an error. The size of a
recipe is limited, with every alias counted as often as it is used.
"""

import json
import re
from typing import Any

import yaml

from vcsd.errors import ConfigError, shown

MAX_CHARACTERS = 2**20
MAX_VALUES = 2000
MAX_KEYS = 200
MAX_KEY_LENGTH = 200
"""Limits of a text, of a section and of a key. The largest section, `trainer`, has about 130 keys."""


class NotYamlError(ConfigError):
    """A text that is not YAML, with a description that may quote it. `where` is the place, if it is known."""

    def __init__(self, source: str, problem: str, where: str) -> None:
        self.where = where
        super().__init__([f"{source} is not valid YAML: {problem}{where}."])


def parse_yaml(text: str, *, source: str) -> object:
    """Parse YAML (or JSON) into plain Python values. A syntax error is a ConfigError that names the line.

    >>> parse_yaml("{learning_rate: 1e-5, control: no}", source="example")
    {'learning_rate': 1e-05, 'control': 'no'}
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigError([f"{source} has more than {MAX_CHARACTERS:,} characters. A recipe is a short text."])
    try:
        tree: object = yaml.load(text, Loader=_RecipeLoader)
        json.dumps(tree)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise NotYamlError(source, problem, where) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:  # constructors of !!tags
        raise ConfigError(
            [f"{source} holds an invalid value: a circular reference, a huge number, too many levels, or a tag."]
        ) from error
    return tree


class _RecipeLoader(yaml.SafeLoader):
    """The scalars of YAML 1.2's core schema, and unique text keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own attribute

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._num_values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Count the values, those behind an alias again."""
        is_alias = self.check_event(yaml.events.AliasEvent)
        node = super().compose_node(parent, index)
        self._num_values += _num_nodes(node) if is_alias else 1
        if self._num_values > MAX_VALUES:
            raise _problem(f"there are more than {MAX_VALUES:,} values, or aliases repeat as many", node)
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """Join escaped surrogate pairs, as JSON writes them. Half a pair is not text."""
        text = super().construct_scalar(node)
        try:
            return str(text).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise _problem(f"{shown(text)} contains half a surrogate pair, which is not text", node) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raise an error if a key is not text, is too long or is repeated; else do what the parent does."""
        if len(node.value) > MAX_KEYS:
            raise _problem(f"a section has {len(node.value):,} keys, more than {MAX_KEYS}", node)
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _problem(f"the key {shown(key)} is not text", key_node)
            if len(key) > MAX_KEY_LENGTH:
                raise _problem(f"the key {shown(key)} has more than {MAX_KEY_LENGTH} characters", key_node)
            if key in seen:
                raise _problem(f"the key {shown(key)} is repeated", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _problem(text: str, node: yaml.Node | None) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, text, None if node is None else node.start_mark)


def _num_nodes(node: yaml.Node | None) -> int:
    """Count the nodes of a tree with its aliases expanded; stop above `MAX_VALUES`."""
    waiting, count = [node], 0
    while waiting and count <= MAX_VALUES:
        inner = waiting.pop()
        count += 1
        if isinstance(inner, yaml.MappingNode):
            waiting += [part for pair in inner.value for part in pair]
        elif isinstance(inner, yaml.SequenceNode):
            waiting += inner.value
    return count


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
