"""Changed choices in the first step: taken from runs that recorded them, else from a step that was made again."""

import json
from pathlib import Path

import pytest

from vcsd.bases.shipped_bases import shipped_base
from vcsd.inspect.precheck.calibration import CHANGED_CHOICES, FIRST_STEPS, base_statistics
from vcsd.reproduce.base_folders import Base
from vcsd.reproduce.pages.precheck_page import STEPS_COMMAND, _made_again, precheck_page
from vcsd.reproduce.planned.first_steps import METRICS, finished_seeds, first_step
from vcsd.reproduce.runners import SERIES

RESULTS = Path(__file__).parents[4] / "docs" / "results"


@pytest.fixture
def out(tmp_path):
    """One base with a VCSD run that did not record changed choices; nothing here was measured."""
    (tmp_path / "cells").mkdir()
    common = {"base": "toy", "seed": 7, "identity": {"base": "abc"}, "group": "toy"}
    series = {"kl_target_original": [0.1], "realised_contrast": [0.2], "support_size": [1.5], "student_entropy": [0.3]}
    cells = [
        {**common, "variant": "base", "acc": 50.0},
        {**common, "variant": "VCSD", "acc": 60.0, "series": series},
    ]
    for number, cell in enumerate(cells):
        (tmp_path / "cells" / f"{number}.json").write_text(json.dumps(cell))
    return tmp_path


def write_step(out, **changes):
    metrics = {"argmax_changed": 0.25, "kl_target_original": 0.1, "student_entropy": 0.3}
    step = {"base": "toy", "digest": "abc", "seed": 7, "metrics": metrics, **changes}
    (out / FIRST_STEPS).write_text(json.dumps([step]))


def test_a_step_that_was_made_again_counts_only_for_the_same_weights_and_seed(out):
    assert CHANGED_CHOICES not in base_statistics(out / "cells")["toy"]
    write_step(out)
    assert base_statistics(out / "cells")["toy"][CHANGED_CHOICES] == 0.25
    for changes in ({"digest": "other"}, {"seed": 8}):
        write_step(out, **changes)
        assert CHANGED_CHOICES not in base_statistics(out / "cells")["toy"]


def test_what_a_run_recorded_comes_before_a_step_that_was_made_again(out):
    write_step(out)
    cell = json.loads((out / "cells" / "1.json").read_text())
    cell["series"]["argmax_changed"] = [0.5, 0.1]
    (out / "cells" / "1.json").write_text(json.dumps(cell))
    assert base_statistics(out / "cells")["toy"][CHANGED_CHOICES] == 0.5


def test_new_runs_record_changed_choices():
    assert set(METRICS) <= set(SERIES)


def test_the_committed_steps_belong_to_finished_runs_and_the_page_counts_the_others():
    cells = [json.loads(path.read_bytes()) for path in (RESULTS / "cells").glob("*.json")]
    runs = {(cell["identity"]["base"], cell["seed"], cell["base"]) for cell in cells if cell["variant"] == "VCSD"}
    steps = json.loads((RESULTS / FIRST_STEPS).read_bytes())
    assert {(step["digest"], step["seed"], step["base"]) for step in steps} <= runs
    bases = base_statistics(RESULTS / "cells")
    lacking = sum(CHANGED_CHOICES not in own for own in bases.values())
    page = precheck_page(RESULTS)
    assert f"{lacking} of {len(bases)} bases lack them" in page
    assert f"For {len({step['base'] for step in steps})} bases, the first step was repeated" in page


def test_the_page_counts_the_bases_whose_first_step_was_made_again_and_compares_what_runs_recorded(out):
    write_step(out)
    assert _made_again(out).endswith(
        "bases lack them. For 1 base, the first step was repeated after the runs, from the same weights and with the "
        f"same seed (`{STEPS_COMMAND}`). KL(target || image) of the repeated steps is within 0% of what the runs "
        "recorded."
    )
    write_step(out, digest="other")  # as when the run kept no series: there is nothing to compare with
    text = _made_again(out)
    assert "1 of 1 bases lack them. For 1 base, the first step was repeated" in text
    assert "KL(target" not in text


@pytest.mark.slow
def test_the_first_step_repeats_what_the_run_recorded(tmp_path):
    base = Base(shipped_base())
    assert finished_seeds(RESULTS, base)[:1] == [101]
    found = first_step(base, 101, tmp_path, overrides=("trainer.use_cpu=true",))
    (known,) = [
        step
        for step in json.loads((RESULTS / FIRST_STEPS).read_bytes())
        if (step["digest"], step["seed"]) == (base.digest, 101)
    ]
    assert found["metrics"] == pytest.approx(known["metrics"], rel=0.05)
