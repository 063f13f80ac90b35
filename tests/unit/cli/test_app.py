import errno
import fcntl
import json
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from tiny_answers import option, say_all
from vcsd import METHODS, __version__, run
from vcsd.bases.shipped_bases import shipped_base
from vcsd.checkpoint.lock import NAME
from vcsd.cli import app, doctor, eval_command, init_command
from vcsd.cli.doctor import Finding
from vcsd.config.recipe import load_recipe
from vcsd.errors import install_command
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.parallel.ranks import LostRankError

RECIPE = "model: {path: m}\ndata: {path: d}\nmethod: {alpha: 5e-1}\n"


def invoke(*arguments):
    return CliRunner().invoke(app.app, list(arguments))


def main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["vcsd", *arguments])
    with pytest.raises(SystemExit) as stop:
        app.main()
    return stop.value.code


def test_help_lists_every_command_and_each_shows_an_example():
    top = invoke("--help").output
    commands = [command.callback.__name__ for command in app.app.registered_commands]
    assert set(commands) == {
        "doctor",
        "init",
        "recipes",
        "methods",
        "config",
        "train",
        "export",
        "capsule",
        "replay",
        "eval",
        "score",
        "demo",
        "reproduce",
        "contrast",
        "report",
        "watch",
        "ui",
        "precheck",
    }
    for command in commands:
        assert command in top
        assert f"Example: vcsd {command}" in invoke(command, "--help").output


def test_no_help_is_cut_off_in_a_terminal_of_80_columns():
    for command in app.app.registered_commands:
        shown = CliRunner().invoke(app.app, [command.callback.__name__, "--help"], env={"COLUMNS": "80"}).output
        assert "\N{HORIZONTAL ELLIPSIS}" not in shown, shown


def test_a_port_that_no_machine_has_is_refused():
    assert invoke("ui", "--port", "99999").exit_code == 2


def test_an_option_to_resume_is_answered_with_what_does():
    assert "The same command resumes by itself" in " ".join(invoke("train", "recipe.yaml", "--resume").output.split())


def test_version_is_printed():
    assert invoke("--version").output.strip() == f"vcsd {__version__}"


def test_methods_prints_a_row_per_method_and_the_presets():
    output = invoke("methods").output
    for name in [*METHODS, "paper", "author_code"]:
        assert name in output
    (row,) = [line for line in output.splitlines() if line.split()[:1] == ["opsd"]]
    assert row.split() == ["opsd", "hint", "-", "0", "0", "1", "forward_kl", "2", "ema", "0.05"]


def test_config_prints_the_resolved_recipe(tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert "method.beta" in invoke("config", str(tmp_path / "r.yaml"), "--sources").output
    output = invoke("config", str(tmp_path / "r.yaml"), "method.beta=0.2").output
    assert '"alpha": 0.5' in output
    assert '"beta": 0.2' in output


def test_a_users_error_is_printed_without_a_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(monkeypatch, "config", str(tmp_path / "r.yaml"), "method.bta=0.2", "modl.path=x") == 2
    shown = capsys.readouterr().err
    assert "error: 2 problems:" in shown
    assert "method.bta is not a key. Did you mean 'beta'?" in shown
    assert "Traceback" not in shown


def failing(monkeypatch, error):
    """Let a command fail in a way that nobody foresaw."""

    def examine():
        raise error

    monkeypatch.setattr(doctor, "examine", examine)


def test_a_full_disk_is_told_without_a_traceback(monkeypatch, capsys):
    failing(monkeypatch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/a/metrics.jsonl"))
    assert main(monkeypatch, "doctor") == 2
    assert "error: the disk is full: " in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EROFS])
def test_a_path_that_cannot_be_used_is_named_without_a_traceback(number, monkeypatch, capsys):
    failing(monkeypatch, OSError(number, os.strerror(number), "runs/" + "a" * 5000))
    assert main(monkeypatch, "doctor") == 2
    line = capsys.readouterr().err
    assert f"cannot be read or written: {os.strerror(number)}. Check the path" in line
    assert len(line) < 400


@pytest.mark.parametrize("out", ["/dev/null/x", "a" * 5000])
def test_an_export_to_an_impossible_path_is_one_sentence(out, monkeypatch, capsys):
    run = Path(__file__).parents[2] / "golden" / "old_checkpoint"
    assert main(monkeypatch, "export", str(run), "--out", out) == 2
    assert "cannot be written: " in capsys.readouterr().err


