"""The watch writes every step once, shows it with or without a terminal, and stops a run that collapses."""

import io
import json
import math
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from rich.console import Console

from vcsd.errors import RunError
from vcsd.loss import Statistics
from vcsd.monitor import Guard, Signal, Watch, read_lines, thumbnails, training_bar
from vcsd.monitor.observation import Observation
from vcsd.monitor.samples import MOST_TOKENS
from vcsd.monitor.training_bar import SIX, TrainingBar
from vcsd.types import Example, Rollout


def observed(step, examples, batch, statistics, is_taken=True, loss=0.5, metrics=None, scored=()):
    """What a trainer shows of a step."""
    metrics = {"gradient_norm": 1.5, "seconds/rollout": 2.0} if metrics is None else metrics
    return Observation(step, is_taken, loss, examples, batch, statistics, metrics, scored)


class Letters:
    """A tokenizer whose tokens are characters; 0 ends an answer."""

    def decode(self, token_ids, skip_special_tokens):
        return "".join(chr(token) for token in token_ids if token or not skip_special_tokens)


def ids(text):
    return (*(ord(character) for character in text), 0)


def seen(step, *texts, **fields):
    examples = [
        Example(
            id=f"row-{place}",
            images=(Image.new("RGB", (4, 2)) if place else "images/a.png",),
            prompt=({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]},),
            answer="7",
        )
        for place in range(len(texts))
    ]
    rollouts = [
        Rollout(example_id=example.id, index=index, token_ids=ids(text), stop="end")
        for example, text in zip(examples, texts, strict=True)
        for index in range(2)
    ]
    ones = torch.ones(sum(len(rollout.token_ids) for rollout in rollouts))
    statistics = [Statistics(ones, ones, 2 * ones, ones > 0, ones, ones)]
    return observed(step, examples, SimpleNamespace(rollouts=rollouts), statistics, **fields)


@pytest.fixture
def watch(tmp_path):
    return Watch(tmp_path, Letters(), max_steps=90, min_rollouts=1)


def test_a_step_is_one_line_with_metrics_and_the_ids_of_what_was_seen(watch, tmp_path):
    found = watch.observe(seen(1, "Seven.", "七"))
    (line,) = read_lines(tmp_path / "metrics.jsonl")
    assert (line["step"], line["examples"], line["is_taken"]) == (1, ["row-0", "row-1"], True)
    assert (line["loss"], line["gradient_norm"], line["seconds/rollout"]) == (0.5, 1.5, 2.0)
    assert (line["kl_target_original"], line["length"], line["language_drift"]) == (2.0, 4.5, 0.5)
    assert found.items() <= line.items()


def test_samples_name_images_and_do_not_hold_them(watch, tmp_path):
    watch.observe(seen(1, "Seven.", "Eight."))
    first, second = read_lines(tmp_path / "samples.jsonl")
    assert (first["step"], first["example_id"], first["response"], first["stop"]) == (1, "row-0", "Seven.", "end")
    assert (first["images"], first["answer"]) == ([{"file": "images/a.png"}], "7")
    assert second["images"][0]["size"] == [4, 2]
    assert len(second["images"][0]["blake2b"]) == 32


def contrasted(*texts, order):
    """A step whose responses were scored in another order than they were sampled; each token has its own contrast."""
    step = seen(1, *texts)
    places = {(rollout.example_id, rollout.token_ids): place for place, rollout in enumerate(step.batch.rollouts[::2])}
    scored = [list(places)[place] for place in order]
    values = [[places[key] + 0.1 * place for place in range(len(key[1]))] for key in scored]
    halves = [torch.tensor(list(chain(*part))) for part in (values[:1], values[1:])]
    statistics = [Statistics(x, x, x, x > 0, x, x) for x in halves]
    return replace(step, statistics=statistics, scored=scored)


def test_contrasts_that_do_not_fit_the_responses_are_left_out_of_samples_and_the_run_continues(watch, tmp_path, caplog):
    step = contrasted("Seven.", "Eight.", order=[1, 0])
    watch.observe(replace(step, statistics=step.statistics[:1]))
    assert "so its samples show none" in caplog.text
    first, _ = read_lines(tmp_path / "samples.jsonl")
    assert not {"tokens", "contrast"} & first.keys()


def test_samples_hold_the_contrast_of_each_of_their_tokens_whatever_the_order_of_scoring(watch, tmp_path):
    watch.observe(contrasted("Seven.", "Eight", "No", order=[2, 0, 1]))
    lines = list(read_lines(tmp_path / "samples.jsonl"))
    assert [line["tokens"] for line in lines] == [[*"Seven.", "\0"], [*"Eight", "\0"], ["N", "o", "\0"]]
    for place, line in enumerate(lines):
        assert line["contrast"] == pytest.approx([place + 0.1 * token for token in range(len(line["tokens"]))])


