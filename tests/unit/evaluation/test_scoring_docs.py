"""The page on scoring says what the code does."""

import re
from pathlib import Path

from vcsd.evaluation import judge, uncertainty
from vcsd.evaluation.aggregate import AGGREGATIONS
from vcsd.evaluation.benchmark import BENCHMARKS
from vcsd.evaluation.exact import RULES
from vcsd.evaluation.marking import MODES
from vcsd.evaluation.scorecard import Counts

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")


def test_the_page_has_every_mode_rule_benchmark_aggregation_and_count():
    for name in (*MODES, *RULES, *BENCHMARKS, *AGGREGATIONS, *Counts.__dataclass_fields__):
        assert f"`{name}`" in PAGE, name
    for benchmark in BENCHMARKS.values():
        assert str(benchmark.num_questions) in PAGE


def test_the_page_has_the_constants():
    assert f"middle {uncertainty.LEVEL:.0%} of {uncertainty.NUM_RESAMPLES:,} resamples" in PAGE
    assert f"after {judge.NUM_ASKS} replies" in PAGE


def test_the_page_counts_the_labelled_answers_as_they_are():
    first, later = (
        len((ROOT / "tests" / "golden" / name).read_text().splitlines())
        for name in ("final_answers.jsonl", "final_answers_later.jsonl")
    )
    assert f"are {first} answers" in PAGE
    assert f"Of {later} more" in PAGE


def test_files_that_the_page_names_are_there():
    for name in re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", PAGE):
        assert (ROOT / name).exists(), name
