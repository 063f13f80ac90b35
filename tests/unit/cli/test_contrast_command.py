import json
import sys

import pytest
from PIL import Image
from typer.testing import CliRunner

from vcsd.bases.shipped_bases import shipped_base
from vcsd.cli import app
from vcsd.errors import ConfigError, install_command
from vcsd.inspect import opened
from vcsd.inspect.opened import world_question


def invoke(*arguments):
    return CliRunner().invoke(app.app, ["contrast", *map(str, arguments)], catch_exceptions=True)


def test_the_world_needs_no_further_argument_and_writes_what_the_ending_says(tmp_path):
    result = invoke("world", "--tiles", 3, "--token", 4, "--output", tmp_path / "a.json")
    assert result.exit_code == 0, result.output
    assert "The square is green as is the triangle." in result.output
    assert "Wrote" in result.output
    (model,) = json.loads((tmp_path / "a.json").read_text())["models"]
    assert model["name"] == "world"
    assert [one["candidate"]["text"] for one in model["tile_maps"]] == [" green", " red"]
    assert [len(one["support"]) for one in model["tile_maps"]] == [3, 3]


def test_a_picture_that_supports_no_token_is_said_to_give_no_map(tmp_path):
    Image.new("RGB", (96, 96)).save(tmp_path / "black.png")
    asked = ("--image", tmp_path / "black.png", "--question", "What color is the circle?", "--tiles", 3)
    result = invoke("world", *asked, "--output", tmp_path / "a.html")
    assert result.exit_code == 0, result.output
    assert "No token was mapped: the image makes none more likely by 0.01 nats." in " ".join(result.output.split())


def test_two_models_are_compared_on_the_first_ones_response(tmp_path):
    picture, question = world_question()
    picture.save(tmp_path / "a.png")
    asked = ("--image", tmp_path / "a.png", "--question", question, "--response", "The square is red.")
    result = invoke(shipped_base(), *asked, "--compare", "world", "--output", tmp_path / "a.json")
    assert result.exit_code == 0, result.output
    assert "world - qwen3_vl-small-1" in result.output
    first, second = json.loads((tmp_path / "a.json").read_text())["models"]
    assert first["tokens"] == second["tokens"]  # the same weights


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nowhere",), "--image is missing"),
        (("world", "--output", "a.doc"), "ends in '.doc'"),
        (("world", "--token", 2), "Add --tiles"),
        (("world", "--tiles", 3), "only .html and .json show. Add --output contrast.html"),
        (("world", "--tiles", 3, "--output", "a.svg"), "only .html and .json show"),
        (("world", "--control", "pink"), "contrast_view = 'pink'"),
        (("world", "--beta", "7"), "beta = 7.0 is outside"),
    ],
)
def test_bad_arguments_are_explained_before_a_model_is_loaded(arguments, problem):
    error = invoke(*arguments).exception
    assert isinstance(error, ConfigError)
    assert problem in str(error)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_figure_without_matplotlib_is_refused_before_a_model_is_loaded(ending, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(opened, "open_model", lambda *arguments, **more: pytest.fail("a model is loaded"))
    error = invoke("world", "--output", tmp_path / f"a.{ending}").exception
    assert isinstance(error, ConfigError)
    assert f".{ending} needs matplotlib" in str(error)
    assert install_command("eval") in str(error)
