import pytest

from vcsd.config import load_recipe
from vcsd.config.inherit import MAX_DEPTH
from vcsd.config.shipped import recipe_path, shipped_folder, shipped_names
from vcsd.errors import ConfigError
from vcsd.method import METHODS

BASE = "model: {path: m, max_pixels: 9}\ndata: {path: d}\nmethod: {alpha: 0.5, preset: author_code}\n"


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{next(iter(texts))}.yaml"


def problem(path):
    with pytest.raises(ConfigError) as error:
        load_recipe(path)
    (only,) = error.value.problems
    return only


def test_sections_merge_key_by_key_and_other_values_replace_the_bases(tmp_path):
    top = write(tmp_path, top="base: low.yaml\nmodel: {path: n}\nprompts_per_step: 4\n", low=BASE)
    recipe = load_recipe(top, ["model.min_pixels=3"])
    assert (recipe.model.path, recipe.model.max_pixels, recipe.model.min_pixels) == ("n", 9, 3)
    assert (recipe.prompts_per_step, recipe.data.path, recipe.method.alpha) == (4, "d", 0.5)


def test_a_base_is_found_next_to_the_file_that_names_it(tmp_path):
    (tmp_path / "inner").mkdir()
    write(tmp_path, low=BASE)
    middle = write(tmp_path / "inner", middle="base: ../low.yaml\nmethod: {beta: 0.2}\n")
    top = write(tmp_path, top=f"base: inner/{middle.name}\nmethod: {{alpha: 2}}\n")
    method = load_recipe(top).method
    assert (method.alpha, method.beta, method.temperature) == (2, 0.2, 1.0)


@pytest.mark.parametrize("section", ["opsd", "{name: opsd}"])
def test_another_method_inherits_nothing_from_the_bases_method(tmp_path, section):
    top = write(tmp_path, top=f"base: low.yaml\nmethod: {section}\n", low=BASE)
    assert load_recipe(top).method == METHODS["opsd"]


def test_fields_change_a_method_that_the_base_names_in_one_word(tmp_path):
    low = BASE.partition("method")[0] + "method: no_anchor\n"
    top = write(tmp_path, top="base: low.yaml\nmethod: {alpha: 2}\n", low=low)
    method = load_recipe(top).method
    assert (method.name, method.anchor, method.alpha) == ("no_anchor", 0.0, 2)


def test_a_users_recipe_can_start_from_a_shipped_one(tmp_path):
    top = write(tmp_path, top="base: paper/qwen3_vl_2b\ndata: {path: mine}\n")
    recipe, shipped = load_recipe(top), load_recipe("paper/qwen3_vl_2b")
    assert recipe.data.path == "mine"
    assert recipe.model == shipped.model


def test_recipes_that_start_from_one_another_are_an_error(tmp_path):
    top = write(tmp_path, a="base: b.yaml\n", b="base: a.yaml\n")
    assert "start from one another" in problem(top)


def test_a_long_chain_of_bases_is_an_error(tmp_path):
    texts = {f"r{n}": f"base: r{n + 1}.yaml\n" for n in range(MAX_DEPTH)}
    assert f"more than {MAX_DEPTH - 1} bases" in problem(write(tmp_path, **texts, **{f"r{MAX_DEPTH}": BASE}))
    texts.pop(f"r{MAX_DEPTH - 1}")
    assert load_recipe(write(tmp_path, **texts, **{f"r{MAX_DEPTH - 1}": BASE})).method.alpha == 0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("base: 3\n", "base = 3 in "),
        ("base: ''\n", "is not the path or name of a recipe"),
        ("base: low2.yaml\n", "neither such a file nor a shipped recipe"),
        ("base: paper/qwen3_vl_2c\n", "Did you mean 'paper/qwen3_vl_2b'?"),
        ("base: .\n", "neither such a file nor a shipped recipe"),
    ],
)
def test_a_base_that_is_no_recipe_is_explained_with_the_file_that_names_it(tmp_path, text, expected):
    found = problem(write(tmp_path, top=text))
    assert expected in found
    assert "top.yaml" in found


def test_an_override_cannot_set_the_base():
    with pytest.raises(ConfigError, match="base is read from a file only"):
        load_recipe("paper/qwen3_vl_2b", ["base=other.yaml"])


def test_a_list_is_not_merged_into_a_recipe(tmp_path):
    assert "is not a recipe: it has no sections" in problem(write(tmp_path, top="base: low.yaml\n", low="[1]\n"))


@pytest.mark.parametrize(
    "content",
    [
        "root:x:0:0:root\nhunter2:y",
        "hunter2: [",
        "hunter2",
        "- hunter2",
        "*hunter2",
        "!hunter2 x",
        "hunter2: 1\nhunter2: 2",
        "\x01hunter2",
        '"\\ud800hunter2": 1',
        "? [hunter2]\n: 1",
        "hunter2=abc\nx=4",
        '{"hunter2": "hunter2"}',
        "a: &hunter2 b\nc: *hunter3",
    ],
)
def test_the_error_for_a_base_that_is_a_private_file_shows_nothing_of_it(tmp_path, content):
    told = problem(write(tmp_path, top="base: low.yaml\n", low=content))
    assert "hunter" not in told
    assert "low.yaml" in told


def test_shipped_recipes_have_names_and_a_file_of_that_path_wins(tmp_path, monkeypatch):
    assert "world/demo" in shipped_names()
    assert not [name for name in shipped_names() if name.startswith("accelerate/")]
    assert recipe_path("world/demo") == recipe_path("world/demo.yaml") == shipped_folder() / "world/demo.yaml"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "world").mkdir()
    write(tmp_path / "world", demo=BASE)
    assert load_recipe("world/demo.yaml").model.path == "m"
