"""Every committed page is what one command writes from the result files, and pictures are those of their pages."""

import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from vcsd.errors import ConfigError
from vcsd.reproduce.every_page import page_texts, pictures
from vcsd.reproduce.failures.worst_results import _language, contrast_at_paper_size
from vcsd.reproduce.pages.first_screen import WORDS
from vcsd.reproduce.pages.from_files import (
    planned_bases,
    recorded_results,
)
from vcsd.reproduce.pages.index import WorstResult
from vcsd.reproduce.pages.provenance import MADE_PAGE
from vcsd.reproduce.planned import verdict_page
from vcsd.reproduce.planned.paper_dose import PAPER_DOSE_LIST, PAPER_DOSE_PAGE
from vcsd.reproduce.planned.planned_results import planned_results
from vcsd.reproduce.planned.run_list import read_run_list

RESULTS = Path(__file__).parents[3] / "docs" / "results"

OTHER_WRITERS = {"language", "language_exported"}
"""Pages of packages above this one: tests/unit/emoji/test_language_page.py compares them with their writer."""


@pytest.fixture(scope="module")
def texts():
    return page_texts(RESULTS)


def test_the_committed_pages_are_what_the_files_give(texts):
    committed = {path.name for path in RESULTS.glob("*.md") if path.stem not in OTHER_WRITERS}
    assert {name for name in texts if name.endswith(".md")} == committed, "a page that the command does not write"
    different = [name for name, text in texts.items() if text != (RESULTS / name).read_text(encoding="utf-8")]
    assert different == [], "run: python -m vcsd.reproduce.every_page docs/results"


def test_the_front_page_starts_with_the_worst_results_and_the_claims_with_the_size_of_gains(texts):
    front, claims = texts["README.md"], texts["claims.md"]
    pages = re.findall(r"(?m)^\| \[.*?\]\((\w+)\.md\) \|", front)
    first = ["language", "where_it_fails", "claims", "language_exported", "paper_dose"]
    assert pages[:5] == first, "failed, lost, disagrees, undecided: first what fails by a stricter reading"
    assert "(doses.md) | 3 Qwen3-VL | with true captions, VCSD minus base -0.96" in front
    assert pages.index("qwen3_5") < pages.index("main"), "planned runs come before the paper's experiments"
    assert "| 8 Qwen3-VL | VCSD minus `contrast decoding` -1.27 (95% -3.02 to +0.48) | 4 undecided, 4 agree |" in front
    assert "judged by these alone, the study fails | the study is undecided |" in front
    assert front.count("main_differences.png") == 1
    assert claims.index("**Gains here are larger than the paper's**") < claims.index("| claim | experiment |")
    assert "[doses.md](doses.md) (three bases, no verdict)" in claims


@pytest.mark.parametrize(
    "name",
    [
        *("claims.md", "what_the_contrast_adds.md", "where_it_fails.md", "precheck.md", "doses.md", "lag.md"),
        *("sharpening_so_far.md", "more_bases.md"),
    ],
)
def test_the_longest_pages_start_with_question_outcome_certainty_and_command(texts, name):
    start = texts[name].partition("\n| ")[0].partition("\n## ")[0]
    places = [start.index(f"**{part}:**") for part in ("Question", "Result", "How sure", "Repeat")]
    assert places == sorted(places)
    assert re.search(r"`python -m vcsd\.reproduce\.[\w.]+ docs/results`", start[places[-1] :])
    assert WORDS in start
    assert len(start.replace(WORDS, "").split()) < 350, "it fits on one screen"


def test_every_picture_of_a_page_is_drawn_by_the_command(texts):
    shown = {name for text in texts.values() for name in re.findall(r"\]\((\w+\.png)\)", text)}
    assert shown <= set(pictures(RESULTS))
    drawn = {path.name for path in RESULTS.glob("*.png") if path.stem not in OTHER_WRITERS}
    assert drawn <= set(pictures(RESULTS))
    for name in shown:
        with Image.open(RESULTS / name) as image:
            assert min(image.size) > 300


def test_the_front_page_tells_the_verdict_of_the_emoji_study_when_its_page_does(tmp_path):
    path = tmp_path / "language.md"
    assert _language(path) is None
    path.write_text("0 of 43 planned runs are finished.\n")
    assert _language(path) is None
    path.write_text("# Results\nThere are 5 bases.\n\n**The study is undecided.**\nBy the 3 bases it fails.\n")
    assert _language(path) == WorstResult("undecided", "5", "", "the study is undecided")
    path.write_text("**The study is undecided.**\n\nBeside it: VCSD breaks at least one gate on 1 of 5 bases. Of 12\n")
    assert _language(path).came_out == "VCSD breaks at least one gate on 1 of 5 bases"
    path.write_text("**The study fails.**\n\n**Found after the look: its exam\nis wrong.** More.\n")
    assert _language(path) == WorstResult("fails", "", "found after the look: its exam is wrong", "the study fails")