UNFORESEEN = [
    ValueError("bad\nvalue."),
    OSError(errno.EIO, os.strerror(errno.EIO), "x"),
    AssertionError(),
    MemoryError(),
    RecursionError("deep"),
    KeyError("\ud800[/red]\x1b[31m"),
]


@pytest.mark.parametrize("error", UNFORESEEN, ids=lambda error: type(error).__name__)
def test_an_unforeseen_error_is_one_sentence_and_a_saved_traceback(error, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    failing(monkeypatch, error)
    assert main(monkeypatch, "doctor") == 70
    (line,) = capsys.readouterr().err.splitlines()
    (saved,) = tmp_path.iterdir()
    assert f"error: vcsd failed unexpectedly ({type(error).__name__}" in line
    assert f"The traceback is in {saved}; please report it." in line
    assert "Traceback (most recent call last)" in saved.read_text(encoding="utf-8")
    assert "\x1b" not in line + saved.read_text(encoding="utf-8")


def test_a_saved_traceback_holds_no_key_of_an_override(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    failing(monkeypatch, ValueError("sk-in-setting is not known"))
    monkeypatch.setattr(app, "app", doctor.examine)
    overrides = ["trainer.hub_token=sk-in-setting", "data.path=http://me:sk-in-address@h/v1?k=v"]
    assert main(monkeypatch, "train", *overrides, "evaluation.style=cot") == 70
    (saved,) = tmp_path.iterdir()
    shown = saved.read_text() + capsys.readouterr().err
    assert "sk-in" not in shown
    assert "evaluation.style=cot" in shown


def test_a_saved_traceback_holds_no_key(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("VCSD_API_KEY", "sk-in-environment\n")
    monkeypatch.setenv("VLLM_API_KEY", "sk-in-vllm")
    failing(monkeypatch, ValueError("sk-in-environment and sk-in-address, sk-in-vllm"))
    monkeypatch.setattr(app, "app", doctor.examine)
    assert main(monkeypatch, "eval", "--server=http://h/v1?api_key=sk-in-address", "http://me:sk-in-word@h/v1") == 70
    (saved,) = tmp_path.iterdir()
    shown = saved.read_text() + capsys.readouterr().err
    assert "*** and ***, ***" in shown
    assert "sk-in" not in shown


def test_a_model_in_this_folder_is_named_after_it_and_not_after_the_one_above(tmp_path, monkeypatch):
    (tmp_path / "first").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    folders = [eval_command._default_folder(path, "plain", "vllm").as_posix() for path in (".", "./", "../first", "..")]
    assert folders == [f"runs/eval/{name}-vllm" for name in ("first", "first", "first", tmp_path.name)]


def test_a_traceback_that_cannot_be_saved_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    failing(monkeypatch, ValueError("bad"))
    assert main(monkeypatch, "doctor") == 70
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert "could not be saved" in shown


HOSTILE = "\x1b[31m\x9b2J\u202e[/red][bold]:bug:"
SHOWN = r"\x1b[31m\x9b2J\u202e[/red][bold]:bug:"


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", HOSTILE),
        ("config", "r.yaml", f"method.{HOSTILE}=1"),
        ("config", "r.yaml", HOSTILE),
        ("train", HOSTILE),
        ("export", HOSTILE),
        ("eval", "m", "--server", f"http://{HOSTILE} /v1"),
        ("eval", "--compare", HOSTILE, HOSTILE),
        (HOSTILE,),
        ("config", f"--{HOSTILE}"),
        ("doctor", HOSTILE),
        ("world", HOSTILE),
        ("world", "sheet", "--out", f"{HOSTILE}/x/y.txt"),
        ("reproduce", HOSTILE),
    ],
    ids=lambda arguments: " ".join(arguments).encode("unicode_escape").decode(),
)
def test_control_characters_and_markup_of_the_command_line_are_shown_and_not_obeyed(
    arguments, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(monkeypatch, *arguments) == 2
    shown = capsys.readouterr().err
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)
    assert "[/red][bold]:bug:" in "".join(shown.split())


def test_a_resolved_recipe_shows_control_characters_as_json_does(tmp_path, monkeypatch, capsys):
    (tmp_path / "r.yaml").write_text('model: {path: "m\\e[31m\\x9b\\u202e"}\ndata: {path: d}\n')
    assert main(monkeypatch, "config", str(tmp_path / "r.yaml")) == 0
    printed = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\u202e"} & set(printed)
    assert json.loads(printed)["model"]["path"] == "m\x1b[31m\x9b\u202e"


def test_a_key_that_is_half_a_surrogate_pair_is_a_clear_error(tmp_path, monkeypatch, capsys):
    (tmp_path / "r.yaml").write_text('"\\ud800": 1\n' + RECIPE)
    assert main(monkeypatch, "config", str(tmp_path / "r.yaml")) == 2
    assert r"'\ud800' contains half a surrogate pair, which is not text (line 1, column 1)." in capsys.readouterr().err


def test_bytes_of_the_command_line_that_are_not_text_are_shown(monkeypatch, capsys):
    assert main(monkeypatch, "config", os.fsdecode(b"\xff[/red].yaml")) == 2
    assert "[/red].yaml" in capsys.readouterr().err


def test_square_brackets_in_an_error_are_printed_as_they_are(tmp_path, monkeypatch, capsys):
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(monkeypatch, "config", str(tmp_path / "r.yaml"), "method.beta=[bold]") == 2
    assert "method.beta = ['bold'] is not a number" in capsys.readouterr().err


def test_doctor_is_content_with_the_tested_set():
    result = invoke("doctor")
    assert result.exit_code == 0, result.output
    for subject in ("torch", "transformers", "attention", "device", "peft", "eval"):
        assert subject in result.output
    loss = [line.split() for line in result.output.splitlines() if line.split()[1:2] == ["loss"]]
    assert loss in ([["ok", "loss", "chunked"]], [["ok", "loss", "triton"]])


@pytest.mark.parametrize("command", ["doctor", "methods"])
def test_tables_print_in_any_encoding(command):
    assert invoke(command).output.isascii()


def test_doctor_says_when_vcsd_is_only_on_the_path(monkeypatch):
    monkeypatch.setattr(doctor, "_is_installed", lambda: False)
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "on the path, but not installed" in result.output


def test_doctor_fails_when_something_needed_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: [("Required", [Finding("torch", "broken", "not installed")])])
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "1 broken." in result.output


