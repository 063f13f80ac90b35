import os
import sys

import pytest
from typer.testing import CliRunner

from vcsd import METHODS, __version__, cli, doctor
from vcsd.doctor import Finding

RECIPE = "model: {path: m}\ndata: {path: d}\nmethod: {alpha: 5e-1}\n"


def invoke(*arguments):
    return CliRunner().invoke(cli.app, list(arguments))


def main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["vcsd", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


def test_help_lists_every_command_and_each_shows_an_example():
    top = invoke("--help").output
    commands = [command.callback.__name__ for command in cli.app.registered_commands]
    assert set(commands) == {"doctor", "methods", "config", "train", "export", "eval", "demo", "reproduce"}
    for command in commands:
        assert command in top
        assert f"Example: vcsd {command}" in invoke(command, "--help").output


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
    output = invoke("config", str(tmp_path / "r.yaml"), "method.beta=0.2").output
    assert '"alpha": 0.5' in output
    assert '"beta": 0.2' in output


def test_a_users_error_is_printed_without_a_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(monkeypatch, "config", str(tmp_path / "r.yaml"), "method.bta=0.2", "modl.path=x") == 2
    shown = capsys.readouterr().err
    assert "ConfigError: 2 problems:" in shown
    assert "method.bta is not a key. Did you mean 'beta'?" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(("number", "is_told"), [(28, True), (13, False)])
def test_a_full_disk_is_told_without_a_traceback_and_a_bug_with_it(monkeypatch, capsys, number, is_told):
    def examine():
        raise OSError(number, os.strerror(number), "runs/a/metrics.jsonl")

    monkeypatch.setattr(doctor, "examine", examine)
    if is_told:
        assert main(monkeypatch, "doctor") == 2
        assert "RunError: the disk is full: " in capsys.readouterr().err
    else:
        with pytest.raises(PermissionError):
            main(monkeypatch, "doctor")


def test_square_brackets_in_an_error_are_printed_as_they_are(tmp_path, monkeypatch, capsys):
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(monkeypatch, "config", str(tmp_path / "r.yaml"), "method.beta=[bold]") == 2
    assert "method.beta = ['bold'] is not a number" in capsys.readouterr().err


def test_doctor_is_content_with_the_tested_set():
    result = invoke("doctor")
    assert result.exit_code == 0, result.output
    for subject in ("torch", "transformers", "attention", "device", "peft", "vllm"):
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
    assert "not installed, only on the path" in result.output


def test_doctor_fails_when_something_needed_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: [("Needed", [Finding("torch", "broken", "not installed")])])
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "1 broken." in result.output


def test_doctor_does_not_mind_an_extra_that_is_off(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: [("Extras", [Finding("vllm", "off", "pip install 'vcsd[vllm]'")])])
    result = invoke("doctor")
    assert result.exit_code == 0
    assert "pip install 'vcsd[vllm]'" in result.output
