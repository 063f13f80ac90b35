"""A run from a file on disk, watched: what was seen, skipped and found is written down, and no step is told twice."""

import json
import shutil
from copy import deepcopy
from types import SimpleNamespace

import pytest

from tiny_examples import picture
from tiny_processor import build_processor
from tiny_step import make_trainer
from vcsd.data import Skips, load_examples
from vcsd.inspect import OpenedModel
from vcsd.inspect.token_scores import prompt_views, scored_tokens
from vcsd.monitor import Watch, read_lines
from vcsd.monitor.metrics import PER_TOKEN


@pytest.fixture
def rows(tmp_path):
    """Six rows, one of them without its image."""
    for number in range(5):
        picture(64, 64).save(tmp_path / f"{number}.png")
    lines = ({"id": f"row-{number}", "question": "how many?", "image": f"{number}.png"} for number in range(6))
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_examples(tmp_path / "train.jsonl")


def train(rows, run, max_steps, resume=None):
    skips = Skips(run / "skipped.jsonl")
    arguments = {"max_steps": max_steps, "save_strategy": "steps", "save_steps": 2}
    with Watch(run, build_processor().tokenizer, max_steps=max_steps) as watch:
        trainer = make_trainer(run, train_dataset=rows, skips=skips, monitors=[watch], arguments=arguments)
        trainer.train(resume)
    return trainer


PHASES = ("data", "rollout", "teacher", "student", "backward", "update")


def test_a_watched_run_writes_down_what_it_saw_skipped_and_found(rows, tmp_path):
    trainer = train(rows, tmp_path / "run", 4)
    lines = list(read_lines(tmp_path / "run" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        assert {*PER_TOKEN, "gradient_norm", "teacher_distance"} <= line.keys()
        assert {"length", "truncated", "repetition", "language_drift"} <= line.keys()
        assert {f"seconds/{phase}" for phase in PHASES} <= line.keys()
        assert set(line["examples"]) <= {f"row-{number}" for number in range(5)}
        assert len(set(line["examples"])) == 3
        assert line["loss"] == pytest.approx(4 * line["divergence"], rel=0.2), (
            "loss is scaled by the temperature squared"
        )
    first, *_ = read_lines(tmp_path / "run" / "skipped.jsonl")
    assert (first["id"], first["reason"]) == ("row-5", "missing_file")
    logged = [entry["kl_target_original"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == [line["kl_target_original"] for line in lines]


def test_the_contrast_of_a_sample_is_that_of_core(rows, tmp_path):
    """Rows of few tokens are packed in another order than their responses were sampled."""
    seen = []
    monitor = SimpleNamespace(observe=lambda step: seen.append(step) or {}, state=dict, restore=lambda *_: None)
    processor = build_processor()
    watch = Watch(tmp_path / "run", processor.tokenizer, max_steps=1)
    arguments = {"max_steps": 1, "save_strategy": "no"}
    options = {"train_dataset": rows, "monitors": [watch, monitor], "arguments": arguments, "token_budget": 80}
    trainer = make_trainer(tmp_path / "run", **options)
    opened = OpenedModel(deepcopy(trainer.model), processor, "start")
    trainer.train()
    assert len(seen[0].statistics) > 1
    examples = {example.id: example for example in seen[0].examples}
    firsts = {one.example_id: one.token_ids for one in seen[0].batch.rollouts if one.index == 0}
    lines = list(read_lines(tmp_path / "run" / "samples.jsonl"))
    assert len(lines) == 3
    for line in lines:
        ids = firsts[line["example_id"]]
        views = prompt_views(opened, examples[line["example_id"]], response=ids, method=trainer.method)
        scored = scored_tokens(views.scores, views.token_ids, views.objective, processor.tokenizer)
        assert line["tokens"] == [token.realised.text for token in scored]
        assert line["contrast"] == pytest.approx([token.realised.contrast for token in scored], abs=1e-4)
        assert (tmp_path / "run" / line["thumbnails"][0]).is_file()


def test_a_resumed_run_writes_the_lines_of_the_uninterrupted_one(rows, tmp_path):
    def told(run):
        lines = list(read_lines(tmp_path / run / "metrics.jsonl"))
        return [{key: value for key, value in line.items() if not key.startswith("seconds/")} for line in lines]

    def skipped(run):
        return list(read_lines(tmp_path / run / "skipped.jsonl"))

    whole = train(rows, tmp_path / "whole", 6)
    train(rows, tmp_path / "parts", 5)
    shutil.rmtree(tmp_path / "parts" / "checkpoint-5")  # as if it had been killed before: the next is that of step 4
    parts = train(rows, tmp_path / "parts", 6, resume="auto")
    assert parts.monitors[0].state() == whole.monitors[0].state(), "what the guard found usual is part of a checkpoint"
    assert told("parts") == told("whole")
    assert [line["step"] for line in told("parts")] == [1, 2, 3, 4, 5, 6]
    assert skipped("parts") == skipped("whole")


def test_a_run_that_died_before_its_first_checkpoint_leaves_no_skipped_rows_behind(rows, tmp_path):
    train(rows, tmp_path / "whole", 4)
    train(rows, tmp_path / "parts", 4)
    for checkpoint in (tmp_path / "parts").glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    train(rows, tmp_path / "parts", 4, resume="auto")
    first, again = (list(read_lines(tmp_path / run / "skipped.jsonl")) for run in ("whole", "parts"))
    assert first
    assert again == first
