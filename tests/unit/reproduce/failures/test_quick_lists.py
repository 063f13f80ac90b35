"""A smoke test of the lists: every setting runs from its base to its result."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tiny_bases import make_base, write_planned_card
from vcsd.reproduce.failures.failure_runs import FAILURE_LIST, POWER_LIST
from vcsd.reproduce.judged.judged_claims import QWEN3_5_LIST
from vcsd.reproduce.planned.paper_dose import PAPER_DOSE_LIST
from vcsd.reproduce.planned.run_list import read_run_list
from vcsd.reproduce.planned.run_planned import QUICK_SIZE, QUICK_WORLD

FIRST = "qwen3_vl-small-21"
RESULTS = Path(__file__).parents[4] / "docs" / "results"
COMMAND = [sys.executable, "-m", "vcsd.reproduce.planned.run_planned", "--quick", "--jobs", "1", "--minutes", "60"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    ("name", "num_runs", "num_bases"),
    [(FAILURE_LIST, 22, 4), (POWER_LIST, 6, 2), (PAPER_DOSE_LIST, 8, 1), (QWEN3_5_LIST, 7, 1)],
)
def test_a_quick_list_has_every_setting_once(name, num_runs, num_bases):
    listed = read_run_list(RESULTS / name)
    quick = listed.quick("tiny", ("batch=8",))
    assert (len(quick.runs), len(quick.bases)) == (num_runs, num_bases)
    assert {run.variant for run in quick.runs} == {run.variant for run in listed.runs}
    assert all(base.size == "tiny" and base.overrides[-1] == "batch=8" for base in quick.bases.values())
    assert quick.digest == listed.digest


@pytest.mark.slow
def test_every_setting_runs_end_to_end(tmp_path):
    """From random bases that stand for pre-trained ones: making bases has tests of its own."""
    tree = json.loads((RESULTS / FAILURE_LIST).read_text())
    tree["runs"] = [run for run in tree["runs"] if all(base.startswith(FIRST) for base in run["on"])]
    (tmp_path / "list.json").write_text(json.dumps(tree))
    quick = read_run_list(tmp_path / "list.json").quick(QUICK_SIZE, QUICK_WORLD)
    for seed, base in enumerate(quick.bases.values()):
        folder = make_base(tmp_path / "out" / "quick" / "bases" / base.name, seed=seed)
        write_planned_card(folder, base)
    command = [*COMMAND, str(tmp_path / "list.json"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert "10 runs finished, 0 failed, 1 known" in done.stdout, "300 quick steps are the two steps of another run"
    results = [json.loads(path.read_text()) for path in (tmp_path / "out" / "quick" / "cells").glob("*.json")]
    assert len(results) == 10
    measured = set.intersection(*(set(result["abilities"]) for result in results))
    assert {"sight", "hint", "text_only", "black", "usual", "pass_at", "entropy", "ece", "answers"} <= measured


@pytest.mark.slow
def test_a_list_that_is_stopped_goes_on_from_its_archive_in_another_place(tmp_path):
    """As on a machine that is given back: the archive is all that is left, and no run is repeated."""
    tree = json.loads((RESULTS / QWEN3_5_LIST).read_text())
    (base,) = tree["runs"][0]["on"]
    tree["bases"] = {base: tree["bases"][base]}
    tree["runs"] = [{**tree["runs"][0], "variants": ["base", "VCSD", "OPSD"]}]
    (tmp_path / "list.json").write_text(json.dumps(tree))
    quick = read_run_list(tmp_path / "list.json").quick(QUICK_SIZE, QUICK_WORLD).bases[base]
    folder = make_base(tmp_path / "first" / "quick" / "bases" / base, family="qwen3_5")
    write_planned_card(folder, quick)
    command = [*COMMAND, str(tmp_path / "list.json"), "--archive", str(tmp_path / "kept.tar.gz"), "--out"]
    first = [*command, str(tmp_path / "first")]
    with subprocess.Popen(first, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as running:
        for line in running.stdout:
            if "[1/3]" in line:
                running.send_signal(signal.SIGTERM)
                break
        said = running.stdout.read()
    assert running.returncode == 0
    assert "Interrupted. The same command resumes." in said
    journal = (tmp_path / "first" / "quick" / "runs.jsonl").read_text()
    num_done = json.loads(journal)["cells_run"]
    assert json.loads(journal)["ended"] == "interrupted"
    assert 1 <= num_done < 3
    with tarfile.open(tmp_path / "kept.tar.gz") as tar:
        tar.extractall(tmp_path / "second" / "quick", filter="data")
    second = [*command, str(tmp_path / "second")]
    done = subprocess.run(second, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert f"{3 - num_done} runs finished, 0 failed, {num_done} known" in done.stdout
    assert len(list((tmp_path / "second" / "quick" / "cells").iterdir())) == 3
