"""Made-up results for every run of a list, to see every verdict that a page could give."""

from pathlib import Path

from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.failures.failure_runs import ReadOnce
from vcsd.reproduce.pages.from_files import RecordedBase
from vcsd.reproduce.planned.planned_results import PlannedResults
from vcsd.reproduce.planned.run_list import read_run_list

RESULTS = Path(__file__).parents[1] / "docs" / "results"
NOISE = (0.3, -0.3, 0.2, -0.2, 0.1, -0.1, 0.25, -0.25, 0.15, -0.15, 0.05, -0.05)


def made_up_runs(list_name, gains, *, spread=1.0, without=(), closed_because=None, out=RESULTS):
    """A result for every run of the list: 70 and the gain of its variant. Only VCSD scatters from base to base.

    So every difference to VCSD has that spread. `without` names variants and bases that have no result.
    """
    listed = read_run_list(RESULTS / list_name)
    places = {base: place for place, base in enumerate(listed.bases)}
    results = {}
    for run in listed.runs:
        scatter = spread * NOISE[places[run.base]] if run.variant.name == "VCSD" else 0
        acc = 70.0 + gains[run.variant.name] + scatter
        results[run] = {
            **{"acc": acc, "scores": dict.fromkeys(SEVEN, acc), "seconds": 10.0, "hardware": "made up"},
            **{"group": "made up", "unresolved": 0, "num_questions": 1000},
            "guard": {"warn": None, "stop": None, "acc_at_stop": None},
        }
        if run.variant.name in without or run.base in without:
            results[run] = None
    recorded = {base: RecordedBase(Path(base), "made up", "0") for base in listed.bases}
    return ReadOnce(list_name, PlannedResults(listed, out, recorded, results), {}, closed_because)
