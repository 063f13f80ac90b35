"""A run resumes only with the data, weights, tokenizer and template that it started with."""

import hashlib
import json
import logging
import shutil
from dataclasses import replace

import pytest

from tiny_examples import picture
from tiny_models import build_model
from tiny_processor import write_processor_files
from tiny_step import make_examples, make_trainer
from vcsd.data import load_examples
from vcsd.data.content import NUM_SAMPLED, cells_hash, examples_hash, images_hash
from vcsd.errors import ConfigError, DataError
from vcsd.models.processor import load_processor

SAVES = {"save_strategy": "steps", "max_steps": 1}


def write_rows(path, **changes):
    rows = [{"id": f"row-{i}", "question": f"how many, {i}?", "image": f"{i}.png", "answer": str(i)} for i in range(5)]
    rows[3] |= changes
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model's processor files, data in a file, and a run of one step on them."""
    folder = tmp_path_factory.mktemp("run")
    write_processor_files(folder / "model")
    for index in range(5):
        picture(64, 64).save(folder / f"{index}.png")
    write_rows(folder / "train.jsonl")
    trainer_in(folder).train()
    return folder


@pytest.fixture
def folder(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    return tmp_path / "copy"


def trainer_in(folder, **changes):
    processor = load_processor(folder / "model")
    given = {"processing_class": processor, "train_dataset": load_examples(folder / "train.jsonl"), **changes}
    return make_trainer(folder / "run", arguments=SAVES, **given)


def test_a_copy_of_everything_resumes(folder):
    trainer_in(folder).check_resume("auto")


@pytest.mark.parametrize(
    "change", [{"question": "how many, 9?"}, {"id": "row-9"}, {"answer": "9"}, {"image": "4.png"}], ids=str
)
def test_other_rows_of_the_same_number_are_refused(folder, change):
    write_rows(folder / "train.jsonl", **change)
    with pytest.raises(ConfigError, match=r"belongs to another run: the rows of the data changed. Restore"):
        trainer_in(folder).check_resume("auto")


def test_other_pixels_in_files_of_the_same_names_are_refused(folder):
    picture(32, 64).save(folder / "2.png")
    with pytest.raises(ConfigError, match=r"belongs to another run: the image files changed. Restore"):
        trainer_in(folder).check_resume("auto")


def test_a_checkpoint_that_recorded_no_images_resumes(folder):
    path = folder / "run" / "checkpoint-1" / "provenance.json"
    provenance = json.loads(path.read_text())
    assert provenance["content"].pop("images")
    size = path.stat().st_size
    path.write_text(json.dumps(provenance, indent=1))
    manifest = json.loads(path.with_name("manifest.json").read_text())
    entry = manifest["files"]["provenance.json"]
    assert entry["bytes"] == size
    entry |= {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    path.with_name("manifest.json").write_text(json.dumps(manifest))
    picture(32, 64).save(folder / "2.png")
    trainer_in(folder).check_resume("auto")


def test_images_are_sampled_over_all_rows_and_only_files_count(tmp_path):
    for number in range(2):
        picture(8, 6 + number).save(tmp_path / f"{number}.png")
    examples = [replace(example, images=(tmp_path / "0.png",)) for example in make_examples(1) for _ in range(130)]
    others = [replace(example, images=(tmp_path / "1.png",)) for example in examples]
    assert images_hash(examples) != images_hash(others)
    assert images_hash([*examples[:64], others[64], *examples[65:]]) != images_hash(examples)  # every second is read
    assert images_hash([*examples[:63], others[63], *examples[64:]]) == images_hash(examples)
    assert images_hash(make_examples(3)) is None
    (tmp_path / "0.png").unlink()
    assert images_hash(examples) != images_hash(others)


def test_other_weights_of_the_same_shapes_are_refused(folder):
    with pytest.raises(ConfigError, match=r"belongs to another run: the weights that the run starts from changed"):
        trainer_in(folder, model=build_model(seed=1)).check_resume("auto")


def test_an_edited_chat_template_is_refused(folder):
    path = folder / "model" / "chat_template.json"
    template = json.loads(path.read_text())["chat_template"]
    path.write_text(json.dumps({"chat_template": "{# edited #}" + template}))
    with pytest.raises(ConfigError, match=r"belongs to another run: the chat template changed. Restore"):
        trainer_in(folder).check_resume("auto")


def test_an_edited_tokenizer_is_refused(folder):
    path = folder / "model" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["added_tokens"][0]["lstrip"] = not content["added_tokens"][0]["lstrip"]
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"belongs to another run: the tokenizer changed. Restore"):
        trainer_in(folder).check_resume("auto")


def test_images_of_another_size_are_refused(folder):
    processor = load_processor(folder / "model", max_pixels=2**20)
    with pytest.raises(ConfigError, match=r"belongs to another run: the image sizes changed. Restore"):
        trainer_in(folder, processing_class=processor).check_resume("auto")


def test_a_checkpoint_from_before_resumes_with_a_warning(folder, caplog):
    path = folder / "run" / "checkpoint-1" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["files"]["provenance.json"]
    path.with_name("provenance.json").unlink()
    path.write_text(json.dumps(manifest))
    write_rows(folder / "train.jsonl", question="another one")
    with caplog.at_level(logging.WARNING):
        trainer_in(folder).check_resume("auto")
    assert "checkpoint-1 is from an earlier version, which did not record the content" in caplog.text


def test_examples_in_memory_are_hashed_with_their_pixels():
    examples = make_examples(5)
    assert examples_hash(examples) == examples_hash(make_examples(5))
    changes = [{"feedback": "no"}, {"id": "other"}, {"images": (picture(64, 32),)}, {"boxes": ((0, 0, 1, 1),)}]
    hashes = {examples_hash([replace(examples[0], **change), *examples[1:]]) for change in changes}
    assert len(hashes | {examples_hash(examples)}) == 5


def test_of_data_that_is_built_on_demand_only_some_rows_are_built():
    class Lazy:
        def __init__(self):
            self.asked = []

        def __len__(self):
            return 10_000

        def __getitem__(self, row):
            self.asked.append(row)
            if row % 2:
                raise DataError(f"lazy-{row}", "broken.")
            return make_examples(1)[0]

    rows = Lazy()
    assert examples_hash(rows) == examples_hash(Lazy())
    assert NUM_SAMPLED <= len(rows.asked) < 2 * NUM_SAMPLED


def test_cells_that_look_alike_have_different_hashes():
    cells = [["ab"], ["a", "b"], [["a", "b"]], [b"ab"], [{"a": "b"}], [1], ["1"], [None], ["None"], [True], []]
    assert len({cells_hash(cell) for cell in cells}) == len(cells)


def write_csv(path, rows):
    path.with_suffix(".csv").write_text("\n".join(["id,question", *(",".join(row.values()) for row in rows)]) + "\n")
    return path.with_suffix(".csv")


def write_parquet(path, rows):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.Table.from_pylist(rows), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def write_dataset(path, rows):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(rows).save_to_disk(str(path))
    return path


@pytest.mark.parametrize("write", [write_csv, write_parquet, write_dataset])
def test_every_format_has_a_hash_of_its_content(tmp_path, write):
    rows = [{"id": f"row-{index}", "question": f"how many of {index}?"} for index in range(5)]
    edited = [*rows[:4], {**rows[4], "question": "how many of 5?"}]
    paths = [write(tmp_path / f"data-{number}", given) for number, given in enumerate((rows, rows, edited))]
    sources = [load_examples(path, columns={"images": None}) for path in paths]
    hashes = [source.content_hash() for source in sources]
    assert hashes[0] == hashes[1] != hashes[2]
    assert len({source.fingerprint() for source in sources}) == 1
