"""A model folder from a stranger makes transformers run no code, read no pickle, and copies no private file."""

import json
import os
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tiny_models import build_model
from tiny_processor import write_processor_files
from vcsd.config.recipe import build_recipe
from vcsd.errors import ConfigError
from vcsd.models.hub import load_model
from vcsd.models.processor import load_processor, save_processor_files
from vcsd.projection.needs import empty_model


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "model"
    build_model().save_pretrained(folder)
    write_processor_files(folder)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "model")


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "values",
    [
        {"attn_implementation": "someone/kernel"},
        {"_attn_implementation": "someone/kernel"},
        {"attn_implementation": {"text_config": "someone/kernel"}},
        {"text_config": {"_attn_implementation": "someone/kernel@main:attention"}},
        {"experts_implementation": "someone/kernel"},
        {"attn_implementation": "flash_attention_2"},
    ],
)
def test_attention_from_the_hub_is_refused_before_transformers_would_download_and_run_it(folder, values):
    change(folder / "config.json", **values)
    recipe = build_recipe({"model": {"path": str(folder)}, "data": {"path": "d"}})
    for load in (
        lambda: load_model(folder, torch.float32),
        lambda: load_processor(folder),
        lambda: empty_model(recipe),
    ):
        with pytest.raises(ConfigError, match=r"_implementation.* names code on the hub, which is never run"):
            load()


class Evil:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "../elsewhere/model.safetensors", "/model.safetensors", 3, None])
def test_an_index_names_safetensors_files_of_its_folder_or_is_refused(folder, tmp_path, file, monkeypatch):
    monkeypatch.setattr(torch, "load", lambda *given, **more: pytest.fail("a pickle was opened"))
    (tmp_path / "elsewhere").mkdir()
    shutil.move(folder / "model.safetensors", tmp_path / "elsewhere")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    names = list(build_model().state_dict())
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, file)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match="Weights are read from safetensors files in the folder itself"):
        load_model(folder, torch.float32)
    assert not (tmp_path / "ran").exists()


def test_an_index_that_is_no_index_is_one_sentence(folder):
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')
    with pytest.raises(ConfigError, match="is not an index of weights"):
        load_model(folder, torch.float32)


def test_an_adapter_next_to_the_weights_is_refused(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else", "peft_type": "LORA"}')
    with pytest.raises(ConfigError, match="holds an adapter next to its weights"):
        load_model(folder, torch.float32)


@pytest.mark.parametrize("name", ["merges.txt", "vocab.json", "tokenizer.json", "additional_chat_templates/a.jinja"])
def test_a_link_to_a_private_file_is_neither_read_nor_copied(folder, tmp_path, name):
    (tmp_path / "private").write_text("hunter2")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "private")
    with pytest.raises(ConfigError, match=r"is a link to .*private, outside of the model's folder"):
        load_processor(folder)
    with pytest.raises(ConfigError, match="outside of the model's folder"):
        save_processor_files(folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_pipe_is_refused_before_a_run_instead_of_at_its_first_save(folder):
    os.mkfifo(folder / "merges.txt")
    with pytest.raises(ConfigError, match=r"merges.txt is not a file"):
        load_processor(folder)


def test_links_inside_a_folder_and_those_of_the_hubs_cache_are_followed(folder, tmp_path):
    (folder / "inner").mkdir()
    shutil.move(folder / "tokenizer.json", folder / "inner" / "tokenizer.json")
    (folder / "tokenizer.json").symlink_to("inner/tokenizer.json")
    load_processor(folder)
    cache = tmp_path / "models--a--b"
    snapshot = cache / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for number, file in enumerate(path for path in folder.iterdir() if path.is_file()):
        shutil.copy(file, cache / "blobs" / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    load_processor(snapshot)
    save_processor_files(snapshot, tmp_path / "copy")
    assert (tmp_path / "copy" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def change_weights(folder, change_tensor):
    """Rewrite one weight of a folder, and return its name."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    save_file({**tensors, name: change_tensor(tensors[name])}, path, metadata={"format": "pt"})
    return name


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder, number):
    def spoil(tensor):
        tensor.view(-1)[-1] = number
        return tensor

    name = change_weights(folder, spoil)
    with pytest.raises(ConfigError, match=rf"the weight {name} in .* holds NaN or infinity\. Download"):
        load_model(folder, torch.float32)


@pytest.mark.parametrize(("kind", "word"), [(torch.int8, "I8"), (torch.complex64, "C64"), (torch.bool, "BOOL")])
def test_weights_that_are_not_floating_point_numbers_are_refused(folder, kind, word):
    """transformers would convert them, and a model of rounded weights would load without a word."""
    name = change_weights(folder, lambda tensor: tensor.to(kind))
    with pytest.raises(ConfigError, match=f"'{name}' holds {word}, not floating-point numbers"):
        load_model(folder, torch.float32)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_in_any_floating_point_format_load(folder, kind):
    change_weights(folder, lambda tensor: tensor.to(kind))
    assert load_model(folder, torch.float32).dtype == torch.float32
