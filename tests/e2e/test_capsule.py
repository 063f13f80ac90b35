"""`vcsd capsule` and `vcsd replay`: a run is repeated to the bit, and a changed file or other data are refused."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

from toy_benchmarks import coded, write_tsv, write_tsvs
from toy_command import vcsd, write_run_files
from vcsd.errors import ConfigError
from vcsd.publish.capsule import read_capsule, seal_of, write_capsule
from vcsd.publish.replay import MARKER

RECIPE = """
model: {{path: {folder}/model}}
data: {{path: {folder}/train.jsonl}}
rollout: {{num_per_prompt: 2, max_new_tokens: 6}}
prompts_per_step: 2
token_budget: 4000
guard: off
trainer: {{max_steps: 3, save_steps: 3, learning_rate: 1e-3, warmup_steps: 1, use_cpu: true, bf16: false,
          output_dir: {folder}/run}}
"""

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of three steps and its capsule."""
    folder = tmp_path_factory.mktemp("capsule")
    write_run_files(folder, RECIPE, 5)
    assert vcsd("train", folder / "recipe.yaml") == 0
    assert vcsd("capsule", folder / "run") == 0
    return folder


@pytest.fixture
def capsule(folder):
    return read_capsule(folder / "run" / "capsule.json")


def again(folder, file, out, *options):
    files = ("--model", folder / "model", "--data", folder / "train.jsonl")
    return vcsd("replay", file, *files, "--out", out, *options)


def copy_run(folder, out, capsule):
    """Put the honest run in the place of a capsule's replay, so that nothing is left to train."""
    shutil.copytree(folder / "run", out)
    (out / MARKER).write_text(seal_of(capsule) + "\n")


def test_a_capsule_holds_the_run_and_no_folder(folder, capsule):
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in capsule["steps"]] == [line["loss"] for line in metrics]
    assert [line["examples"] for line in capsule["steps"]] == [line["examples"] for line in metrics]
    assert {"student.safetensors", "teacher.safetensors", "optimizer.safetensors"} <= set(capsule["weights"])
    assert {"data", "weights", "tokenizer", "chat_template"} <= set(capsule["content"])
    assert {"torch", "transformers", "threads", "hardware", "processor"} <= set(capsule["environment"])
    assert str(folder) not in (folder / "run" / "capsule.json").read_text()


def test_a_replay_repeats_the_run_to_the_bit(folder, capsule, tmp_path, capsys):
    seal = seal_of(capsule)
    assert again(folder, folder / "run" / "capsule.json", tmp_path / "again", "--seal", seal) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"Compared 3 steps bit for bit, 0 evaluations and {len(capsule['weights'])} files of weights." in out
    assert "The capsule was repeated." in out


EVALUATION = """
evaluation: {{every: 2, benchmarks: [VStarBench], data: {folder}/bench, limit: 3, mode: exact,
             sampling: "paper,max_new_tokens=6", allow_unknown_data: true}}
"""


@pytest.fixture(scope="module")
def extended(folder, tmp_path_factory):
    """A run of three steps that was resumed with five, asked every two steps: also after step 3, then its last."""
    own = tmp_path_factory.mktemp("extended")
    write_tsvs(own / "bench")
    text = RECIPE.format(folder=folder) + EVALUATION.format(folder=own)
    text = text.replace(f"{folder}/run", f"{own}/run").replace("save_steps: 3", "save_steps: 1")
    for steps in (3, 5):
        (own / "recipe.yaml").write_text(text.replace("max_steps: 3", f"max_steps: {steps}"))
        assert vcsd("train", own / "recipe.yaml") == 0
    assert vcsd("capsule", own / "run") == 0
    return own


def test_a_run_that_was_extended_is_repeated_with_the_evaluation_of_its_first_end(folder, extended, tmp_path, capsys):
    found = read_capsule(extended / "run" / "capsule.json")
    assert [line["step"] for line in found["evaluations"]] == [0, 2, 3, 4, 5]
    options = ("--questions", extended / "bench")
    assert again(folder, extended / "run" / "capsule.json", tmp_path / "again", *options) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Compared 5 steps bit for bit, 5 evaluations" in out
    assert "The capsule was repeated." in out


