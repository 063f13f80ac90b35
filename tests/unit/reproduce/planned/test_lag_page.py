"""The page of the lag study: it equals its files, names what is missing, and judges by its rule."""

import json
from pathlib import Path

import pytest

from vcsd.config.recipe import load_recipe
from vcsd.config.shipped import recipe_path
from vcsd.reproduce.cell import full_sweep
from vcsd.reproduce.experiments import EXPERIMENTS, LAG, VCSD, Variant
from vcsd.reproduce.failures.worst_results import worst_results
from vcsd.reproduce.planned.lag_page import LIST, PAGE, LagRuns, draw, lag_page, lag_runs, same_lengths
from vcsd.reproduce.planned.planned_results import PlannedResults
from vcsd.reproduce.planned.run_list import PlannedRun, read_run_list

RESULTS = Path(__file__).parents[4] / "docs" / "results"
LISTED = read_run_list(RESULTS / LIST)


@pytest.fixture
def finished(tmp_path):
    """Write results of some runs: Acc by lag and seed."""
    (tmp_path / "cells").mkdir()
    sweep = full_sweep(tmp_path)

    def write(accs):
        for run in LISTED.runs:
            acc = accs.get((run.variant.name, run.seed))
            if acc is not None:
                series = {name: [1.0, 2.0] for name in ("loss", "student_entropy", "length")}
                made = {"seconds": 360.0, "hardware": "16 cores", "versions": {"torch": "2.13"}, "series": series}
                LISTED.cell(run, tmp_path, sweep).path.write_text(json.dumps({"acc": acc, **made}))
        return LagRuns(PlannedResults(LISTED, tmp_path, {}))

    return write


def test_the_page_is_what_the_files_give():
    assert lag_page(lag_runs(RESULTS)) == (RESULTS / PAGE).read_text(encoding="utf-8")


def test_the_list_has_four_lags_with_five_seeds_and_starts_with_whole_pairs():
    assert len(LISTED.runs) == 20
    assert [(run.variant.name, run.seed) for run in LISTED.runs[:5]] == [
        *((f"lag {lag}", 301) for lag in (0, 1, 2, 4)),
        ("lag 0", 302),
    ]
    assert {run.base for run in LISTED.runs} == {"shipped:qwen3_vl"}
    assert LAG.name not in EXPERIMENTS, "it is no experiment of the paper"


def test_a_lag_changes_one_key_and_lag_0_is_the_papers_run(tmp_path):
    sweep = full_sweep(tmp_path)
    cells = {lag: LISTED.cell(LISTED.runs[place], tmp_path, sweep) for place, lag in enumerate((0, 1, 2, 4))}
    assert cells[0].key == LISTED.cell(PlannedRun(VCSD, "shipped:qwen3_vl", 301), tmp_path, sweep).key
    assert len({cell.key for cell in cells.values()}) == 4
    for lag, cell in cells.items():
        assert cell.recipe().rollout.steps_ahead == lag
    assert load_recipe(recipe_path("world/reproduce")).rollout.steps_ahead == 0


def test_missing_runs_are_named_and_pairs_compared(finished):
    accs = {("lag 0", seed): 90.0 + seed % 7 for seed in (301, 302, 303)}
    later = {("lag 1", seed): accs["lag 0", seed] + change for seed, change in ((301, 0.1), (302, 0.3), (303, 0.2))}
    runs = finished({**accs, **later, ("lag 2", 301): 50.0})
    page = lag_page(runs)
    assert "**7 of 20 planned runs are finished.**" in page
    assert "lag 4 with seed 301" in page
    assert "lag 0 with seed 301" not in page
    (one, two, four) = [line for line in page.splitlines() if line.startswith(("| lag 1", "| lag 2", "| lag 4"))][:3]
    assert "+0.20 | not recorded | -0.05 to +0.45 | too small to matter" in one  # unread answers are not made up
    assert "too few runs" in two
    assert "too few runs" in four
    assert draw(runs) is not None


def test_a_loss_is_called_one(finished):
    accs = {("lag 0", seed): 90.0 for seed in (301, 302, 303)}
    page = lag_page(finished({**accs, **{("lag 4", seed): 80.0 + seed - 301 for seed in (301, 302, 303)}}))
    assert "| -9.00 | not recorded | -11.48 to -6.52 | worse |" in page


def test_a_small_difference_that_excludes_zero_is_called_clear(finished):
    accs = {("lag 0", seed): 90.0 for seed in (301, 302, 303)}
    page = lag_page(finished({**accs, **{("lag 2", seed): 89.9 + (seed - 302) / 100 for seed in (301, 302, 303)}}))
    assert "| -0.10 | not recorded | -0.12 to -0.08 | clear, but too small to matter |" in page


def test_steps_with_equal_lengths_are_counted(finished):
    runs = finished({(name, seed): 90.0 for name in ("lag 0", "lag 4") for seed in (301, 302)})
    runs.results(Variant("lag 0"))[301]["series"]["length"] = [1.0, 3.0]
    assert same_lengths(runs, next(each for each in LAG.variants if each.name == "lag 4")) == 0.75
    assert "equals that without a lag in 75% of the steps, with a lag of 4: training mostly" in lag_page(runs)


def test_one_base_gives_no_verdict():
    page = (RESULTS / PAGE).read_text(encoding="utf-8")
    assert "| 95% interval | on this base |" in page
    assert "| verdict |" not in page
    assert "**One base: no verdict.**" in page
    assert worst_results(RESULTS)[PAGE].verdict == "one base: no verdict"


def test_without_results_there_is_no_table(finished):
    page = lag_page(finished({}))
    assert "**0 of 20 planned runs are finished.**" in page
    assert "|" not in page
    assert draw(finished({})) is None


def test_variants_that_are_not_listed_have_no_results(finished):
    assert finished({("lag 0", 301): 90.0}).results(Variant("lag 3")) == {}
