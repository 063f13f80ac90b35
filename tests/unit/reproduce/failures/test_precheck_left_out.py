"""What bases that the pre-check's table leaves out say about its statistics, recomputed here from the raw results."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from vcsd.inspect.precheck.calibration import CHANGED_CHOICES, Correlation
from vcsd.reproduce.failures.precheck_left_out import _agreement, _finding, _on_later_bases, left_out
from vcsd.reproduce.pages.precheck_page import precheck_page

RESULTS = Path(__file__).parents[4] / "docs" / "results"
LISTS = {"new, dose 0.4": "paper_dose_runs.json", "new, dose 0.6": "power_runs.json"}
STATISTICS = {
    "changed choices in the first step": "argmax_changed",
    "KL(target \\|\\| image) in the first step": "kl_target_original",
    "entropy in the first step": "student_entropy",
}


def first_steps(cells, bases, metric):
    """The metric of the first step and the gain of training, for each base; every base here has one run of VCSD."""
    own = {(cell["base"], cell["variant"]): cell for cell in cells if cell["variant"] in {"base", "VCSD"}}
    return [
        (own[base, "VCSD"]["series"][metric][0], own[base, "VCSD"]["acc"] - own[base, "base"]["acc"]) for base in bases
    ]


def row_of(section, name):
    head, *rows = [line.strip("| ").split(" | ") for line in section if "|" in line for line in line.splitlines()]
    return dict(zip(head, next(row for row in rows if row[0] == name), strict=True))


@pytest.mark.parametrize("name", STATISTICS)
def test_the_correlations_are_those_of_the_raw_results(name):
    cells = [json.loads(path.read_bytes()) for path in (RESULTS / "cells").glob("*.json")]
    row = row_of(left_out(RESULTS).section, name)
    groups = {
        title: first_steps(cells, json.loads((RESULTS / file).read_bytes())["bases"], STATISTICS[name])
        for title, file in LISTS.items()
    }
    groups["both"] = [pair for pairs in list(groups.values()) for pair in pairs]
    assert [len(pairs) for pairs in groups.values()] == [8, 12, 20]
    for title, pairs in groups.items():
        r = np.corrcoef(*zip(*pairs, strict=True))[0, 1]
        assert row[title].startswith(f"{r:+.2f} ({len(pairs)}; ")


def test_the_section_comes_before_the_table_that_it_contradicts_and_its_finding_before_all_tables():
    added = left_out(RESULTS)
    page = precheck_page(RESULTS, "", added)
    assert page.index(added.finding) < page.index("**How sure:**")
    assert page.index("## Within a dose") < page.index("## Every statistic\n")
    assert "say nothing within one** (added after the results had been read; no verdict" in added.finding
    assert "both with the opposite sign, though neither interval excludes zero" in "\n".join(added.section)
    signs = [line.split(" | ")[1][0] + line.split(" | ")[-1][0] for line in "\n".join(added.section).splitlines()[6:-2]]
    turned = [sign in {"+-", "-+"} for sign in signs]
    assert turned == sorted(turned, reverse=True), "rows whose sign turns come first"


def test_the_words_of_the_finding_follow_the_numbers():
    cells = {
        "the table of every statistic": Correlation(0.9, 0.6, 0.95, 12),
        "new, dose 0.4": Correlation(0.7, 0.1, 0.9, 8),
        "new, dose 0.6": Correlation(0.6, 0.1, 0.9, 12),
        "both": Correlation(0.6, 0.2, 0.8, 20),
        "within a dose": Correlation(0.65, 0.3, 0.8, 32),
    }
    assert "say nothing" not in _finding({CHANGED_CHOICES: cells})
    said = _on_later_bases({CHANGED_CHOICES: cells})
    assert "opposite sign" not in said
    assert "neither interval" not in said
    assert _agreement(cells) == 0.65
    assert _agreement({**cells, "within a dose": Correlation(-0.2, -0.5, 0.1, 32)}) == -0.2


def test_nothing_is_shown_before_the_lists_may_be_read(tmp_path):
    for name in ("cells", "cards", "again", "lost"):
        shutil.copytree(RESULTS / name, tmp_path / name)
    for path in RESULTS.glob("*.json"):
        shutil.copy(path, tmp_path)
    (tmp_path / "looks.json").unlink(missing_ok=True)
    assert left_out(tmp_path) is not None
    unfinished = json.loads((tmp_path / "paper_dose_runs.json").read_bytes())["bases"]
    cells = [
        path for path in (tmp_path / "cells").glob("*.json") if json.loads(path.read_bytes())["base"] in unfinished
    ]
    cells[0].unlink()
    assert left_out(tmp_path) is None
