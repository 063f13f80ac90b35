"""docs/recipe_keys.md is what the descriptions of the keys say."""

from pathlib import Path

from vcsd.config.key_reference import key_reference

PAGE = Path(__file__).parents[3] / "docs" / "recipe_keys.md"


def test_the_page_of_keys_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == key_reference()
