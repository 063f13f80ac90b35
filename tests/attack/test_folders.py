"""Damaged and hostile files of a run or a model: refused with a clear error, or read as they were written."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from attacker import dumped, mutated, mutated_bytes, rng_of, text, value
from tiny_answers import option, say
from tiny_examples import example, picture
from tiny_models import build_model
from tiny_processor import build_processor, write_processor_files
from vcsd.checkpoint import (
    Contents,
    DamagedCheckpointError,
    TensorFile,
    check_checkpoint,
    latest_checkpoint,
    write_checkpoint,
)
from vcsd.checkpoint.check import latest_whole
from vcsd.checkpoint.folder import MANIFEST, checkpoints_of
from vcsd.evaluation.asking.predictions import PredictionFile
from vcsd.evaluation.scoring.compare import compare
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.evaluation.scoring.scorecard import Scorecard, load_scorecard
from vcsd.models.encode import encode
from vcsd.models.hub import load_model, refuse_unsafe
from vcsd.models.processor import load_processor, save_processor_files
from vcsd.monitor.lines import Lines, read_lines

NUM_CHECKPOINTS, NUM_ROOTS, NUM_LINES, NUM_RECORDS, NUM_PROCESSORS, NUM_MODELS = 1500, 150, 2000, 1000, 150, 60
NUM_STRANGERS = 1000

TENSORS = {"x": torch.arange(40.0).reshape(8, 5), "y": torch.ones(3, dtype=torch.bfloat16)}
TEXTS = {"run_state.json": json.dumps({"step": 3, "skips": {}}), "trainer_state.json": "{}"}
CONTENTS = Contents({"student.safetensors": TENSORS}, TEXTS, {"seed": 0, "method": {"alpha": 1.0}})


def damage(rng, path):
    """Change one file: its bytes, its kind, or its name."""
    kind = rng.random()
    if kind < 0.8:
        before = path.read_bytes()
        path.write_bytes(mutated_bytes(rng, before))
        return "bytes" if path.read_bytes() != before else None
    path.unlink()
    if kind < 0.85:
        path.mkdir()
    elif kind < 0.9:
        path.symlink_to(rng.choice(("nowhere", path.name, "/dev/null", "/")))
    elif kind < 0.95:
        path.write_bytes(b"")
    return "kind"


def test_a_damaged_checkpoint_is_noticed_or_as_it_was_written(tally, tmp_path):
    """A checkpoint that passes the check holds the tensors and texts that were written; any other is refused."""
    whole = write_checkpoint(tmp_path / "whole", 3, CONTENTS)
    for number in range(NUM_CHECKPOINTS):
        rng = rng_of("checkpoints", number)
        folder = tmp_path / "checkpoint-3"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        victim = rng.choice(sorted(folder.iterdir()))
        if victim.name == MANIFEST and rng.random() < 0.7:
            manifest = mutated(rng, json.loads(victim.read_text()), rate=0.05)
            victim.write_text(dumped(manifest))
        else:
            damage(rng, victim)
        with tally.case(victim.name):
            manifest = check_checkpoint(folder, {"seed": 0, "method": {"alpha": 1.0}}, needs=("student.safetensors",))
            loaded = dict(TensorFile(folder / "student.safetensors"))
            assert loaded.keys() == TENSORS.keys()
            assert all(torch.equal(loaded[name], tensor) for name, tensor in TENSORS.items())
            assert all(
                (folder / name).read_text() == words for name, words in TEXTS.items() if name in manifest["files"]
            )
            tally.note("as written")


def test_strange_files_next_to_checkpoints_do_not_hide_the_good_one(tally, tmp_path):
    """Strange neighbours of checkpoints neither hide the good one nor stop the next save."""
    names = (
        ".partial-foo",
        ".partial-checkpoint-9",
        ".old-checkpoint-1",
        ".replaced-checkpoint-1",
        "checkpoint-",
        "checkpoint-x",
        "checkpoint-007",
    )
    names += (
        "checkpoint-99",
        "checkpoint-" + "9" * 200,
        ".old-",
        "damaged-checkpoint-3",
        "checkpoint-3.bak",
        "\n",
        "a[red]",
    )
    for number in range(NUM_ROOTS):
        rng = rng_of("roots", number)
        root = tmp_path / "run"
        shutil.rmtree(root, ignore_errors=True)
        write_checkpoint(root, 3, CONTENTS)
        outside = tmp_path / "outside"
        outside.mkdir(exist_ok=True)
        (outside / "kept.txt").write_text("kept")
        for name in rng.sample(names, rng.randrange(1, 5)):
            make_neighbour(rng, root / name, outside)
        with tally.case(sorted(path.name for path in root.iterdir())):
            checkpoints_of(root)
            latest_checkpoint(root)
            found, _ = latest_whole(root, check_checkpoint)
            assert found == root / "checkpoint-3"
            write_checkpoint(root, 4, CONTENTS, limit=2)
            check_checkpoint(root / "checkpoint-4")
            assert (outside / "kept.txt").read_text() == "kept"
            tally.note("found and saved")


def make_neighbour(rng, path, outside):
    kind = rng.randrange(5)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.write_text("?")
    elif kind == 2:
        path.symlink_to(outside)
    elif kind == 3:
        path.symlink_to("nowhere")
    else:
        path.mkdir()
        (path / MANIFEST).write_text(dumped(value(rng)))


def test_a_damaged_record_is_refused_or_cut_back(tally, tmp_path):
    """Appending to a damaged metrics.jsonl, and cutting it back, keeps whole records or is refused."""
    path = tmp_path / "metrics.jsonl"
    records = [{"step": step, "loss": step / 7, "text": "é\u2028"} for step in range(1, 9)]
    first = (json.dumps(records[0]) + "\n").encode()
    for number in range(NUM_LINES):
        rng = rng_of("lines", number)
        changed = records if rng.random() < 0.5 else [mutated(rng, record, 0.05) for record in records]
        content = "".join(dumped(record) + "\n" for record in changed).encode()
        path.write_bytes(mutated_bytes(rng, content) if rng.random() < 0.7 else content)
        before = path.read_bytes()
        with tally.case(before):
            last = rng.choice((0, 3, 8, 2.5))
            Lines(path).keep_until("step", last)
            Lines(path).append({"step": 9, "loss": float("nan")})
            read = list(read_lines(path))
            assert read[-1] == {"step": 9, "loss": None}
            assert all(record.get("step", 0) <= last for record in read[:-1])
            if before.startswith(first) and last >= 1:
                assert read[0] == records[0]
            tally.note("kept")


def test_damaged_predictions_and_scorecards_are_refused_or_read_whole(tally, tmp_path):
    card = json.loads(small_scorecard().to_json())
    prediction = {
        "benchmark": "a",
        "question": "1",
        "key": "k",
        "text": "A",
        "stop": "end",
        "num_tokens": 1,
        "error": None,
    }
    for number in range(NUM_RECORDS):
        rng = rng_of("records", number)
        is_card = rng.random() < 0.5
        tree = mutated(rng, card if is_card else prediction, rate=rng.choice((0.005, 0.02, 0.1)))
        content = dumped(tree).encode() + b"\n" * (not is_card)
        if rng.random() < 0.3:
            content = mutated_bytes(rng, content)
        (tmp_path / "file").write_bytes(content)
        with tally.case(content):
            if is_card:
                read = load_scorecard(tmp_path / "file")
                assert Scorecard.from_json(read.to_json()) == read
                compare(read, read)
            else:
                PredictionFile(tmp_path / "file")
            tally.note("scorecard" if is_card else "predictions")


def small_scorecard():
    questions = [option(f"q{number}", "A", category="Counting") for number in range(4)]
    return score(questions, [say(f"q{number}", "AAB"[number % 3]) for number in range(4)], mode="exact")


def test_a_damaged_processor_is_refused_or_gives_the_same_prompt(tally, tmp_path):
    """A processor that loads can encode a prompt or says why not."""
    whole = write_processor_files(tmp_path / "whole")
    question = example(picture(32, 32))
    reference = encode(build_processor(), question).input_ids.tolist()
    for number in range(NUM_PROCESSORS):
        rng = rng_of("processors", number)
        folder = fresh_copy(whole, tmp_path / "model")
        victim = rng.choice(sorted(path for path in folder.iterdir() if path.is_file()))
        change_file(rng, victim)
        with tally.case(victim.name):
            encoded = encode(load_processor(folder), question, max_tokens=5000)
            tally.note("same prompt" if encoded.input_ids.tolist() == reference else "another prompt")


def test_damaged_weights_are_refused_or_come_from_the_file(tally, tmp_path):
    """A model that loads has all its weights from the file."""
    whole = tmp_path / "whole"
    build_model().save_pretrained(whole)
    for number in range(NUM_MODELS):
        rng = rng_of("models", number)
        folder = fresh_copy(whole, tmp_path / "model")
        victim = rng.choice(sorted(folder.iterdir()))
        change_file(rng, victim)
        with tally.case(victim.name):
            model = load_model(folder, torch.float32)
            assert not any(parameter.is_meta for parameter in model.parameters())
            tally.note("loaded")


def test_nothing_harmful_or_private_is_copied_from_a_model_folder(tally, tmp_path):
    """A folder names no code, pickle, other folder or private file, or it is refused; a copy holds nothing private."""
    private = tmp_path / "private"
    private.write_text("hunter2")
    whole = tmp_path / "whole"
    write_processor_files(whole)
    (whole / "config.json").write_text('{"model_type": "qwen3_vl", "text_config": {}, "vision_config": {}}')
    for number in range(NUM_STRANGERS):
        rng = rng_of("strangers", number)
        folder, copy = fresh_copy(whole, tmp_path / "model"), tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        is_harmful = make_harmful(rng, folder, private)
        with tally.case(number):
            refuse_unsafe(folder)
            save_processor_files(folder, copy)
            assert not is_harmful
            assert not [path for path in copy.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
            tally.note("copied")
    assert min(tally.counts[name] for name in ("copied", "ConfigError")) > 0


def make_harmful(rng, folder, private):
    """Change a model folder, and say whether it must be refused."""
    kind = rng.randrange(5)
    if kind == 0:  # code on the hub, somewhere in the configuration
        word = rng.choice(("someone/kernel", "a/b@main:c", "paged|x/y", "sdpa", "eager"))
        key = rng.choice(("attn_implementation", "_attn_implementation", "experts_implementation"))
        inner = {key: word if rng.random() < 0.6 else {"text_config": word}}
        tree = rng.choice((inner, {"text_config": inner}, {"a": [inner]}, {"vision_config": {"b": inner}}))
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_vl", **tree}))
        return "/" in word
    if kind == 1:  # weights elsewhere, or pickled
        good, bad = (
            "model-1.safetensors",
            ("../a.safetensors", "/a.safetensors", "pytorch_model.bin", "a/b.safetensors"),
        )
        file = rng.choice((good, good, *bad, 3, None, text(rng)))
        (folder / "model.safetensors.index.json").write_text(dumped({"weight_map": {"a": good, "b": file}}))
        return file != good
    name = rng.choice(("merges.txt", "vocab.json", "vocab.txt", "tokenizer.json", "additional_chat_templates/a.jinja"))
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == 2:
        os.mkfifo(path)
    elif kind == 3:  # through another link, or directly
        (folder / "inner").symlink_to(private.parent)
        path.symlink_to(rng.choice((private, folder / "inner" / private.name)))
    else:
        path.write_text(text(rng), errors="replace")
    return kind != 4


def fresh_copy(whole, folder):
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(whole, folder))


def change_file(rng, path):
    """Change a JSON file as a tree, any other as bytes."""
    if path.suffix == ".json" and path.stat().st_size < 50_000 and rng.random() < 0.8:
        tree = mutated(rng, json.loads(path.read_text()), rate=rng.choice((0.02, 0.1)))
        path.write_text(dumped(tree))
    elif path.suffix == ".jinja" and rng.random() < 0.5:
        path.write_text(path.read_text() + text(rng), errors="replace")
    else:
        damage(rng, path)


def test_damage_is_noticed(tally, tmp_path):
    """The attack itself can fail: a flipped bit in weights is always found."""
    for bit in range(32):
        folder = fresh_copy(write_checkpoint(tmp_path / f"{bit}", 3, CONTENTS), tmp_path / "copy")
        path = folder / "student.safetensors"
        content = bytearray(path.read_bytes())
        content[-1 - bit] ^= 1 << bit % 8
        path.write_bytes(content)
        with pytest.raises(DamagedCheckpointError):
            check_checkpoint(folder)
        tally.note("refused")