def test_samples_of_a_method_without_a_control_have_no_contrast(watch, tmp_path):
    step = contrasted("Seven.", order=[0])
    watch.observe(replace(step, statistics=[replace(rows, realised_contrast=None) for rows in step.statistics]))
    (line,) = read_lines(tmp_path / "samples.jsonl")
    assert not {"tokens", "contrast"} & line.keys()


def test_long_responses_are_stored_up_to_a_limit(watch, tmp_path):
    watch.observe(contrasted("x" * 5000, order=[0]))
    (line,) = read_lines(tmp_path / "samples.jsonl")
    assert len(line["tokens"]) == len(line["contrast"]) == MOST_TOKENS


def test_sampled_images_are_kept_small_and_once(watch, tmp_path):
    large = Image.effect_noise((900, 300), 50).convert("RGB")
    step = seen(1, "Seven.", "Eight.", "Nine.")
    examples = [replace(example, images=(large,)) for example in step.examples]
    watch.observe(replace(step, examples=examples))
    (stored,) = {path for line in read_lines(tmp_path / "samples.jsonl") for path in line["thumbnails"]}
    assert [path.name for path in (tmp_path / "thumbnails").iterdir()] == [Path(stored).name]
    with Image.open(tmp_path / stored) as small:
        assert small.size == (192, 64)
        assert not small.getexif()


