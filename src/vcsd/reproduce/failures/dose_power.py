"""Which differences new bases of the paper's dose could decide, from the spread of the bases that are known.

    python -m vcsd.reproduce.failures.dose_power docs/results

The number of bases in docs/preregistration_paper_dose.md was chosen with this table, which stands there.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import VcsdError
from vcsd.reproduce.failures.paper_dose_page import DOSE, JUDGED
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.planned.planned_results import planned_results
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.paper_dose import DoseClaim
    from vcsd.reproduce.planned.planned_results import PlannedResults

COMMAND = "python -m vcsd.reproduce.failures.dose_power docs/results"
NUMS = (6, 8, 10)
CHOSEN = 8


def with_bases(change: Paired, num: int, num_tests: int = 1) -> Paired:
    """The same difference with the same spread, as if `num` bases had been measured.

    With several tests, the correction is that of Holm's first and hardest step.
    """
    assert change.difference.sd is not None
    return replace(change, num_bases=num, error=change.difference.sd / math.sqrt(num), looks=num_tests)


def power_table(runs: PlannedResults) -> str:
    """For each claim, the smallest true difference that is decided in 80% of cases, by the number of bases."""
    rows = []
    for claim in JUDGED:
        dose, change = _known(runs, claim)
        name = f"{claim.after} minus `{claim.before}`"
        if change is None or change.difference.sd is None:
            rows.append([name, "none", *[""] * (len(NUMS) + 3)])
            continue
        detectable = [
            f"{with_bases(change, num).detectable:.2f} ({with_bases(change, num, len(JUDGED)).detectable:.2f})"
            for num in NUMS
        ]
        alike = f"{with_bases(change, CHOSEN).alike_within:.2f}"
        known = f"{change.num_bases} at {dose:g}"
        rows.append([name, known, f"{change.mean:+.2f}", f"{change.difference.sd:.2f}", *detectable, alike])
    head = ["difference", "known bases", "mean", "spread", *(f"{num} bases" for num in NUMS), f"alike, {CHOSEN} bases"]
    return markdown(head, rows)


def _known(runs: PlannedResults, claim: DoseClaim) -> tuple[float, Paired | None]:
    """What is known of a difference: at the paper's dose, or else in the default world."""
    change = None
    for dose in (DOSE, PARAMETERS.ignore_share):
        change = runs.change(claim.before, claim.after, runs.doses[dose])
        if change is not None:
            break
    return dose, change


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vcsd.reproduce.failures.dose_power", description=__doc__)
    parser.add_argument("results", type=Path)
    sys.stdout.write(power_table(planned_results(parser.parse_args().results)) + "\n")


if __name__ == "__main__":
    try:
        _main()
    except VcsdError as error:
        sys.exit(str(error))
