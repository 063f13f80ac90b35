"""`vcsd eval` killed with -9 again and again: it goes on each time, and ends with the answers of a run left alone."""

import json
import signal

import pytest

from forked_python import run_python
from tiny_models import build_model
from tiny_processor import write_processor_files
from toy_benchmarks import ROWS, write_tsvs

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


KILLED = """
import os, signal, sys
from vcsd.cli import main
from vcsd.monitor.lines import Lines

most, append, lines = int(sys.argv.pop(1)), Lines.append, []

def append_and_die(self, record):
    append(self, record)
    lines.append(record)
    if len(lines) == most:
        os.kill(os.getpid(), signal.SIGKILL)

Lines.append = append_and_die
main()
"""
"""The command, which kills itself with -9 after so many answers: no other process could hit the moment every time."""


def evaluate(folder, out, num_answers=-1):
    """Run the command until it ends or has written that many answers; return its exit code."""
    words = ["eval", folder / "model", "--data", folder / "data", "--out", folder / out, "--mode", "exact"]
    words += ["--sampling", "paper,max_new_tokens=48", "--batch-size", "1", "--allow-unknown-data"]
    script = folder / "killed.py"
    script.write_text(KILLED)
    run = run_python(script, num_answers, *words)
    assert run.returncode in (0, -signal.SIGKILL), run.stderr
    return run.returncode


def answers(folder, out):
    lines = (folder / out / "predictions.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return {(record["benchmark"], record["question"]): record for record in records}, len(records)


def test_a_killed_evaluation_goes_on_and_asks_nothing_twice(tmp_path):
    build_model().save_pretrained(tmp_path / "model")
    write_processor_files(tmp_path / "model")
    write_tsvs(tmp_path / "data")
    assert evaluate(tmp_path, "whole") == 0
    for num_answers in (3, 8, 14):
        assert evaluate(tmp_path, "parts", num_answers) == -signal.SIGKILL
        with (tmp_path / "parts" / "predictions.jsonl").open("ab") as file:
            file.write(b'{"benchmark": "BLINK", "quest')
    assert evaluate(tmp_path, "parts") == 0
    whole, parts = answers(tmp_path, "whole"), answers(tmp_path, "parts")
    assert whole == parts
    assert parts[1] == sum(map(len, ROWS.values()))
    cards = [json.loads((tmp_path / out / "scorecard.json").read_text()) for out in ("whole", "parts")]
    assert cards[0] == cards[1]