def test_thumbnails_have_a_limit_and_an_unreadable_image_has_none(watch, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(thumbnails, "MOST_FILES", 2)
    step = seen(1, *["Seven."] * 4)
    pictures = ["gone.png", *(Image.new("RGB", (8, 8), (9 * place, 0, 0)) for place in range(3))]
    examples = [replace(example, images=(one,)) for example, one in zip(step.examples, pictures, strict=True)]
    watch.observe(replace(step, examples=examples))
    assert [len(line["thumbnails"]) for line in read_lines(tmp_path / "samples.jsonl")] == [0, 1, 1, 0]
    assert len(list((tmp_path / "thumbnails").iterdir())) == 2
    assert "No thumbnail: " in caplog.text


def test_samples_are_taken_every_tenth_step(watch, tmp_path):
    for step in range(1, 22):
        watch.observe(seen(step, "Seven."))
    assert [line["step"] for line in read_lines(tmp_path / "samples.jsonl")] == [1, 10, 20]


def test_a_resumed_run_continues_after_the_step_of_its_checkpoint(watch, tmp_path, caplog):
    for step in range(1, 4):
        watch.observe(seen(step, "Seven."))
    state = json.loads(json.dumps(watch.state()))
    for step in range(4, 7):
        watch.observe(seen(step, "Lost."))
    resumed = Watch(tmp_path, Letters(), max_steps=90)
    resumed.restore(state, 3)
    assert "removed 3 lines; the run resumes at step 4" in caplog.text
    for step in range(4, 7):
        resumed.observe(seen(step, "Seven!"))
    assert [line["step"] for line in read_lines(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert [line["length"] for line in read_lines(tmp_path / "metrics.jsonl")] == [7] * 6
    assert resumed.state()["step"] == 6


def test_a_run_that_begins_again_in_the_same_folder_does_not_mix_with_the_first(watch, tmp_path, caplog):
    watch.observe(seen(1, "Old."))
    Watch(tmp_path, Letters(), max_steps=90).observe(seen(1, "Seven."))
    assert [line["length"] for line in read_lines(tmp_path / "metrics.jsonl")] == [7]
    assert "metrics.jsonl: removed 1 line; the run starts over." in caplog.text


def test_a_run_that_resumes_after_its_first_step_does_not_start_over(watch, tmp_path, caplog):
    watch.observe(seen(1, "Seven."))
    state = watch.state()
    watch.observe(seen(2, "Lost."))
    Watch(tmp_path, Letters(), max_steps=90).restore(state, 1)
    assert "metrics.jsonl: removed 1 line; the run resumes at step 2." in caplog.text


def test_a_step_that_was_not_taken_is_written_down_too(watch, tmp_path):
    watch.observe(observed(0, [], SimpleNamespace(rollouts=()), [], is_taken=False, loss=float("nan")))
    (line,) = read_lines(tmp_path / "metrics.jsonl")
    assert (line["is_taken"], line["loss"], line["examples"]) == (False, None, [])


def collapse(watch, num_steps=40):
    for step in range(1, num_steps + 1):
        watch.observe(seen(step, "Seven." if step <= 20 else "七" * 50))


def test_a_collapse_warns_keeps_samples_and_stops_with_advice(watch, tmp_path, caplog):
    with pytest.raises(RunError, match=r"collapsing: .*The last good step is 20\. Go back to a checkpoint"):
        collapse(watch)
    assert watch.last_good_step == 20
    assert "Step 21: The run may be collapsing" in caplog.text
    lines = list(read_lines(tmp_path / "metrics.jsonl"))
    assert (lines[20]["guard"], lines[-1]["guard"]) == ("warn", "stop")
    assert "language_drift rose from 0.0%" in " ".join(lines[-1]["findings"])
    assert {21, lines[-1]["step"]} <= {line["step"] for line in read_lines(tmp_path / "samples.jsonl")}


def test_a_step_with_few_rollouts_cannot_stop_a_run(tmp_path, caplog):
    collapse(Watch(tmp_path, Letters(), max_steps=90))
    assert caplog.text.count("The run continues: its steps have") == 1
    assert list(read_lines(tmp_path / "metrics.jsonl"))[-1]["guard"] == "stop"


def test_a_guard_may_be_told_not_to_stop_or_to_judge_nothing(tmp_path):
    collapse(Watch(tmp_path / "a", Letters(), max_steps=90, stops=False))
    collapse(Watch(tmp_path / "b", Letters(), max_steps=90, guard=Guard(())))
    assert any("guard" in line for line in read_lines(tmp_path / "a" / "metrics.jsonl"))
    assert not any("guard" in line for line in read_lines(tmp_path / "b" / "metrics.jsonl"))


@pytest.mark.parametrize("width", [80, 200])
def test_the_bar_shows_the_six_numbers_on_a_terminal_wide_or_not(tmp_path, width):
    screen = io.StringIO()
    bar = TrainingBar(Console(file=screen, force_terminal=True, width=width, color_system=None))
    with Watch(tmp_path, Letters(), max_steps=90, bar=bar) as watch:
        watch.observe(seen(1, "Seven."))
    assert "1/90" in screen.getvalue()
    fitting = [label for label in SIX if width >= 110 or label != "drift"]
    assert [label for label in SIX if f"{label} " in screen.getvalue()] == fitting
    assert "loss 0.5000 contrast 1.00 grad 1.5 length 7 repeat 0.0%" in screen.getvalue()
    assert "-:--:--" in screen.getvalue()  # the time left, before there is a pace


def test_without_a_terminal_the_same_numbers_go_to_the_log(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(training_bar, "LOG_EVERY_SECONDS", math.inf)
    caplog.set_level("INFO", logger="vcsd")
    screen = io.StringIO()
    watch = Watch(tmp_path, Letters(), max_steps=90, bar=TrainingBar(Console(file=screen, force_terminal=False)))
    for step in range(1, 11):
        watch.observe(seen(step, "Seven."))
    assert screen.getvalue() == ""
    assert "step 10 of 90, 0:00:00 left  loss 0.5000 contrast 1.00" in caplog.text
    assert "step 1 of 90  loss 0.5000" in caplog.text  # a sign of life; the pace is not known yet
    assert [message.split()[1] for message in caplog.messages if message.startswith("step")] == ["1", "10"]


def test_slow_steps_and_the_last_one_are_logged_too(tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", logger="vcsd")
    seconds = iter([0.0, 50.0, 100.0, 101.0])
    monkeypatch.setattr(training_bar.time, "monotonic", lambda: next(seconds))
    bar = TrainingBar(Console(file=io.StringIO(), force_terminal=False))
    bar.begin(0, 4)
    for step in range(1, 5):
        bar.step(step, {"loss": 0.5})
    assert [message.partition("  ")[0] for message in caplog.messages] == [
        "step 1 of 4",
        "step 3 of 4, 0:00:50 left",  # 100 s after the first line
        "step 4 of 4, 0:00:00 left",
    ]


def test_a_guard_with_own_signals_is_used(tmp_path):
    guard = Guard((Signal("gradient_norm", "growth", warn=2.0),))
    watch = Watch(tmp_path, Letters(), max_steps=90, guard=guard)
    for step in range(1, 31):
        watch.observe(seen(step, "Seven.", metrics={"gradient_norm": 1.0 if step <= 20 else 100.0}))
    assert list(read_lines(tmp_path / "metrics.jsonl"))[-1]["findings"] == ["gradient_norm grew from 1 to 100"]
