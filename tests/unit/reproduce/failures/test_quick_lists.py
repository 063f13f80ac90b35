"""A smoke test of the lists: every setting runs from its base to its result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vcsd.reproduce.failures.failure_runs import FAILURE_LIST, POWER_LIST
from vcsd.reproduce.planned.run_list import SHIPPED, read_run_list

RESULTS = Path(__file__).parents[4] / "docs" / "results"


@pytest.mark.parametrize(("name", "num_runs", "num_bases"), [(FAILURE_LIST, 22, 4), (POWER_LIST, 6, 2)])
def test_a_quick_list_has_every_setting_once(name, num_runs, num_bases):
    listed = read_run_list(RESULTS / name)
    quick = listed.quick("tiny", ("batch=8",))
    assert (len(quick.runs), len(quick.bases)) == (num_runs, num_bases)
    assert {run.variant for run in quick.runs} == {run.variant for run in listed.runs}
    assert all(base.size == "tiny" and base.overrides[-1] == "batch=8" for base in quick.bases.values())
    assert quick.digest == listed.digest


@pytest.mark.slow
def test_every_setting_runs_end_to_end(tmp_path):
    tree = json.loads((RESULTS / FAILURE_LIST).read_text())
    tree["runs"] = [run for run in tree["runs"] if not any(base.startswith(SHIPPED) for base in run["on"])]
    (tmp_path / "list.json").write_text(json.dumps(tree))
    command = [sys.executable, "-m", "vcsd.reproduce.planned.run_planned", str(tmp_path / "list.json"), "--quick"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command += ["--out", str(tmp_path / "out"), "--jobs", "2", "--minutes", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "11 runs finished, 0 failed, 0 known" in done.stdout, done.stdout
    results = [json.loads(path.read_text()) for path in (tmp_path / "out" / "cells").glob("*.json")]
    assert len(results) == 11
    assert {"sight", "hint", "text_only", "black", "pass_at", "ece"} <= set.intersection(
        *(set(result["abilities"]) for result in results)
    )
    assert len(list((tmp_path / "out" / "cards").glob("*.json"))) == 4
