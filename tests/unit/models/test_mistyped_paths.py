"""A mistyped path is answered with the folder that was meant, and never sent to the hub."""

import huggingface_hub
import pytest

from vcsd.data import load
from vcsd.errors import ConfigError, nearest_path
from vcsd.models.hub import model_folder


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Names that were asked of the hub, which knows nothing; what is downloaded already is looked up without it."""
    names = []

    def download(name, *, local_files_only=False):
        if not local_files_only:
            names.append(name)
        raise OSError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "runs" / "folder").mkdir(parents=True)
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "runs" / "notes.txt").touch()
    return names


def refusal(path):
    with pytest.raises(ConfigError) as raised:
        model_folder(path)
    return str(raised.value)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("runs/folderr", "runs/folder"),
        ("runs/Folder", "runs/folder"),
        ("./runs/folderr", "./runs/folder"),
        ("~/runs/folderr", "~/runs/folder"),
        ("runs/folderr/", "runs/folder"),
        ("run/folderr/", "runs/folder"),
    ],
)
def test_a_mistyped_path_names_the_folder_that_was_meant_and_does_not_reach_the_hub(asked, path, meant):
    text = refusal(path)
    assert "there is no such folder" in text
    assert f"Did you mean {meant!r}?" in text
    assert asked == []


def test_an_absolute_path_is_treated_alike(asked, tmp_path):
    assert f"Did you mean '{tmp_path}/runs/folder'?" in refusal(f"{tmp_path}/runs/foldr")
    assert asked == []


def test_a_folder_without_a_similar_name_is_listed(asked):
    assert "so the hub was not asked. 'runs' holds folder, other. If you mean a model on the hub: hf" in refusal(
        "runs/xyz"
    )
    assert asked == []


@pytest.mark.parametrize("path", ["model", "~nobody/model", "a/b/c", "../x/y", "a" * 5000, "a\0b/c"])
def test_what_cannot_be_a_hub_id_is_never_asked_for(asked, path):
    assert "there is no such folder" in refusal(path)
    assert asked == []


def test_a_path_whose_first_part_is_mistyped_does_not_reach_the_hub_either(asked):
    text = refusal("run/folder")
    assert "there is no such folder, but a similar one, so the hub was not asked. Did you mean 'runs/folder'?" in text
    assert "hf download run/folder --local-dir run/folder" in text
    assert asked == []


@pytest.mark.parametrize("name", ["run/xyz", "somebody/folder", "somebody/something"])
def test_a_name_that_may_be_on_the_hub_and_is_not_similar_to_a_folder_is_asked_for(asked, name):
    assert "nor a model on the hub that can be loaded: offline" in refusal(name)
    assert asked == [name]


def test_data_with_a_mistyped_folder_does_not_reach_the_hub(asked, monkeypatch):
    monkeypatch.setattr(load, "hub_dataset", lambda name, split: asked.append(name))
    with pytest.raises(ConfigError, match=r"no data at 'run/folder', but there is 'runs/folder', so the hub was not"):
        load.load_examples("run/folder")
    assert asked == []


def test_a_known_model_is_asked_for_although_a_folder_has_the_name_of_its_organization(asked, tmp_path):
    (tmp_path / "Qwen").mkdir()
    refusal("Qwen/Qwen3-VL-2B-Instruct")
    assert asked == ["Qwen/Qwen3-VL-2B-Instruct"]
    assert "so the hub was not asked" in refusal("Qwen/Mine")


def test_a_mistyped_file_is_answered_with_the_file(asked):
    assert nearest_path("runs/nots.txt", wants_file=True) == " Did you mean 'runs/notes.txt'?"
    assert nearest_path("nowhere/at/all", wants_file=True) == ""