def test_a_run_with_own_questions_is_repeated_with_the_same_ones_alone(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, answer in (("there", "Yes"), ("changed", "No")):
        (tmp_path / name).mkdir()
        row = {"index": "1", "image": coded(1), "question": "Is it red?", "answer": answer}
        write_tsv(tmp_path / name / "mine.tsv", [row])
    own = ("evaluation.every=3", f"evaluation.tsv={tmp_path}/there/mine.tsv", "trainer.output_dir=run")
    assert vcsd("train", folder / "recipe.yaml", *own, "evaluation.sampling=greedy,max_new_tokens=6") == 0
    assert vcsd("capsule", "run") == 0
    for options, code, words in (
        ((), 2, "was evaluated on 'mine.tsv', which is not in this folder. Pass its folder: --questions FOLDER."),
        (("--questions", "changed"), 2, "the questions of mine.tsv differ from the capsule's."),
        (("--questions", "there"), 0, "2 evaluations"),
    ):
        assert again(folder, "run/capsule.json", "again", *options) == code
        shown = capsys.readouterr()
        assert words in " ".join((shown.out + shown.err).split())


@pytest.mark.parametrize(
    ("is_in_step", "words"),
    [(True, "evaluation after step 4: the capsule has none"), (False, "step 4: evaluation/acc was None, now ")],
)
def test_an_evaluation_that_the_recipe_asks_for_cannot_be_left_out(
    folder, extended, tmp_path, capsys, is_in_step, words
):
    packed = read_capsule(extended / "run" / "capsule.json")
    packed["evaluations"] = [line for line in packed["evaluations"] if line["step"] != 4]
    if not is_in_step:
        packed["steps"][3] = {name: value for name, value in packed["steps"][3].items() if "evaluation" not in name}
    write_capsule(packed, tmp_path / "without.json")
    copy_run(extended, tmp_path / "again", packed)
    assert again(folder, tmp_path / "without.json", tmp_path / "again", "--questions", extended / "bench") == 1
    assert words in " ".join(capsys.readouterr().out.split())


def test_losses_that_the_release_of_the_capsule_derived_otherwise_are_no_difference(folder, extended, tmp_path, capsys):
    packed = read_capsule(extended / "run" / "capsule.json")
    packed["evaluations"][-1]["fell"] = {"VStarBench": {"difference": -50.0, "interval": [-60.0, -40.0]}}
    write_capsule(packed, tmp_path / "other.json")
    copy_run(extended, tmp_path / "again", packed)
    assert again(folder, tmp_path / "other.json", tmp_path / "again", "--questions", extended / "bench") == 0
    assert "5 evaluations" in " ".join(capsys.readouterr().out.split())


def test_every_machine_of_a_resumed_run_is_in_the_capsule(folder, extended, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(extended / "run", run)
    (session,) = json.loads((run / "sessions.json").read_text())
    assert (session["after_step"], session["environment"]["torch"]) == (0, torch.__version__)
    elsewhere = {**session, "environment": {**session["environment"], "hardware": "another machine"}}
    (run / "sessions.json").write_text(json.dumps([elsewhere, {**session, "after_step": 3}]))
    assert vcsd("capsule", run) == 0
    found = read_capsule(run / "capsule.json")
    assert [each["after_step"] for each in found["environment"]["sessions"]] == [0, 3]
    copy_run(extended, tmp_path / "again", found)
    assert again(folder, run / "capsule.json", tmp_path / "again", "--questions", extended / "bench") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "within 0.05 of each loss and gradient norm, and their rows exactly (hardware is " in out
    assert "NOT compared: the weights, 5 evaluations and all other metrics." in out
    assert '"another machine" there)' in out or "'another machine' there)" in out


def test_a_run_that_was_resumed_elsewhere_keeps_both_machines(folder, tmp_path, monkeypatch):
    text = (
        RECIPE.format(folder=folder)
        .replace(f"{folder}/run", f"{tmp_path}/run")
        .replace("save_steps: 3", "save_steps: 1")
    )
    for steps, machine in ((1, "first"), (2, "second"), (2, "third, which trains nothing"), (3, "second")):
        monkeypatch.setattr("vcsd.monitor.machine.hardware", lambda machine=machine: machine)
        (tmp_path / "recipe.yaml").write_text(text.replace("max_steps: 3", f"max_steps: {steps}"))
        assert vcsd("train", tmp_path / "recipe.yaml") == 0
    sessions = json.loads((tmp_path / "run" / "sessions.json").read_text())
    assert [(each["after_step"], each["environment"]["hardware"]) for each in sessions] == [(0, "first"), (1, "second")]
    assert len({each["settings"] for each in sessions}) == 1, "more steps are the same settings"
    assert "first, then second" in (tmp_path / "run" / "report.html").read_text()


def test_a_run_that_was_resumed_with_the_same_number_spelled_otherwise_is_compared_bit_for_bit(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    more = ("trainer.max_steps=4", f"trainer.output_dir={tmp_path / 'run'}")
    assert vcsd("train", folder / "recipe.yaml", *more, "method.alpha=1", "trainer.max_grad_norm=1") == 0
    assert vcsd("capsule", tmp_path / "run") == 0
    (session,) = read_capsule(tmp_path / "run" / "capsule.json")["environment"]["sessions"]
    assert session["settings"] == json.loads((folder / "run" / "sessions.json").read_text())[0]["settings"]


def test_a_finished_run_that_is_opened_with_fewer_steps_keeps_its_recipe(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    assert vcsd("train", folder / "recipe.yaml", "trainer.max_steps=2", f"trainer.output_dir={tmp_path / 'run'}") == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["trainer"]["max_steps"] == 3
    (tmp_path / "run" / "config.json").unlink()
    assert vcsd("train", folder / "recipe.yaml", f"trainer.output_dir={tmp_path / 'run'}") == 0
    assert (tmp_path / "run" / "config.json").is_file()


def test_damaged_sessions_are_a_warning_and_a_capsule_that_can_be_read(folder, tmp_path, caplog):
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / "sessions.json").write_text('[{"after_step": 0, "envir')
    more = ("trainer.max_steps=4", f"trainer.output_dir={tmp_path / 'run'}")
    assert vcsd("train", folder / "recipe.yaml", *more) == 0
    assert "sessions.json is damaged: the machines of the first 3 steps are not known." in caplog.text
    assert vcsd("capsule", tmp_path / "run") == 0
    first, second = read_capsule(tmp_path / "run" / "capsule.json")["environment"]["sessions"]
    assert first == {"after_step": 0, "environment": {}, "settings": ""}
    assert (second["after_step"], second["environment"]["torch"]) == (3, torch.__version__)


@pytest.mark.parametrize(
    "sessions",
    [
        None,
        [],
        "here",
        [{"after_step": 1, "environment": {}, "settings": ""}],
        [{"after_step": 0, "environment": [], "settings": ""}],
        [{"after_step": True, "environment": {}, "settings": ""}],
        [{"after_step": 0, "environment": {}, "settings": ""}, {"after_step": 99, "environment": {}, "settings": ""}],
    ],
)
def test_machines_that_do_not_cover_the_steps_are_refused(capsule, tmp_path, sessions):
    capsule["environment"]["sessions"] = sessions
    write_capsule(capsule, tmp_path / "odd.json")
    with pytest.raises(ConfigError, match="which machine made which step"):
        read_capsule(tmp_path / "odd.json")


def test_a_changed_file_is_refused_and_so_is_another_seal(folder, capsule, tmp_path):
    original = folder / "run" / "capsule.json"
    tree = json.loads(original.read_text())
    tree["steps"][1]["loss"] *= 0.5
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match="was changed after it was written"):
        read_capsule(changed)
    sealed = tmp_path / "sealed.json"
    del tree["seal"]
    write_capsule(tree, sealed)
    with pytest.raises(ConfigError, match="is not the capsule with the seal"):
        read_capsule(sealed, seal_of(capsule))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree["steps"][1].update(loss=0.125), "step 2: loss was 0.125, now "),
        (lambda tree: tree["steps"][0].update(examples=["row-0", "other"]), "step 1: examples was "),
        (
            lambda tree: tree["weights"].update({"teacher.safetensors": "0" * 64}),
            "teacher.safetensors after step 3",
        ),
        (lambda tree: tree["evaluations"].append({"step": 3, "acc": 99.0}), "evaluation after step 3: Acc was 99.0"),
        (lambda tree: tree["steps"][1].pop("divergence"), "step 2: divergence was None, now "),
        (lambda tree: tree["steps"][1].update(loss=10**400), "step 2: loss was 1000"),
        (lambda tree: tree["weights"].pop("teacher.safetensors"), "teacher.safetensors after step 3"),
    ],
)
def test_invented_results_that_are_sealed_well_are_not_repeated(folder, capsule, tmp_path, capsys, change, words):
    change(capsule)
    write_capsule(capsule, tmp_path / "invented.json")
    copy_run(folder, tmp_path / "again", capsule)
    assert again(folder, tmp_path / "invented.json", tmp_path / "again") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "NOT repeated:" in out
    assert words in out


