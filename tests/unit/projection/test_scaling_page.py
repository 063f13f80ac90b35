import json
from pathlib import Path

import cards
import scaling_table
import time_model
from vcsd.projection.project import FITTED, TIME_ERROR

PAGE = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_those_that_the_command_prints():
    for table in (scaling_table.by_card(), scaling_table.by_machine(), scaling_table.by_count()):
        assert "\n".join(table) in PAGE


def test_the_measured_table_is_that_of_the_result_file():
    results = Path(__file__).parents[3] / "benchmarks" / "results" / "cards.json"
    assert cards.as_markdown(json.loads(results.read_text(encoding="utf-8"))) in PAGE


def test_the_table_of_times_is_that_of_its_result_file():
    results = Path(__file__).parents[3] / "benchmarks" / "results" / "time_model.json"
    assert time_model.as_markdown(json.loads(results.read_text(encoding="utf-8"))) in PAGE
    microseconds = [f"{1e6 * seconds:.0f} microseconds" for seconds in (FITTED.layer_seconds, FITTED.adapter_seconds)]
    for number in (f"{FITTED.bytes_between_products:.0f} bytes", *microseconds):
        assert number in " ".join(PAGE.split())
    assert f"**within {TIME_ERROR:.0%}**" in PAGE


def test_the_table_of_rounding_is_that_of_its_result_file():
    results = Path(__file__).parents[3] / "benchmarks" / "results" / "rank_drift.json"
    (result,) = json.loads(results.read_text(encoding="utf-8"))
    for row in result["rows"]:
        name = row["run"].replace("ddp", "DDP").replace("fsdp2", "FSDP2")
        gaps = [f"{row[gap]:.1e}".replace("e-0", "e-") for gap in ("divergence", "gradient_norm")]
        assert f"| {name} | {row['steps with the same rollouts']} | {' | '.join(gaps)} |" in PAGE
    assert f"lies {result['closest draw']['float64']:.0e} from".replace("e-0", "e-") in PAGE
