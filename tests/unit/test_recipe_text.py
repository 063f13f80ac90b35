import pytest

from vcsd.errors import ConfigError
from vcsd.recipe_text import parse_yaml, shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("2E6", 2e6),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1e4", -1e4),
        ("90", 90),
        ("+3", 3),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        (".inf", float("inf")),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("none", "none"),
        ("12:30", "12:30"),
        ("2026-01-02", "2026-01-02"),
        ("1_000", "1_000"),
        ("'1e-5'", "1e-5"),
        ("[1, a, 2.5]", [1, "a", 2.5]),
        ('{"a": 1e-05, "b": null}', {"a": 1e-5, "b": None}),
    ],
)
def test_values_are_what_they_look_like(text, value):
    parsed = parse_yaml(text, source="test")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", r"the key 'a' comes twice \(line 2, column 1\)"),
        ("a: {b: 1, b: 2}", "the key 'b' comes twice"),
        ("1: 2", "the key 1 is not text"),
        ("? [a]\n: b", "is not text"),
        ("a: [1", "not valid YAML: .*line 1"),
        ("a: b: c", r"mapping values are not allowed here \(line 1, column 5\)"),
        ("!!python/object:os.system {}", "not valid YAML"),
        ("a: &x [*x]", "holds what a recipe cannot"),
        ("!!binary aGk=", "holds what a recipe cannot"),
        ("!!bool maybe", "holds what a recipe cannot"),
        ("!!timestamp abc", "holds what a recipe cannot"),
        ("!!float", "holds what a recipe cannot"),
        ("9" * 5000, "holds what a recipe cannot"),
        ("[" * 5000, "holds what a recipe cannot"),
        ("a: \x00", "not valid YAML"),
    ],
)
def test_unreadable_text_is_one_clear_error(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, source="recipe.yaml")


def test_long_values_are_shortened_in_messages():
    assert shown("x" * 500).endswith("...")
    assert len(shown("x" * 500)) == 60
    assert shown([1]) == "[1]"