@pytest.mark.parametrize("has_seal", [False, True])
def test_an_invented_capsule_that_names_another_machine_passes_only_with_what_was_not_compared(
    folder, capsule, tmp_path, capsys, has_seal
):
    published = seal_of(capsule)
    capsule["environment"]["sessions"][0]["environment"]["hardware"] = "NVIDIA H200, 16 cores"
    capsule["steps"][1]["loss"] *= 1.04
    capsule["weights"]["student.safetensors"] = "0" * 64
    seal = write_capsule(capsule, tmp_path / "invented.json")
    copy_run(folder, tmp_path / "again", capsule)
    if has_seal:
        assert again(folder, tmp_path / "invented.json", tmp_path / "again", "--seal", published) == 2
        assert "is not the capsule with the seal" in " ".join(capsys.readouterr().err.split())
    options = ("--seal", seal) if has_seal else ()
    assert again(folder, tmp_path / "invented.json", tmp_path / "again", *options) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert '"NVIDIA H200, 16 cores" there)' in out or "'NVIDIA H200, 16 cores' there)" in out
    assert "NOT compared: the weights and all other metrics." in out
    assert "loss: 3.8% apart at most (step 2), half of the steps by 0% or less." in out
    assert "What was compared was repeated, and no more than that." in out
    assert "The capsule was repeated." not in out
    assert ("Pass --seal" in out) is not has_seal
    assert again(folder, tmp_path / "invented.json", tmp_path / "again", "--tolerance", 0) == 1
    assert "step 2: loss was" in " ".join(capsys.readouterr().out.split())


