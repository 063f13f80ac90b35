"""docs/scoring.md and docs/reader_history.md match the code."""

import json
from pathlib import Path

from vcsd.evaluation.benchmarks import BENCHMARKS
from vcsd.evaluation.benchmarks.more_benchmarks import MORE_BENCHMARKS
from vcsd.evaluation.reading.exact import RULES
from vcsd.evaluation.reading.judging.judge import MAX_FAILED
from vcsd.evaluation.reading.judging.judge_presets import PRESETS
from vcsd.evaluation.reading.marking import MODES
from vcsd.evaluation.scoring import uncertainty
from vcsd.evaluation.scoring.aggregate import AGGREGATIONS
from vcsd.evaluation.scoring.scorecard import Counts

ROOT = Path(__file__).parents[3]
READER_TEXT = " ".join((ROOT / "docs" / "reader_history.md").read_text(encoding="utf-8").split())
PAGE = " ".join((ROOT / "docs" / "scoring.md").read_text(encoding="utf-8").split())


def test_the_page_has_every_mode_rule_benchmark_aggregation_and_count():
    for name in (*MODES, *RULES, *BENCHMARKS, *AGGREGATIONS, *Counts.__dataclass_fields__):
        assert f"`{name}`" in PAGE, name
    for benchmark in BENCHMARKS.values():
        assert str(benchmark.num_questions) in PAGE


def test_the_page_has_the_constants():
    assert f"{uncertainty.LEVEL:.0%} interval" in PAGE


def test_the_page_has_the_measured_coverage():
    cells = json.loads((ROOT / "benchmarks" / "results" / "interval_coverage.json").read_text())["cells"]
    scores = [*dict.fromkeys(cell["score"] for cell in cells if cell["benchmark"] == "VStarBench")]
    assert f"| true score near | {' | '.join(f'{score:g}' for score in scores)} |" in PAGE
    rows: dict[str, dict[float, float]] = {}
    for cell in cells:
        name = cell["benchmark"] + (", difference" if cell["of"] == "difference" else "")
        rows.setdefault(name, {})[cell["score"]] = cell["interval"]
        if cell["benchmark"] not in ("six questions", "precheck, 64 examples"):
            assert 94 <= cell["interval"] <= 96, cell
    assert f"Acc of the seven: {rows.pop('Acc of the seven')[73.0]} near 73." in PAGE
    for name, row in rows.items():
        assert f"| {name} | {' | '.join(str(row.get(score, '')) for score in scores)} |".replace("  ", " ") in PAGE, (
            name
        )


def test_coverage_is_measured_for_every_benchmark():
    cells = json.loads((ROOT / "benchmarks" / "results" / "interval_coverage.json").read_text())["cells"]
    for name in (*BENCHMARKS, *MORE_BENCHMARKS):
        near = {cell["score"] for cell in cells if cell["benchmark"] == name.removesuffix("4K").removesuffix("8K")}
        assert {5.0, 93.0, 98.0} <= near, name


def test_the_page_has_the_limits_of_the_judge():
    assert f"After {MAX_FAILED} failures without one useful reply" in PAGE
    for name, preset in PRESETS.items():
        tries = [len(preset.temperatures(form)) for form in ("options", "yes_no")]
        row = PAGE.split(f"| `{name}`")[1].split(" | |")[0]
        assert all(str(number) in row for number in (*tries, preset.max_tokens)), row


def test_the_page_counts_the_labelled_answers_as_they_are():
    first, later = (
        len((ROOT / "tests" / "golden" / name).read_text().splitlines())
        for name in ("final_answers.jsonl", "final_answers_later.jsonl")
    )
    assert f"holds {first} answers" in READER_TEXT
    assert f"Of {later} more" in READER_TEXT
