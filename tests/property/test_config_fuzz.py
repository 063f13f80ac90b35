"""Whatever tree or text comes in: a Recipe or a ConfigError, never another exception."""

from hypothesis import given
from hypothesis import strategies as st

from vcsd.config.recipe import Recipe, build_recipe
from vcsd.config.yaml_text import parse_yaml
from vcsd.errors import ConfigError

KEYS = ["model", "data", "method", "rollout", "trainer", "path", "alpha", "beta", "name", "preset", "temperature"]
KEYS += ["top_p", "learning_rate", "max_steps", "loss_scale", "divergence", "contrast_view", "seed", "fsdp_config"]
WORDS = ["vcsd", "opsd", "paper", "author_code", "black", "none", "forward_kl", "reverse_kl", "1e-5", ""]

keys = st.sampled_from(KEYS) | st.text(max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=8)
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4))
groups = st.dictionaries(keys, trees, max_size=6)


def outcome(build, *arguments, **options):
    """What came of it: a value, or None for a ConfigError. Any other exception fails the test."""
    try:
        return build(*arguments, **options)
    except ConfigError:
        return None


@given(trees | groups)
def test_any_tree_is_a_recipe_or_a_config_error(tree):
    assert isinstance(outcome(build_recipe, tree), Recipe | None)


@given(groups, st.lists(st.text(max_size=12) | st.builds("{}.{}={}".format, keys, keys, scalars), max_size=4))
def test_any_overrides_are_applied_or_a_config_error(tree, overrides):
    good = {"model": {"path": "m"}, "data": {"path": "d"}}
    recipe = outcome(build_recipe, {**tree, **good}, overrides)
    assert recipe is None or build_recipe(parse_yaml(recipe.to_json(), source="itself")) == recipe


@given(st.text(alphabet="abc:{}[]&*!%@`'\"|>-? \n\t#,.0e1_~<", max_size=40) | st.text(max_size=40))
def test_any_text_is_plain_values_or_a_config_error(text):
    tree = outcome(parse_yaml, text, source="fuzz")
    assert isinstance(tree, dict | list | str | int | float | bool | None)
