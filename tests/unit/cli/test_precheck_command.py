import json
import sys

from typer.testing import CliRunner

from tiny_examples import picture
from vcsd.cli import app
from vcsd.errors import ConfigError, install_command
from vcsd.inspect.precheck import diagnosis


def invoke(*arguments):
    return CliRunner().invoke(app.app, ["precheck", *map(str, arguments)])


def test_own_data_is_checked_bad_rows_are_counted_and_unknown_answers_are_not_called_wrong(tmp_path, monkeypatch):
    picture(64, 64).save(tmp_path / "0.png")
    rows = [
        {"id": "good", "Question": "What color is the circle?", "image": "0.png", "category": "hue[/]"},
        {"id": "gone", "Question": "What color is the ring?", "image": "missing.png"},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["world", "--data", tmp_path / "train.jsonl", "--out", tmp_path / "out", "--max-new-tokens", 8]
    assert "Did you mean 'Question'? Set data.columns.prompt=COLUMN" in str(invoke(*arguments).exception)
    result = invoke(*arguments, "data.columns.prompt=Question")
    assert result.exit_code == 0, result.output
    assert "No verdict: the data has no answers" in result.output.replace("\n", " ")
    assert "hue[/] 1 - - -" in " ".join(result.output.split())
    stored = json.loads((tmp_path / "out" / "precheck.json").read_text())
    assert stored["num_examples"] == 1
    assert list(stored["skipped"]) == ["gone"]
    assert list(stored["by_category"]) == ["hue[/]"]
    page = (tmp_path / "out" / "precheck.html").read_text()
    assert "data:image/png" in page
    assert 'class="mark"' not in page
    assert f"Pre-check: world on {tmp_path / 'train.jsonl'}" in page
    monkeypatch.chdir(tmp_path)
    again = invoke("world", "--data", "train.jsonl", *arguments[3:], "data.columns.prompt=Question")
    assert again.exit_code == 0, again.exception
    stored = json.loads((tmp_path / "out" / "precheck.json").read_text())
    (tmp_path / "train.jsonl").rename(tmp_path / "other.jsonl")
    refused = invoke("world", "--data", tmp_path / "other.jsonl", *arguments[3:], "data.columns.prompt=Question")
    assert "holds the results of the data 'train.jsonl'. Choose another" in str(refused.exception)
    assert json.loads((tmp_path / "out" / "precheck.json").read_text()) == stored


def test_rows_of_which_none_can_be_read_are_counted(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"prompt": "?", "image": "no.png"}\n' * 2)
    refused = invoke("world", "--data", tmp_path / "train.jsonl", "--out", tmp_path / "out").exception
    assert "none of the 2 examples could be used: there is no file" in str(refused)


def test_the_verdict_of_the_command_quotes_the_test_on_unseen_bases_everywhere(tmp_path):
    result = invoke("world", "--num", 2, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    quoted = "On 8 bases that the calibration had not seen"
    assert quoted in " ".join(result.output.split())
    assert "no better than a constant" in " ".join(result.output.split())
    assert quoted in (tmp_path / "precheck.html").read_text(encoding="utf-8")
    stored = json.loads((tmp_path / "precheck.json").read_text(encoding="utf-8"))
    assert "on 8 bases that it had not seen, it was no better than a constant" in stored["verdict"]
    assert len(stored["tested_on_unseen_bases"]["bases"]) == 8
    (tmp_path / "precheck.json").write_text(json.dumps({**stored, "model": "runs/a/student", "weights": "others"}))
    refused = invoke("world", "--num", 2, "--out", tmp_path)
    assert "holds the results of 'runs/a/student', or of other weights with the same name" in str(refused.exception)


def test_a_stopped_check_says_that_the_answers_are_kept(tmp_path, monkeypatch):
    def stop(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(diagnosis, "diagnose", stop)
    result = invoke("world", "--num", 2, "--out", tmp_path)
    assert result.exit_code == 130
    assert "Stopped. Answers so far are kept; the same command resumes." in result.output


def test_a_model_without_data_is_told_to_bring_some():
    error = invoke("nowhere").exception
    assert isinstance(error, ConfigError)
    assert "--data is missing" in str(error)


def test_an_engine_that_is_unknown_or_not_installed_is_refused(tmp_path, monkeypatch):
    assert "Choose transformers or vllm" in str(invoke("world", "--engine", "jax").exception)
    monkeypatch.setitem(sys.modules, "vllm", None)
    missing = invoke("world", "--num", 2, "--engine", "vllm", "--out", tmp_path).exception
    assert isinstance(missing, ConfigError)
    assert install_command("vllm") in str(missing)