def test_a_replay_of_the_first_steps_says_that_the_weights_were_not_compared(folder, capsule, tmp_path, capsys):
    copy_run(folder, tmp_path / "again", capsule)
    capsule["steps"], capsule["last_step"] = [*capsule["steps"], {**capsule["steps"][-1], "step": 4}], 4
    write_capsule(capsule, tmp_path / "longer.json")
    (tmp_path / "again" / MARKER).write_text(seal_of(capsule) + "\n")
    assert again(folder, tmp_path / "longer.json", tmp_path / "again", "--steps", 3) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Compared 3 steps bit for bit, 0 evaluations and 0 files of weights." in out
    assert "NOT compared: the weights, which a capsule has for its last step only." in out
    assert "The capsule was repeated." not in out


def test_another_kind_of_processor_of_the_same_name_is_another_machine(folder, capsule, tmp_path, capsys):
    there = capsule["environment"]["sessions"][0]["environment"]
    there["processor"] = "AVX2 00000000"
    write_capsule(capsule, tmp_path / "older.json")
    copy_run(folder, tmp_path / "again", capsule)
    assert again(folder, tmp_path / "older.json", tmp_path / "again") == 0
    assert "rows exactly (processor is " in " ".join(capsys.readouterr().out.split())
    del there["processor"], there["ranks"]  # earlier versions did not record them
    write_capsule(capsule, tmp_path / "earlier.json")
    copy_run(folder, tmp_path / "yet again", capsule)
    assert again(folder, tmp_path / "earlier.json", tmp_path / "yet again") == 0
    assert "The capsule was repeated." in capsys.readouterr().out


