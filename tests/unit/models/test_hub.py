"""A model folder is data: its code never runs, and weights that it lacks are not made up."""

import ast
import io
import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import vcsd
from tiny_models import build_model
from tiny_processor import write_processor_files
from vcsd.errors import ConfigError
from vcsd.models.hub import load_model, require_image_model
from vcsd.models.processor import load_processor

SOURCES = sorted(Path(vcsd.__file__).parent.rglob("*.py"))


@pytest.fixture
def folder(tmp_path):
    build_model().save_pretrained(tmp_path / "model")
    write_processor_files(tmp_path / "model", "qwen3_vl")
    return tmp_path / "model"


def test_every_load_refuses_code_of_the_folder():
    loads = [
        (path.name, node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("from_pretrained", "from_config")
        and ast.unparse(node.func.value).startswith("Auto")
    ]
    assert len(loads) > 5
    trusting = [
        (name, node.lineno)
        for name, node in loads
        if ("trust_remote_code", "False") not in {(word.arg, ast.unparse(word.value)) for word in node.keywords}
    ]
    assert trusting == []


def test_nothing_reads_standard_input_but_init_which_asks_on_a_terminal():
    texts = [path.read_text(encoding="utf-8") for path in SOURCES if path.name != "init_command.py"]
    names = {node.id for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    assert "input" not in names
    assert not any("sys.stdin" in text for text in texts)


@pytest.mark.parametrize("model_type", ["qwen3_vl", "of_a_stranger"])
def test_code_in_a_folder_never_runs_even_if_standard_input_says_yes(folder, monkeypatch, model_type):
    """transformers asks on standard input whether to run it, unless told not to."""
    marker = folder / "ran"
    (folder / "stranger.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Any: pass\n")
    kinds = ("AutoConfig", "AutoModelForImageTextToText", "AutoImageProcessor", "AutoProcessor", "AutoTokenizer")
    names = dict.fromkeys(kinds, "stranger.Any") | {"AutoTokenizer": ["stranger.Any", None]}
    for file in ("config.json", "preprocessor_config.json", "tokenizer_config.json"):
        content = json.loads((folder / file).read_text()) | {"auto_map": names}
        if file == "config.json":
            content["model_type"] = model_type
        (folder / file).write_text(json.dumps(content))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    load_processor(folder)
    with nullcontext() if model_type == "qwen3_vl" else pytest.raises(ConfigError, match="cannot be loaded"):
        load_model(folder, torch.float32)
    assert sys.stdin.tell() == 0
    assert not marker.exists()


def test_a_folder_that_lacks_a_weight_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.language_model.layers.0.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"lack 1 weights of the model, such as model\.language_model\.layers\.0"):
        load_model(folder, torch.float32)


def cut(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def reshape(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.language_model.layers.0.mlp.up_proj.weight"] = torch.zeros(2, 2)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def pickle_only(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("damage", [cut, reshape, pickle_only, lambda folder: (folder / "config.json").unlink()])
def test_a_damaged_folder_is_one_sentence(folder, damage):
    damage(folder)
    with pytest.raises(ConfigError, match=r"the model in .* cannot be loaded: "):
        load_model(folder, torch.float32)


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000])
def test_a_damaged_configuration_is_one_sentence(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json (is not JSON|holds no JSON object).* Copy it from"):
        require_image_model(folder)


def test_a_whole_folder_loads_bit_for_bit(folder):
    expected, loaded = build_model().state_dict(), load_model(folder, torch.float32).state_dict()
    assert all(torch.equal(weight, loaded[name]) for name, weight in expected.items())
