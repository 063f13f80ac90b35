"""docs/evaluation.md matches the code: its table, styles, options and recipe."""

import re
from pathlib import Path

from typer.testing import CliRunner

from vcsd.cli import app
from vcsd.config.recipe import build_recipe
from vcsd.config.yaml_text import parse_yaml
from vcsd.evaluation.asking.presets import parse_sampling
from vcsd.evaluation.benchmarks import BENCHMARKS
from vcsd.evaluation.benchmarks.prompt_styles import STYLES

PAGE = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text()


def test_the_table_names_every_benchmark_with_its_number_and_files():
    rows = dict(re.findall(r"^\| `(\w+)`(?: \(val\))? \| (\d+) \|", PAGE, flags=re.MULTILINE))
    assert {name: int(num) for name, num in rows.items()} == {
        n: layout.num_questions for n, layout in BENCHMARKS.items()
    }
    for benchmark in BENCHMARKS.values():
        assert all(f"`{file}`" in PAGE for file in benchmark.published.names)
        assert benchmark.published.parquet.dataset in PAGE


def test_every_style_and_every_option_it_names_exists():
    assert all(f"| `{style}` |" in PAGE for style in STYLES)
    options = set(re.findall(r"`(--[a-z0-9-]+)", PAGE)) | set(
        re.findall(r"^vcsd eval .*?(--[a-z]+)", PAGE, flags=re.MULTILINE)
    )
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app.app, ["eval", "--help"]).output
    assert len(options) > 8
    assert [option for option in options if option not in shown] == []


def test_its_recipe_is_one():
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    tree = {"model": {"path": "m"}, "data": {"path": "d"}, **parse_yaml(text, source="docs")}
    recipe = build_recipe(tree).evaluation
    assert (recipe.every, recipe.benchmarks, recipe.limit) == (30, ["VStarBench", "MMStar"], 200)
    assert parse_sampling(recipe.sampling).max_new_tokens == 1024