def test_doctor_does_not_mind_an_extra_that_is_off(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: [("Extras", [Finding("vllm", "off", "pip install 'vcsd[vllm]'")])])
    result = invoke("doctor")
    assert result.exit_code == 0
    assert "pip install 'vcsd[vllm]'" in result.output


def test_without_peft_the_recipes_of_adapters_are_projected_and_the_command_to_install_it_comes_first(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    shown = " ".join(invoke("recipes").output.split())
    assert shown.index(install_command("peft")) < shown.index("lora/qwen3_vl_2b_24gb ") < shown.index("RTX 4090")


def test_init_keeps_the_columns_and_the_folder_of_images_that_it_checked(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "rows.jsonl").write_text('{"Question": "How many?", "picture": "a.png"}\n')
    given = ["init", "--model", str(shipped_base()), "--data", str(tmp_path / "rows.jsonl"), "--device", "cpu"]
    keys = ["data.columns.prompt=Question", "data.columns.images=picture", f"data.images={tmp_path / 'pictures'}"]
    assert "Set data.columns.prompt=COLUMN" in str(invoke(*given, "--out", str(tmp_path / "a.yaml")).exception)
    result = invoke(*given, "--out", str(tmp_path / "a.yaml"), *keys)
    assert result.exit_code == 0, result.output
    data = load_recipe(tmp_path / "a.yaml").data
    assert (data.columns, data.images) == ({"prompt": "Question", "images": "picture"}, str(tmp_path / "pictures"))


def test_init_for_the_world_writes_its_pictures_and_a_recipe_that_trains_on_a_cpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init_command, "_WORLD_PROMPTS", 4)
    result = invoke("init", "--model", "world")
    assert result.exit_code == 0, result.output
    assert "Drew 4 pictures with questions: world_data/prompts-4-" in result.output
    overrides = ["trainer.max_steps=1", "prompts_per_step=2", "rollout.num_per_prompt=2", "rollout.max_new_tokens=4"]
    recipe = load_recipe(tmp_path / "recipe.yaml", overrides)
    assert recipe.model.path == str(shipped_base())
    assert recipe.trainer["use_cpu"]
    assert run.train(run.load(recipe)).state.global_step == 1


