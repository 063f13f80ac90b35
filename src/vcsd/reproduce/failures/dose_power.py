"""Which differences new bases could decide, from the spread of the bases that are known.

    python -m vcsd.reproduce.failures.dose_power docs/results                    # the paper's dose
    python -m vcsd.reproduce.failures.dose_power docs/results --claims qwen3_5   # new bases of Qwen3.5

The numbers of bases in docs/preregistration_paper_dose.md and docs/preregistration_qwen3_5.md were chosen with these
tables, which stand there.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import VcsdError
from vcsd.reproduce.failures.failure_runs import POWER_LIST
from vcsd.reproduce.failures.paper_dose_page import DOSE
from vcsd.reproduce.judged.judged_claims import AT_PAPER_DOSE, ON_QWEN3_5
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.planned.planned_results import planned_results
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcsd.reproduce.judged.judged_claims import JudgedClaims
    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.paper_dose import DoseClaim
    from vcsd.reproduce.planned.planned_results import PlannedResults

NUMS, CHOSEN = (6, 8, 10), 8
NUMS_QWEN3_5, CHOSEN_QWEN3_5 = (8, 10, 12), 12


def with_bases(change: Paired, num: int, num_tests: int = 1) -> Paired:
    """The same difference with the same spread, as if `num` bases had been measured.

    With several tests, the correction is that of Holm's first and hardest step.
    """
    assert change.difference.sd is not None
    return replace(change, num_bases=num, error=change.difference.sd / math.sqrt(num), looks=num_tests)


def power_table(runs: PlannedResults) -> str:
    """The differences that can be decided at the paper's dose, from the bases of that dose or the default world."""

    def known(claim: DoseClaim) -> tuple[str, Paired | None]:
        change = None
        for dose in (DOSE, PARAMETERS.ignore_share):
            change = runs.change(claim.before, claim.after, runs.doses[dose])
            if change is not None:
                break
        return f"at {dose:g}", change

    return _table(AT_PAPER_DOSE, known, NUMS, CHOSEN)


def power_table_qwen3_5(runs: PlannedResults, more: PlannedResults) -> str:
    """The same on Qwen3.5, from its bases in the list of more bases, or else from those of Qwen3-VL that have runs."""
    own = [name for name, base in more.listed.bases.items() if base.family == "qwen3_5"]

    def known(claim: DoseClaim) -> tuple[str, Paired | None]:
        change = more.change(claim.before, claim.after, own)
        if change is not None:
            return "of Qwen3.5", change
        return "of Qwen3-VL", runs.change(claim.before, claim.after, runs.verdict_bases)

    return _table(ON_QWEN3_5, known, NUMS_QWEN3_5, CHOSEN_QWEN3_5)


def _table(
    judged: JudgedClaims, known: Callable[[DoseClaim], tuple[str, Paired | None]], nums: tuple[int, ...], chosen: int
) -> str:
    """For each claim, the smallest true difference that is decided in 80% of cases, by the number of bases."""
    rows, num_tests = [], len(judged.claims)
    for claim in judged.claims:
        which, change = known(claim)
        name = f"{claim.after} minus `{claim.before}`"
        if change is None or change.difference.sd is None:
            rows.append([name, "none", *[""] * (len(nums) + 3)])
            continue
        detectable = [
            f"{with_bases(change, num).detectable:.2f} ({with_bases(change, num, num_tests).detectable:.2f})"
            for num in nums
        ]
        alike = f"{with_bases(change, chosen).alike_within:.2f}"
        bases = f"{change.num_bases} {which}"
        rows.append([name, bases, f"{change.mean:+.2f}", f"{change.difference.sd:.2f}", *detectable, alike])
    head = ["difference", "known bases", "mean", "spread", *(f"{num} bases" for num in nums), f"alike, {chosen} bases"]
    return markdown(head, rows)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vcsd.reproduce.failures.dose_power", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--claims", choices=("paper_dose", "qwen3_5"), default="paper_dose")
    options = parser.parse_args()
    runs = planned_results(options.results)
    if options.claims == "qwen3_5":
        table = power_table_qwen3_5(runs, planned_results(options.results, POWER_LIST))
    else:
        table = power_table(runs)
    sys.stdout.write(table + "\n")


if __name__ == "__main__":
    try:
        _main()
    except VcsdError as error:
        sys.exit(str(error))