def test_a_sharded_run_of_two_ranks_is_replayed_in_one_process_within_the_tolerance(folder, capsule, tmp_path, capsys):
    capsule["environment"]["sessions"][0]["environment"]["ranks"] = 2
    capsule["recipe"]["trainer"]["fsdp"] = True
    write_capsule(capsule, tmp_path / "ranks.json")
    assert again(folder, tmp_path / "ranks.json", tmp_path / "again") == 0
    assert "rows exactly (ranks is 1 here, 2 there)" in " ".join(capsys.readouterr().out.split())


def test_only_the_first_rank_says_what_a_replay_compared(folder, capsule, tmp_path, capsys, monkeypatch):
    copy_run(folder, tmp_path / "again", capsule)
    monkeypatch.setattr("vcsd.terminal.output.is_replica", lambda: True)
    assert again(folder, folder / "run" / "capsule.json", tmp_path / "again") == 0
    assert not capsys.readouterr().out


def test_a_run_is_not_compared_with_itself_nor_with_the_replay_of_another_capsule(folder, capsule, tmp_path, capsys):
    before = sorted(path.name for path in (folder / "run").iterdir())
    assert again(folder, folder / "run" / "capsule.json", folder / "run") == 2
    assert "holds a run that is not a replay, so it would be compared with itself" in " ".join(
        capsys.readouterr().err.split()
    )
    assert sorted(path.name for path in (folder / "run").iterdir()) == before
    copy_run(folder, tmp_path / "again", {**capsule, "last_step": 2})
    assert again(folder, folder / "run" / "capsule.json", tmp_path / "again") == 2
    assert "holds the replay of another capsule" in " ".join(capsys.readouterr().err.split())


def test_within_a_tolerance_small_differences_pass_and_large_ones_do_not(folder, capsule, tmp_path):
    capsule["steps"][2]["loss"] *= 1.01
    capsule["environment"]["sessions"][0]["environment"]["torch"] = "9.9"
    write_capsule(capsule, tmp_path / "elsewhere.json")
    copy_run(folder, tmp_path / "again", capsule)
    assert again(folder, tmp_path / "elsewhere.json", tmp_path / "again") == 0
    assert again(folder, tmp_path / "elsewhere.json", tmp_path / "again", "--tolerance", 0.001) == 1


