"""`vcsd eval` killed with -9 again and again: it goes on each time, and ends with the answers of a run left alone."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tiny_models import build_model
from tiny_processor import write_processor_files
from toy_benchmarks import ROWS, write_tsvs

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def start(folder, out):
    words = ["eval", folder / "model", "--data", folder / "data", "--out", folder / out, "--mode", "exact"]
    words += ["--sampling", "paper,max_new_tokens=48", "--batch-size", "1", "--allow-unknown-data"]
    code = "from vcsd.cli import main; main()"
    given = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], **given)


def answers(folder, out):
    lines = (folder / out / "predictions.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return {(record["benchmark"], record["question"]): record for record in records}, len(records)


def test_a_killed_evaluation_goes_on_and_asks_nothing_twice(tmp_path):
    build_model().save_pretrained(tmp_path / "model")
    write_processor_files(tmp_path / "model")
    write_tsvs(tmp_path / "data")
    assert start(tmp_path, "whole").wait() == 0
    path = tmp_path / "parts" / "predictions.jsonl"
    for num_answers in (3, 11, 25):
        run = start(tmp_path, "parts")
        while run.poll() is None and (path.read_bytes().count(b"\n") if path.exists() else 0) < num_answers:
            time.sleep(0.005)
        assert run.poll() is None, run.stderr.read().decode()
        run.send_signal(signal.SIGKILL)
        run.wait()
        with path.open("ab") as file:
            file.write(b'{"benchmark": "BLINK", "quest')
    assert start(tmp_path, "parts").wait() == 0
    whole, parts = answers(tmp_path, "whole"), answers(tmp_path, "parts")
    assert whole == parts
    assert parts[1] == sum(map(len, ROWS.values()))
    cards = [json.loads((tmp_path / out / "scorecard.json").read_text()) for out in ("whole", "parts")]
    assert cards[0] == cards[1]