def test_init_for_the_world_takes_other_data_and_writes_no_pictures(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": "How many?", "image": "a.png"}\n')
    given = ["init", "--model", "world", "--data", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "a.yaml")]
    assert invoke(*given).exit_code == 0
    recipe = load_recipe(tmp_path / "a.yaml")
    assert (recipe.data.path, recipe.prompts_per_step) == (str(tmp_path / "rows.jsonl"), 1)
    assert not (tmp_path / "world_data").exists()


@pytest.mark.parametrize("model", ["world", str(shipped_base())])
def test_two_recipes_of_a_model_have_a_run_each(tmp_path, model):
    (tmp_path / "rows.jsonl").write_text('{"question": "How many?", "image": "a.png"}\n')
    runs = {}
    for name in ("recipe.yaml", "my second.yaml"):
        given = ["init", "--model", model, "--data", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / name)]
        result = invoke(*given)
        assert result.exit_code == 0
        assert f"Next: vcsd train {shlex.quote(str(tmp_path / name))} --dry-run" in result.output
        assert f"# vcsd train {shlex.quote(name)} --dry-run shows" in (tmp_path / name).read_text()
        runs[name] = load_recipe(tmp_path / name).trainer["output_dir"]
    first = "runs/tiny" if model == "world" else f"runs/{shipped_base().name}"
    assert runs == {"recipe.yaml": first, "my second.yaml": "runs/my second"}
    if model == "world":
        text = " ".join((tmp_path / "my second.yaml").read_text().split())
        assert "vcsd eval 'runs/my second' --benchmarks world" in text
        assert "runs/eval/world 'runs/eval/my second'" in text


def test_a_recipe_named_world_does_not_name_its_scores_as_those_of_the_base(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": "How many?", "image": "a.png"}\n')
    path = tmp_path / "world.yaml"
    assert invoke("init", "--model", "world", "--data", str(tmp_path / "rows.jsonl"), "--out", str(path)).exit_code == 0
    assert "runs/eval/world runs/eval/tiny" in path.read_text()


def test_a_wrong_device_stops_init_before_anything_is_written(tmp_path):
    result = invoke("init", "--model", "world", "--device", "tpu", "--out", str(tmp_path / "a.yaml"))
    assert "Did you mean 'gpu'?" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_eval_asks_the_shipped_base_by_its_name(tmp_path):
    given = ["eval", "world", "--benchmarks", "world/small", "--limit", "2", "--out", str(tmp_path)]
    result = invoke(*given)
    assert result.exit_code == 0, result.exception
    assert (tmp_path / "scorecard.json").is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--fast", "--out"],
        ["precheck", "world", "--num", "2", "--out"],
        ["world", "pretrain", "--out"],
        ["reproduce", "main", "--quick", "--out"],
    ],
    ids=" ".join,
)
def test_a_command_leaves_a_folder_that_another_process_uses_alone(monkeypatch, capsys, tmp_path, arguments):
    (tmp_path / NAME).write_text("process 7 on elsewhere\n")
    with (tmp_path / NAME).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main(monkeypatch, *arguments, str(tmp_path)) == 2
    assert "is in use by process 7 on elsewhere" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_the_error_of_a_run_is_said_before_a_launchers_signal_can_end_the_process(monkeypatch, tmp_path):
    """torchrun sends SIGTERM to the other ranks as soon as one has died, so also to one that is about to say so."""
    handlers = []

    def fail(loaded, callbacks):
        raise LostRankError("rank 0 of 2 cannot reach the other ranks")

    def listen(text, **more):
        handlers.append((text, signal.getsignal(signal.SIGTERM)))

    monkeypatch.setattr("vcsd.run.load", lambda settings: SimpleNamespace(output=tmp_path))
    monkeypatch.setattr("vcsd.run.train", fail)
    monkeypatch.setattr(app, "say", listen)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    assert main(monkeypatch, "train", str(tmp_path / "recipe.yaml")) == 2
    ((text, handler),) = handlers
    assert text == "rank 0 of 2 cannot reach the other ranks"
    assert handler is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_report_on_an_evaluation_keeps_its_page_of_answers(tmp_path):
    questions = [option("0", category="x")]
    score(questions, say_all(questions, "A")).save(tmp_path / "scorecard.json")
    (tmp_path / "report.html").write_text("{}")
    assert invoke("report", str(tmp_path)).exit_code == 0
    assert (tmp_path / "report.html").read_text() == "{}"
    assert "evaluated, not trained" in (tmp_path / "runs.html").read_text(encoding="utf-8")