def test_a_finished_replay_of_an_unfinished_run_trains_no_further(folder, capsule, tmp_path):
    capsule["recipe"]["trainer"].update(max_steps=9, save_total_limit=1)
    write_capsule(capsule, tmp_path / "unfinished.json")
    copy_run(folder, tmp_path / "again", capsule)
    assert again(folder, tmp_path / "unfinished.json", tmp_path / "again") == 0
    assert len((tmp_path / "again" / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_replay_that_ends_early_repeats_nothing(folder, capsule, tmp_path, capsys):
    capsule["recipe"]["trainer"]["max_steps"] = 2
    capsule["environment"]["sessions"][0]["environment"]["torch"] = "9.9"
    write_capsule(capsule, tmp_path / "longer.json")
    assert again(folder, tmp_path / "longer.json", tmp_path / "again") == 1
    assert "the run ended after step 2, the capsule's has step 3" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "change",
    [
        {"steps": [], "last_step": 0},
        {"steps": []},
        {"steps": [{"step": 1}, {"step": 2}, {}]},
        {"last_step": 10**15},
        {"evaluations": [{"acc": 50.0}]},
        {"evaluations": [{"step": 4, "acc": 99.0}]},
        {"evaluations": [{"step": 3, "acc": 50.0}, {"step": 3, "acc": 99.0}]},
        {"evaluations": [{"step": False, "acc": 50.0}]},
        {"steps": [{"step": 1}, {"step": 2}, {"step": 3}]},
        {"weights": {}},
        {"content": {}},
    ],
)
def test_a_capsule_with_nothing_to_compare_is_refused(capsule, tmp_path, change):
    write_capsule({**capsule, **change}, tmp_path / "empty.json")
    with pytest.raises(ConfigError, match="is not a whole capsule"):
        read_capsule(tmp_path / "empty.json")


@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_numbers_that_are_not_finite_are_refused(folder, capsule, tmp_path, number):
    text = (folder / "run" / "capsule.json").read_text().replace(repr(capsule["steps"][0]["loss"]), number)
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(ConfigError, match="a number that is not finite"):
        read_capsule(tmp_path / "odd.json")


@pytest.mark.parametrize("key", ['"steps": [', '"loss": 0.'])
def test_a_key_that_is_written_twice_is_refused_because_other_readers_may_take_the_first(folder, tmp_path, key):
    text = (folder / "run" / "capsule.json").read_text()
    invented = f"{key.partition(':')[0]}: 1, {key}"
    (tmp_path / "twice.json").write_text(text.replace(key, invented, 1))
    with pytest.raises(ConfigError, match="has a key twice"):
        read_capsule(tmp_path / "twice.json")


def test_a_file_that_is_too_large_is_refused_as_such(folder, monkeypatch):
    monkeypatch.setattr("vcsd.publish.capsule._MAX_BYTES", 2**10)
    with pytest.raises(ConfigError, match="is larger than"):
        read_capsule(folder / "run" / "capsule.json")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_what_is_no_file_is_refused_without_reading_it(tmp_path, make):
    make(tmp_path / "capsule.json")
    with pytest.raises(ConfigError, match="is not a file"):
        read_capsule(tmp_path / "capsule.json")


def test_archives_and_deep_nesting_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("capsule.json", b"0" * 2**24)
    (tmp_path / "deep.json").write_text('{"format": "vcsd capsule 1", "steps": ' + "[" * 200_000)
    for name in ("bomb.zip", "deep.json"):
        with pytest.raises(ConfigError, match="is not JSON"):
            read_capsule(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree["steps"][0].update(examples=["row-4", "row-3"]),
        lambda tree: tree["recipe"]["trainer"].update(learning_rate=0.5),
        lambda tree: tree["content"].update(data="0" * 32),
        lambda tree: tree["weights"].pop("teacher.safetensors"),
        lambda tree: tree["weights"].update(extra="0" * 64),
        lambda tree: tree["environment"]["sessions"][0].update(settings="0"),
        lambda tree: tree["scorecards"].append({"acc": 99.0}),
        lambda tree: tree["evaluations"].append({"step": 3, "acc": 99.0}),
        lambda tree: tree.update(seal="0" * 64),
        lambda tree: tree.pop("seal"),
    ],
)
def test_every_part_of_the_file_is_under_the_seal(folder, tmp_path, change):
    tree = json.loads((folder / "run" / "capsule.json").read_text())
    change(tree)
    (tmp_path / "changed.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match="was changed after it was written"):
        read_capsule(tmp_path / "changed.json")


def test_added_and_removed_parts_are_refused_by_name(folder, tmp_path):
    tree = json.loads((folder / "run" / "capsule.json").read_text())
    (tmp_path / "more.json").write_text(json.dumps({**tree, "notes": []}))
    (tmp_path / "less.json").write_text(json.dumps({name: tree[name] for name in tree if name != "content"}))
    with pytest.raises(ConfigError, match="notes"):
        read_capsule(tmp_path / "more.json")
    with pytest.raises(ConfigError, match="has no 'content'"):
        read_capsule(tmp_path / "less.json")


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        ("data", {"path": "../secret.jsonl"}, "Pass --data PATH"),
        ("data", {"images": "/etc"}, "Pass --images PATH"),
        ("data", {"path": 300 * "long"}, "Pass --data FILE"),
        ("trainer", {"fsdp_config": "../secret.json"}, "as trainer.fsdp_config, which is outside this folder"),
        ("rollout", {"engine": "vllm_server", "server_url": "http://example.org"}, "would send the prompts to"),
    ],
)
def test_a_capsule_that_is_sealed_well_names_no_place_outside(
    folder, capsule, tmp_path, capsys, monkeypatch, section, values, words
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "secret.jsonl").write_text((folder / "train.jsonl").read_text())
    capsule["recipe"][section].update(values)
    write_capsule(capsule, tmp_path / "escape.json")
    files = () if section == "data" and "path" in values else ("--data", folder / "train.jsonl")
    assert vcsd("replay", tmp_path / "escape.json", "--model", folder / "model", *files, "--out", "again") == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "here" / "again").exists()


