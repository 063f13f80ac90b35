"""docs/views.md matches the code."""

import re
import runpy
from pathlib import Path

import pytest
import yaml

from vcsd.config.recipe import build_recipe
from vcsd.views import VIEWS
from vcsd.views.control import BLUR_FRACTION, NOISE_MEAN, NOISE_STD
from vcsd.views.hint import HINT
from vcsd.views.original import MAX_EXAMPLE_PIXELS, MAX_IMAGE_PIXELS
from vcsd.views.text import DEMONSTRATION, FEEDBACK

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "views.md").read_text()


@pytest.mark.parametrize("template", [HINT, DEMONSTRATION, FEEDBACK])
def test_the_page_quotes_the_wording(template: str) -> None:
    assert f"```text{template[1:]}\n```" in PAGE


def test_the_page_lists_every_view_and_every_constant() -> None:
    assert all(f"| `{view}` |" in PAGE for view in VIEWS)
    constants = {"NOISE_MEAN": NOISE_MEAN, "NOISE_STD": NOISE_STD, "BLUR_FRACTION": BLUR_FRACTION}
    assert all(f"| `{name}` | {value:g} |" in PAGE for name, value in constants.items())
    assert f"{MAX_IMAGE_PIXELS:,} pixels" in PAGE
    assert f"{MAX_EXAMPLE_PIXELS:,} pixels" in PAGE


def test_the_recipe_on_the_page_can_be_read() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    recipe = build_recipe({**yaml.safe_load(text), "model": {"path": "m"}, "data": {"path": "d"}})
    assert (recipe.method.target_view, recipe.method.contrast_view) == ("crop", "black")


def test_the_contact_sheet_can_be_drawn_and_is_small() -> None:
    sheet = runpy.run_path(str(ROOT / "examples" / "views.py"))["contact_sheet"]()
    assert sheet.size == (8 * 164 - 4, 136)
    assert (ROOT / "docs" / "views.png").stat().st_size < 60_000