def test_a_folder_without_the_lists_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="Pass docs/results"):
        page_texts(tmp_path)


def test_planned_bases_are_not_among_those_of_the_claims():
    results = recorded_results(RESULTS, planned_bases(RESULTS))
    names = {base.folder.name for bases in results.groups.values() for base in bases}
    assert names.isdisjoint(planned_bases(RESULTS))


def test_a_changed_result_changes_its_page(texts, tmp_path):
    for name in ("cells", "cards", "again"):
        shutil.copytree(RESULTS / name, tmp_path / name)
    for path in RESULTS.glob("*.json"):
        shutil.copy(path, tmp_path)
    page = verdict_page.verdict_page(planned_results(tmp_path), contrast_at_paper_size(tmp_path))
    assert page == texts[verdict_page.PAGE]
    cells = {path: path.read_text(encoding="utf-8") for path in (tmp_path / "cells").glob("*.json")}
    wanted = ('"variant": "VCSD"', '"base": "qwen3_vl-small-14"')
    (path,) = [path for path, text in cells.items() if all(words in text for words in wanted)]
    path.write_text(re.sub(r'"acc": [\d.]+', '"acc": 1.0', cells[path], count=1), encoding="utf-8")
    assert "| VCSD | 80.32 | 67.98 | 99.39 | 1.00 | 98.86 |" in verdict_page.verdict_page(planned_results(tmp_path))


def test_a_folder_with_few_results_and_without_optional_lists_gets_the_same_pages_twice(tmp_path):
    """The pages that are written in the same run are known to the front page, to the claims and to experiments."""
    (tmp_path / "cells").mkdir()
    for name in ("planned.json", "lag_runs.json"):
        shutil.copy(RESULTS / name, tmp_path)
    cells = {path: path.read_text(encoding="utf-8") for path in (RESULTS / "cells").glob("*.json")}
    for path in [path for path, text in cells.items() if '"base": "qwen3_vl-small-5"' in text]:
        shutil.copy(path, tmp_path / "cells")
    (tmp_path / "support.md").write_text("An earlier page.")
    first = page_texts(tmp_path)
    assert "(what_the_contrast_adds.md)" in first["README.md"]
    assert "(what_the_contrast_adds.md#the-guard-on-new-runs)" in first["support.md"]
    assert first["precheck.md"].endswith("Too few bases with contrast decoding and training: 1 of 5.\n")
    for name, text in first.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert page_texts(tmp_path) == first
    drawn = pictures(tmp_path)
    assert "where_it_fails.png" not in drawn
    assert drawn["precheck.png"]() is None


@pytest.mark.slow
def test_results_of_an_unfinished_list_change_nothing_but_a_count(tmp_path):
    """Five of 64 runs at the paper's dose: no other page may show them before the one look."""
    for name in ("cells", "cards", "again"):
        shutil.copytree(RESULTS / name, tmp_path / name)
    for path in (path for path in RESULTS.iterdir() if path.is_file()):
        shutil.copy(path, tmp_path)
    bases = read_run_list(RESULTS / PAPER_DOSE_LIST).bases
    cells = [path for path in sorted((tmp_path / "cells").iterdir()) if json.loads(path.read_bytes())["base"] in bases]
    assert len(cells) == 64
    for path in cells:
        path.rename(tmp_path / path.name)
    before = page_texts(tmp_path)
    for path in cells[:5]:
        (tmp_path / path.name).rename(path)
    after = page_texts(tmp_path)
    changed = {name for name, text in after.items() if text != before[name]}
    assert changed == {PAPER_DOSE_PAGE, "README.md", MADE_PAGE}
    assert "**0 of 64 runs are finished.** Their results" in before[PAPER_DOSE_PAGE]
    assert "**5 of 64 runs are finished.** Their results" in after[PAPER_DOSE_PAGE]
    for page, words in {"README.md": "5 of 64 runs are finished", MADE_PAGE: "Why the numbers of runs differ"}.items():
        assert all(words in line for line in set(after[page].splitlines()) - set(before[page].splitlines()))