def test_a_capsule_that_could_not_be_read_again_is_not_written(capsule, tmp_path, monkeypatch):
    monkeypatch.setattr("vcsd.publish.capsule._MAX_BYTES", 2**10)
    with pytest.raises(ConfigError, match="would be larger than"):
        write_capsule(capsule, tmp_path / "large.json")
    assert not (tmp_path / "large.json").exists()


def test_other_data_are_refused_before_the_first_step(folder, tmp_path, capsys):
    text = (folder / "train.jsonl").read_text().replace("how many, 2?", "how few, 2?")
    for index in range(5):
        shutil.copy(folder / f"{index}.png", tmp_path)
    (tmp_path / "train.jsonl").write_text(text)
    file, files = folder / "run" / "capsule.json", ("--model", folder / "model", "--data", tmp_path / "train.jsonl")
    assert vcsd("replay", file, *files, "--out", tmp_path / "again") == 2
    assert "the rows of the data (--data) differ from the capsule's" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "again" / "metrics.jsonl").exists()


def test_the_shipped_base_has_a_name_in_a_replay(folder, tmp_path, capsys):
    files = ("--model", "world", "--data", folder / "train.jsonl")
    assert vcsd("replay", folder / "run" / "capsule.json", *files, "--out", tmp_path / "again") == 2
    assert "differ from the capsule's" in " ".join(capsys.readouterr().err.split())  # the run had another model


def test_a_mistyped_file_of_a_replay_is_answered_with_the_one_that_was_meant(folder, tmp_path, capsys):
    files = ("--model", folder / "model", "--data", folder / "trian.jsonl")
    assert vcsd("replay", folder / "run" / "capsule.json", *files, "--out", tmp_path / "again") == 2
    assert f"does not exist. Did you mean '{folder / 'train.jsonl'}'?" in " ".join(capsys.readouterr().err.split())


def test_files_of_the_machine_must_be_named(folder, tmp_path, capsys):
    assert vcsd("replay", folder / "run" / "capsule.json", "--out", tmp_path / "again") == 2
    words = " ".join(capsys.readouterr().err.split())
    assert "Pass --model FOLDER." in words
    assert "Pass --data FILE." in words


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": "vcsd capsule 1"}', "\x00", '{"format": 3}'])
def test_what_is_no_capsule_is_refused_in_a_sentence(tmp_path, text):
    (tmp_path / "file").write_text(text)
    with pytest.raises(ConfigError, match="capsule"):
        read_capsule(tmp_path / "file")


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("config.json", '"guard"', '"x": NaN, "guard"', "hold a number that is not finite"),
        ("metrics.jsonl", '"loss"', '"x": Infinity, "loss"', "hold a number that is not finite"),
        ("config.json", '"guard"', f'"x": {100_000 * "["}, "guard"', "is missing or not as a run writes it"),
    ],
)
def test_a_run_whose_files_were_damaged_is_not_packed(folder, tmp_path, capsys, file, old, new, words):
    shutil.copytree(folder / "run", tmp_path / "run")
    text = (tmp_path / "run" / file).read_text()
    (tmp_path / "run" / file).write_text(text.replace(old, new, 1))
    assert vcsd("capsule", tmp_path / "run") == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_run_without_a_checkpoint_cannot_be_packed(tmp_path, capsys):
    assert vcsd("capsule", tmp_path) == 2
    assert "holds no checkpoint" in capsys.readouterr().err
