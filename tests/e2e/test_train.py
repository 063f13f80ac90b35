"""`vcsd train` and `vcsd export` on a tiny model, from files to files."""

import fcntl
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText

from forked_python import start_python
from tiny_examples import picture
from tiny_models import build_model
from tiny_processor import write_processor_files
from vcsd import run as run_module
from vcsd.batch import gather
from vcsd.cli import app
from vcsd.cli import preview as preview_module
from vcsd.config.recipe import load_recipe
from vcsd.models.freeze import part_of
from vcsd.models.processor import load_processor
from vcsd.monitor import SIGNALS
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings
from vcsd.types import Rollout

RECIPE = """
model: {{path: {folder}/model}}
data: {{path: {folder}/train.jsonl}}
rollout: {{num_per_prompt: 2, max_new_tokens: 6}}
prompts_per_step: 3
token_budget: 4000
trainer: {{max_steps: 4, save_steps: 2, learning_rate: 1e-3, warmup_steps: 1, use_cpu: true, bf16: false,
          output_dir: {folder}/run}}
"""

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """On a busy machine, few rows are checked within the seconds of a dry run."""
    monkeypatch.setattr(preview_module, "SECONDS_CHECKED", 3600.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder, data with one broken row, and a recipe."""
    folder = tmp_path_factory.mktemp("e2e")
    build_model().save_pretrained(folder / "model")
    write_processor_files(folder / "model")
    rows = []
    for index in range(7):
        picture(64 + 32 * (index % 2), 64).save(folder / f"{index}.png")
        image = f"{index}.png" if index != 3 else "missing.png"
        rows.append({"id": f"row-{index}", "question": f"how many, {index}?", "image": image, "answer": str(index)})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder))
    return folder


def vcsd(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["vcsd", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        app.main()
    shown = capsys.readouterr()
    return stop.value.code, shown.out, shown.err


def test_a_dry_run_says_what_would_happen_and_changes_nothing(folder, monkeypatch, capsys):
    code, out, _ = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", "--dry-run")
    assert code == 0
    words = " ".join(out.split())
    assert len(out.splitlines()) <= 24
    assert max(map(len, out.splitlines())) <= 80
    assert "7 rows" in words
    assert "student (original, " in words
    assert "how many, " in words
    assert "contrast (black, " in words
    assert words.count("the same text") == 2
    assert "steps 4, each 3 prompts x 2 rollouts of up to 6 tokens" in words
    assert "machine cpu, this machine" in words
    assert "MiB per checkpoint, every 2 steps, keeping 2" in words
    assert "per step" in words
    assert '"prompts_per_step"' not in out
    assert "rows checked all 7, with their images: 1 cannot be used and would be skipped (1 missing_file)." in words
    assert not (folder / "run").exists()


def dry_run_of(folder, images, data, monkeypatch, capsys, *overrides):
    """The exit code and the words of a dry run on questions about these images."""
    rows = ({"id": f"row-{number}", "question": "how many?", "image": image} for number, image in enumerate(images))
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    picture(64, 64).save(data / "whole.png")
    (data / "broken.png").write_bytes((data / "whole.png").read_bytes()[:60])
    arguments = ("train", folder / "recipe.yaml", f"data.path={data}/train.jsonl", "--dry-run", *overrides)
    code, out, err = vcsd(monkeypatch, capsys, *arguments)
    return code, " ".join((out + err).split())


def test_a_dry_run_decodes_the_images_of_the_first_rows(folder, tmp_path, monkeypatch, capsys):
    images = ["whole.png"] * 120
    _, words = dry_run_of(folder, images, tmp_path, monkeypatch, capsys)
    assert "rows checked all 120, with their images: all can be used" in words
    code, words = dry_run_of(folder, [*images, "broken.png"], tmp_path, monkeypatch, capsys)
    assert code == 0
    assert "with their images: 1 cannot be used and would be skipped (1 broken_image). The first: example" in words
    assert "'row-120': " in words
    code, words = dry_run_of(folder, [*images[:9], "broken.png"] * 30, tmp_path, monkeypatch, capsys)
    assert code == 2
    assert "rows read so far cannot be used" in words
    assert "broken_image), more than 5%." in words
    assert "problems:" not in words  # each row is an example of the one problem
    assert "data.max_skipped_share. The others: example 'row-" in words


def test_a_full_screen_still_shows_the_question(folder, tmp_path, monkeypatch, capsys):
    images = ["whole.png", *[f"{'a' * 40}{number}.png;{'b' * 40}.png" for number in range(4)], None]
    shares = ("data.max_skipped_share=0.99", "prompts_per_step=1", "--card", "24GB")
    code, words = dry_run_of(folder, images, tmp_path, monkeypatch, capsys, *shares)
    assert code == 0
    assert "how many?" in words
    target = re.search(r"target (\(original, \d+ tokens\)), contrast (\(black, \d+ tokens\)): the same text", words)
    assert target, words


def test_a_dry_run_finds_an_image_that_the_processor_refuses(folder, tmp_path, monkeypatch, capsys):
    Image.new("RGB", (20000, 10)).save(tmp_path / "strip.png")
    _, words = dry_run_of(folder, ["whole.png"] * 9 + ["strip.png"], tmp_path, monkeypatch, capsys)
    assert "checked all 10, with their images: 1 cannot be used and would be skipped" in words
    assert "'row-9': " in words


def test_a_dry_run_counts_rows_that_the_method_cannot_use(folder, tmp_path, monkeypatch, capsys):
    images = ["whole.png"] * 60
    code, words = dry_run_of(folder, [*images, None], tmp_path, monkeypatch, capsys)
    assert code == 0
    assert "1 cannot be used and would be skipped (1 unusable). The first: example 'row-60': " in words
    code, words = dry_run_of(folder, [*images, *[None] * 60], tmp_path, monkeypatch, capsys)
    assert code == 2
    assert "unusable), more than 5%." in words


def test_a_dry_run_counts_the_later_epochs_of_a_short_file(folder, tmp_path, monkeypatch, capsys):
    images = [*["whole.png"] * 12, *["broken.png"] * 3]
    code, words = dry_run_of(folder, images, tmp_path, monkeypatch, capsys)
    assert code == 0  # 4 steps of 3 prompts end before the share counts
    assert "checked all 15, with their images: 3 cannot be used and would be skipped (3 broken_image)." in words
    for num_steps in (30, 60):  # 90 prompts are used of 112 rows that are read
        code, words = dry_run_of(folder, images, tmp_path, monkeypatch, capsys, f"trainer.max_steps={num_steps}")
        assert code == 2
        assert "3 of the 15 rows read so far cannot be used (3 broken_image), more than 5%." in words
        assert all(f"'row-{number}': " in words for number in (12, 13, 14))


def test_a_dry_run_refuses_data_with_fewer_usable_rows_than_a_step_needs(folder, tmp_path, monkeypatch, capsys):
    code, words = dry_run_of(folder, ["whole.png", "whole.png", "broken.png"], tmp_path, monkeypatch, capsys)
    assert code == 2
    assert "a step needs 3 different examples, but the data has only 2 usable ones (3 rows; 1 broken_image)." in words
    assert "The last row that was skipped: example 'row-2': " in words


def test_a_dry_run_without_weights_still_checks_the_data(folder, tmp_path, monkeypatch, capsys):
    arguments = ("--dry-run", "model.path=Qwen/Qwen3-VL-2B-Instruct")
    code, out, _ = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", *arguments)
    words = " ".join(out.split())
    assert code == 0
    assert "7 rows. 7 examples with id, prompt from 'question', images from 'image', answer. Prompts of 1,0" in words
    assert "rows checked all 7, with their images: 1 cannot be used and would be skipped (1 missing_file)." in words
    mistyped = f"data.path={folder}/trian.jsonl"
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", "--dry-run", mistyped)
    assert code == 2
    assert f"Did you mean '{folder}/train.jsonl'?" in " ".join(err.split())
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", *arguments, "prompts_per_step=8")
    assert code == 2
    assert "the data has only 7 rows" in err


def test_a_dry_run_reads_a_bounded_number_of_rows_for_a_bounded_time(folder, tmp_path, monkeypatch, capsys):
    for name, value, number in (("ROWS_CHECKED", 10, 10), ("SECONDS_CHECKED", 0.0, 1)):
        monkeypatch.setattr(preview_module, name, value)
        _, words = dry_run_of(folder, ["whole.png"] * 40, tmp_path, monkeypatch, capsys)
        assert f"rows checked {number} of 40, with their images: all can be used" in words


def test_a_dry_run_as_json_has_the_recipe_and_every_prompt_in_full(folder, monkeypatch, capsys):
    code, out, _ = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", "--dry-run", "--json")
    assert code == 0
    tree = json.loads(out)
    assert tree["recipe"]["prompts_per_step"] == 3
    assert (tree["rows_checked"]["num_checked"], tree["rows_checked"]["summary"]) == (7, "1 missing_file")
    assert [prompt["role"] for prompt in tree["prompts"]] == ["student", "target", "contrast"]
    assert all(prompt["text"].startswith("<|im_start|>user") for prompt in tree["prompts"])
    assert tree["is_this_machine"] is True
    assert tree["projection"]["seconds"] > 0


def test_a_plan_for_a_card_needs_no_gpu_for_bf16(folder, monkeypatch, capsys):
    arguments = ("train", folder / "recipe.yaml", "--dry-run", "trainer.bf16=true", "--card", "24GB")
    code, out, err = vcsd(monkeypatch, capsys, *arguments)
    assert code == 0, err
    assert "RTX 4090: fits (projected)" in out
    for option in (("--card", "24GB"), ("--json",)):
        code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", *option)
        assert code == 2
        assert "Add --dry-run." in err


def test_a_dry_run_says_what_offload_moves_to_the_host(folder, monkeypatch, capsys):
    arguments = ("train", folder / "recipe.yaml", "--dry-run", "offload=true")
    code, out, _ = vcsd(monkeypatch, capsys, *arguments, "trainer.bf16=true", "--card", "24GB")
    assert code == 0
    assert "MiB of host memory" in " ".join(out.split())
    code, _, err = vcsd(monkeypatch, capsys, *arguments, "trainer.bf16=false")
    assert code != 0
    assert "Set trainer.bf16: true, or offload: false." in " ".join(err.split())


def test_a_dry_run_shows_the_hint_to_the_teacher_alone(folder, monkeypatch, capsys):
    _, out, _ = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", "method=opsd", "--dry-run", "--json")
    student, target = json.loads(out)["prompts"]
    assert (student["view"], target["view"]) == ("original", "hint")
    assert "Reference answer" not in student["text"]
    assert "Reference answer" in target["text"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("token_budget=20", "token_budget = 20 is less than the first prompt with one full response"),
        ("model.freeze_vision=true model.freeze_projector=true model.freeze_language=true", "nothing to train"),
        ("prompts_per_step=8", "prompts_per_step = 8, but the data has only 7 rows"),
        ("data.columns={prompt: problem}", "columns.prompt = 'problem' is not a column"),
        ("trainer.auto_find_batch_size=true", "The token budget is halved when out of memory"),
        ("model.chat_template_kwargs={enable_thinking: false}", "the chat template has no such switch"),
        ("method.target_view=crop", "train.jsonl lacks it. Add it, set data.columns.boxes to another column"),
        ("method=opsd data.columns={answer: null}", "method.target_view = 'hint' shows the column 'answer', but "),
    ],
)
def test_what_cannot_run_is_refused_before_it_starts(folder, monkeypatch, capsys, override, message):
    overrides = override.split(maxsplit=override.count("=") - 1)
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", *overrides, "--dry-run")
    assert code == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("view", ["hint", "crop", "crop_added", "demonstration", "feedback"])
def test_a_recipe_can_show_the_teacher_whatever_the_data_has(folder, monkeypatch, capsys, view):
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    more = {"boxes": [[4, 4, 40, 40]], "demonstration": "it is one", "feedback": "count again"}
    (folder / "more.jsonl").write_text("".join(json.dumps({**row, **more}) + "\n" for row in rows))
    chosen = (f"data.path={folder}/more.jsonl", f"method.target_view={view}", "trainer.max_steps=1")
    output = f"trainer.output_dir={folder}/{view}"
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", *chosen, output)
    assert code == 0, err
    (step,) = map(json.loads, (folder / view / "metrics.jsonl").read_text().splitlines())
    assert step["is_taken"]
    assert step["loss"] > 0


def test_a_model_that_is_nowhere_is_named(folder, monkeypatch, capsys):
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", "model.path=/nowhere/at/all", "--dry-run")
    assert code == 2
    assert "model.path = '/nowhere/at/all': there is no such folder" in err


@pytest.mark.parametrize("override", ["trainer.max_steps=4", "data.path={folder}/unusable.jsonl", "resume=2"])
def test_a_second_process_changes_nothing_in_the_folder_of_a_run(folder, tmp_path, monkeypatch, capsys, override):
    (folder / "unusable.jsonl").write_text(json.dumps({"question": "a", "image": "missing.png", "answer": "b"}) + "\n")
    run = tmp_path / "run"
    (run / "checkpoint-2").mkdir(parents=True)
    (run / "metrics.jsonl").write_text('{"step": 1}\n')
    (run / ".lock").write_text("process 7 on elsewhere\n")
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with (run / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        overrides = [override.format(folder=folder), f"trainer.output_dir={run}", "prompts_per_step=1"]
        code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", *overrides)
    assert code == 2
    assert "is in use by process 7 on elsewhere. Wait for it" in " ".join(err.split())
    assert {path: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    assert not list((run / "checkpoint-2").iterdir())


def test_a_run_explains_itself_goes_on_and_is_exported(folder, monkeypatch, capsys, caplog):
    caplog.set_level("INFO", logger="vcsd")
    code, out, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", "trainer.max_steps=2")
    assert code == 0, err
    assert "Finished 2 steps." in out
    run = folder / "run"
    assert f"Next: `vcsd eval {run} --tsv FILE` measures the student, `vcsd export {run}` writes it." in out
    code, out, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml")
    assert code == 0, err
    assert "Finished 4 steps." in out
    assert f"Resuming from {run / 'checkpoint-2'}, after step 2 of 4." in caplog.text
    names = {path.name for path in run.iterdir()}
    assert names >= {"config.json", "metrics.jsonl", "samples.jsonl", "skipped.jsonl", "checkpoint-2", "checkpoint-4"}
    assert "has finished: step 4 of 4." in (run / "report.html").read_text()
    assert "torch" in json.loads((run / "environment.json").read_text())
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics] == [1, 2, 3, 4]
    assert all("gradient_norm" in line and "seconds/rollout" in line for line in metrics)
    assert "row-3" in (run / "skipped.jsonl").read_text()
    code, out, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml")
    assert code == 0, err
    assert f"All 4 steps of {run} are finished already." in caplog.text
    assert "Finished" not in out
    assert sorted(path.name for path in run.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4"]
    for what in ("student", "teacher"):
        code, out, err = vcsd(monkeypatch, capsys, "export", run, "--what", what, "--dtype", "float32")
        assert code == 0, err
        assert "checkpoint-4" in out
        load_processor(run / what)
    code, out, err = vcsd(monkeypatch, capsys, "export", run / "checkpoint-2")  # it may be removed, its export not
    assert code == 0, err
    load_processor(run / "student-2")
    student, teacher, start = (
        AutoModelForImageTextToText.from_pretrained(path)
        for path in (run / "student", run / "teacher", folder / "model")
    )
    gaps = [
        sum((a - b).norm() ** 2 for a, b in zip(x.parameters(), y.parameters(), strict=True)).sqrt()
        for x, y in ((student, start), (teacher, start), (student, teacher))
    ]
    assert gaps[0] > gaps[1] > 0
    assert gaps[2] > 0
    assert isinstance(gaps[0], torch.Tensor)


def test_an_interrupted_run_says_how_it_goes_on(folder, monkeypatch, capsys):
    original = run_module.DistillationTrainer.training_step

    def interrupted(trainer, *given):
        if trainer.state.global_step == 3:
            raise KeyboardInterrupt
        return original(trainer, *given)

    monkeypatch.setattr(run_module.DistillationTrainer, "training_step", interrupted)
    given = ("train", folder / "recipe.yaml", f"trainer.output_dir={folder / 'stopped'}")
    code, out, _ = vcsd(monkeypatch, capsys, *given)
    assert code == 130
    assert f"The same command resumes from {folder / 'stopped' / 'checkpoint-2'}." in out
    monkeypatch.setattr(run_module.DistillationTrainer, "training_step", original)
    code, out, err = vcsd(monkeypatch, capsys, *given)
    assert code == 0, err
    assert "Finished 4 steps." in out
    assert f"(missing_file); see {folder / 'stopped' / 'skipped.jsonl'}." in out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_preempted_run_saves_its_step_says_so_and_resumes(folder, monkeypatch, capsys, number, code):
    output = folder / number.name
    given = ("train", folder / "recipe.yaml", f"trainer.output_dir={output}", "trainer.save_steps=1000")
    python = start_python("-m", "vcsd", *given, "trainer.max_steps=100000")
    while python.process.is_alive() and not (output / "metrics.jsonl").is_file():
        time.sleep(0.05)
    os.kill(python.process.pid, number)
    ended = python.wait()
    out, err = ended.stdout, ended.stderr
    assert ended.returncode == code, err
    (checkpoint,) = output.glob("checkpoint-*")
    assert f"Stopped by {number.name}. The same command resumes from {checkpoint}." in out
    assert f"Saved {checkpoint.name}, as {number.name} asked." in err
    steps = int(checkpoint.name.removeprefix("checkpoint-"))
    assert len((output / "metrics.jsonl").read_text().splitlines()) == steps
    code, out, err = vcsd(monkeypatch, capsys, *given, f"trainer.max_steps={steps + 1}")
    assert code == 0, err
    assert f"Finished {steps + 1} steps." in out


def test_every_key_of_a_recipe_reaches_the_run(folder):
    changes = {
        **{"model.freeze_vision": "true", "model.dither": "true", "trainer.bf16": "true"},
        **{"data.max_prompt_tokens": 900, "data.max_skipped_share": 0.4},
        **{"method.alpha": 0.5, "guard": "warn", "trainer.seed": 7, "trainer.data_seed": 8, "trainer.max_steps": 1},
        **{"rollout.temperature": 0.7, "rollout.top_p": 0.9, "rollout.top_k": 50, "token_budget": 3000},
        "trainer.output_dir": folder / "keys",
    }
    recipe = load_recipe(folder / "recipe.yaml", [f"{key}={value}" for key, value in changes.items()])
    trainer = run_module.train(run_module.load(recipe))
    sampling = Sampling(max_new_tokens=6, temperature=0.7, top_p=0.9, top_k=50)
    assert trainer.rollout == RolloutSettings(sampling, num_per_prompt=2, seed=7)
    assert trainer.stream.order.seed == 8
    assert (trainer.method.alpha, trainer.prompts_per_step, trainer.progress.token_budget) == (0.5, 3, 3000)
    assert trainer.prompt_settings["max_tokens"] == 900
    frozen = {part_of(name) for name, weight in trainer.model.named_parameters() if not weight.requires_grad}
    assert frozen == {"vision"}
    assert trainer.dither
    (watch,) = trainer.monitors
    assert (watch._stops, len(watch.guard.signals)) == (False, len(SIGNALS))
    assert trainer.stream.skips._max_share == 0.4


def test_what_the_machine_cannot_hold_is_refused(folder, monkeypatch, capsys):
    monkeypatch.setattr(preview_module, "_memory_of", lambda device: 1000)
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", "--dry-run")
    assert code == 2
    assert "weights, teacher, gradients and moments need" in err


def test_a_changed_recipe_does_not_go_on_from_another_runs_checkpoint(folder, monkeypatch, capsys):
    train = ("train", folder / "recipe.yaml", f"trainer.output_dir={folder / 'changed'}", "trainer.max_steps=2")
    code, _, _ = vcsd(monkeypatch, capsys, *train)
    assert code == 0
    before = (folder / "changed" / "config.json").read_text()
    (folder / "changed" / "report.html").unlink()
    code, out, err = vcsd(monkeypatch, capsys, *train, "method.alpha=0.5")
    assert code == 2
    assert "method.alpha was 1.0 and is now 0.5" in err
    assert "report" not in out
    for more in ((), ("--dry-run",)):
        code, out, err = vcsd(monkeypatch, capsys, *train, "resume=never", *more)
        assert code == 2
        assert "already holds checkpoint-2, but resume = never. Set resume=auto to resume from it, or" in err
        assert out == ""
    _, out, _ = vcsd(monkeypatch, capsys, *train, "--dry-run")
    assert "all are finished already, so nothing would be trained" in " ".join(out.split())
    assert "per step (" not in out
    _, out, _ = vcsd(monkeypatch, capsys, *train[:-1], "--dry-run")
    assert "resumes after step 2 if the settings are unchanged" in " ".join(out.split())
    assert not (folder / "changed" / "report.html").exists()
    assert (folder / "changed" / "config.json").read_text() == before


def test_a_run_in_which_no_step_was_taken_fails(folder, monkeypatch, capsys):
    def silent(engine, shown, rollouts, step, **_):
        return gather(shown, [Rollout(prompt.example.id, 0, (), "end") for prompt in shown])

    monkeypatch.setattr("vcsd.trainer.drawing.sample", silent)
    given = ("train", folder / "recipe.yaml", f"trainer.output_dir={folder / 'idle'}")
    for _ in ("first", "again, though it is complete"):
        code, out, err = vcsd(monkeypatch, capsys, *given)
        assert code == 2
        assert "none of the 4 steps was taken: 4 had no response to train on and 0 no finite loss" in err
        assert "Finished" not in out


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("data", "train.jsonl cannot be read any more"),
        ("run folder", "could not be written"),
    ],
)
def test_what_vanishes_during_a_run_is_named_in_one_sentence(folder, monkeypatch, capsys, tmp_path, what, message):
    for path in folder.glob("*.*"):
        shutil.copy(path, tmp_path)
    original = run_module.DistillationTrainer.training_step

    def vanish(trainer, *given):
        if trainer.state.global_step == 1:
            if what == "data":
                (tmp_path / "train.jsonl").unlink()
            else:
                monkeypatch.setattr("vcsd.checkpoint.folder.write_text", gone)
        return original(trainer, *given)

    def gone(path, text):
        shutil.rmtree(tmp_path / "run")
        path.write_text(text)

    monkeypatch.setattr(run_module.DistillationTrainer, "training_step", vanish)
    places = (f"data.path={tmp_path}/train.jsonl", f"trainer.output_dir={tmp_path}/run")
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", *places)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "skipped.jsonl", ".lock"])
def test_a_file_that_cannot_be_written_is_named_in_one_sentence(folder, monkeypatch, capsys, tmp_path, name):
    (tmp_path / name).mkdir()
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", f"trainer.output_dir={tmp_path}")
    assert code == 2
    assert name in err
    assert "Traceback" not in err


def test_a_folder_that_cannot_be_written_is_named_before_weights_are_loaded(folder, monkeypatch, capsys):
    monkeypatch.setattr("vcsd.run.load_model", lambda *_: pytest.fail("weights were loaded"))
    code, _, err = vcsd(monkeypatch, capsys, "train", str(folder / "recipe.yaml"), "trainer.output_dir=/proc/run")
    assert code == 2
    assert "/proc/run cannot be written to: " in err
    assert "Choose another folder." in err


def test_a_dry_run_says_that_the_place_of_the_run_cannot_be_written_to_or_is_full(folder, monkeypatch, capsys):
    given = ("train", folder / "recipe.yaml", "--dry-run", f"trainer.output_dir={folder}/never")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: path != folder)
        code, _, err = vcsd(patch, capsys, *given)
    assert code == 2
    assert f"trainer.output_dir = '{folder}/never': {folder} cannot be written to. Choose another." in err
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**26))
    code, _, err = vcsd(monkeypatch, capsys, *given)
    assert code == 2
    assert "a checkpoint needs 0.0" in err
    assert "GiB with a reserve of 64 MiB, but" in err
    assert "has 0.06 GiB left." in err


def test_a_run_that_cannot_save_once_is_refused_before_it_writes_anything(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**26))
    given = ("train", folder / "recipe.yaml", f"trainer.output_dir={tmp_path}/run")
    code, out, err = vcsd(monkeypatch, capsys, *given)
    assert code == 2
    assert "a checkpoint needs 0.0" in err
    assert "report" not in out
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {".lock", "skipped.jsonl"}


def test_a_disk_for_a_part_of_the_checkpoints_is_a_warning(folder, monkeypatch, capsys, tmp_path):
    given = ("train", folder / "recipe.yaml", f"trainer.output_dir={tmp_path}/run")
    _, out, _ = vcsd(monkeypatch, capsys, *given, "--dry-run", "--json")
    plan = json.loads(out)
    disk, size = plan["disk"], plan["checkpoint_bytes"]
    assert disk["needed_bytes"] == 2 * size + 2 * plan["model"]["parameters"]  # two are kept, and one is exported
    assert disk["warning"] is None
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**26 + size))
    code, out, _ = vcsd(monkeypatch, capsys, *given, "--dry-run")
    assert code == 0
    words = " ".join(out.split())
    assert "WARNING: " in words
    assert "left: enough for 1 of the 2 checkpoints of " in words
    code, out, _ = vcsd(monkeypatch, capsys, *given, "trainer.save_strategy=no", "--dry-run")
    assert code == 0
    assert "WARNING" not in out
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**26))
    code, out, _ = vcsd(monkeypatch, capsys, *given, "trainer.save_strategy=no", "--dry-run")
    assert code == 0
    assert "left: too little for the checkpoint of " in " ".join(out.split())


def test_data_that_cannot_be_read_is_named_in_one_sentence(folder, monkeypatch, capsys):
    original = Path.open

    def refuse(path, *given, **named):
        if path.name == "train.jsonl":
            raise PermissionError(13, "Permission denied")
        return original(path, *given, **named)

    monkeypatch.setattr(Path, "open", refuse)
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", "--dry-run")
    assert code == 2
    assert "train.jsonl' cannot be read: [Errno 13] Permission denied" in err


def test_a_run_whose_folder_vanishes_between_steps_continues_in_a_new_one(folder, monkeypatch, capsys, tmp_path):
    original = run_module.DistillationTrainer.training_step

    def vanish(trainer, *given):
        if trainer.state.global_step == 1:
            shutil.rmtree(tmp_path / "run")
        return original(trainer, *given)

    monkeypatch.setattr(run_module.DistillationTrainer, "training_step", vanish)
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", f"trainer.output_dir={tmp_path}/run")
    assert code == 0, err
    assert {path.name for path in (tmp_path / "run").glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}
