import json

import pytest

from vcsd.config.yaml_text import parse_yaml
from vcsd.errors import ConfigError, shown


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
        ("a: 1\na: 2", r"the key 'a' is repeated \(line 2, column 1\)"),
        ("a: {b: 1, b: 2}", "the key 'b' is repeated"),
        ("1: 2", "the key 1 is not text"),
        ("? [a]\n: b", "is not text"),
        ("a: [1", "not valid YAML: .*line 1"),
        ("a: b: c", r"mapping values are not allowed here \(line 1, column 5\)"),
        ("!!python/object:os.system {}", "not valid YAML"),
        ("a: &x [*x]", "holds an invalid value"),
        ("!!binary aGk=", "holds an invalid value"),
        ("!!bool maybe", "holds an invalid value"),
        ("!!timestamp abc", "holds an invalid value"),
        ("!!float", "holds an invalid value"),
        ("9" * 5000, "holds an invalid value"),
        ("[" * 5000, "holds an invalid value"),
        ("a: \x00", "not valid YAML"),
        ('"\\ud800": 1', r"'\\ud800' contains half a surrogate pair, which is not text \(line 1, column 1\)"),
        ('a: ["\\udfff\\ud800"]', "half a surrogate pair"),
        ("x" * 201 + ": 1", "more than 200 characters"),
    ],
)
def test_unreadable_text_is_one_clear_error(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, source="recipe.yaml")


def test_a_surrogate_pair_that_json_escapes_is_one_character():
    assert parse_yaml(json.dumps({"\U0001f600": "\U0001f600 \u202e"}), source="test") == {
        "\U0001f600": "\U0001f600 \u202e"
    }


NINE = "".join(f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}'])}]\n" for n in range(1, 12))
MERGES = "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: 1}}\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a0: &a0 [x]\n" + NINE, "aliases repeat as many"),
        ("a0: &a0 {k0: 1}\n" + MERGES, "aliases repeat as many"),
        ("".join(f"k{n}: 1\n" for n in range(400_000)), "more than 1,048,576 characters"),
        ("".join(f"k{n}: 1\n" for n in range(50_000)), "more than 2,000 values"),
        ("".join(f"k{n}: 1\n" for n in range(900)), "a section has 900 keys"),
        ("[" + "1," * 400_000 + "]", "more than 2,000 values"),
    ],
    ids=["aliases", "merges", "400,000 keys", "50,000 keys", "900 keys", "a long list"],
)
def test_a_text_that_would_take_minutes_or_gigabytes_is_refused_at_once(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, source="recipe.yaml")


def test_anchors_within_reason_are_expanded():
    text = "model: &same {path: m}\ndata: *same"
    assert parse_yaml(text, source="test") == {"model": {"path": "m"}, "data": {"path": "m"}}


def test_long_values_are_shortened_in_messages():
    assert shown("x" * 500).endswith("...")
    assert len(shown("x" * 500)) == 60
    assert shown([1]) == "[1]"
