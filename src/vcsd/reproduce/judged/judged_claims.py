"""What decides: the claims that are judged together by rules written before their runs, on which bases, and how.

The tests of the order of commits refuse a change to this file after the first result of `QWEN3_5_LIST`. What only shows
a verdict is elsewhere (`claim_tables.py` and the pages).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vcsd.reproduce.experiments import VCSD
from vcsd.reproduce.paired_runs import equivalence, holm
from vcsd.reproduce.planned.answers import FEWEST_BASES
from vcsd.reproduce.planned.paper_dose import CLAIMS, DoseClaim, verdict_at_dose

if TYPE_CHECKING:
    from collections.abc import Collection

    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.planned_results import PlannedResults

SMALL, OPEN = "disagrees: alike", "undecided"
ALPHA_0 = "alpha 0"

QWEN3_5_LIST = "qwen3_5_runs.json"
FEWEST_WHOLE_BASES = 8


@dataclass(frozen=True)
class JudgedClaims:
    """Claims with one correction for all of them, and the fewest bases that give a verdict."""

    claims: tuple[DoseClaim, ...]
    fewest_bases: int = FEWEST_BASES

    def changes(self, runs: PlannedResults) -> dict[DoseClaim, Paired | None]:
        """The difference of each claim, with Holm's correction for all of them, also for those without runs."""
        changes = {claim: runs.change(claim.before, claim.after, runs.listed.bases) for claim in self.claims}
        known = [change for change in changes.values() if change is not None]
        corrected = iter(holm(known, num_planned=len(self.claims)))
        return {claim: None if change is None else next(corrected) for claim, change in changes.items()}

    def verdict(self, change: Paired | None) -> str:
        """What the rules say: too few bases, less than a point, clearly above or below, or undecided."""
        if change is not None and change.num_bases >= self.fewest_bases and equivalence(change) == "alike":
            return SMALL
        return verdict_at_dose(change, self.fewest_bases)


AT_PAPER_DOSE = JudgedClaims(
    (
        *CLAIMS,
        DoseClaim("Without contrast, accuracy is lower", ALPHA_0, VCSD.name, (2.33, 2.33), ""),
        DoseClaim("The lead over OPSD is more than the support", "OPSD beta 0.1", VCSD.name, None, ""),
        DoseClaim("The control must be empty", "another picture", VCSD.name, None, ""),
    )
)
"""The claims of docs/preregistration_paper_dose.md, in the order of the rules."""

ON_QWEN3_5 = JudgedClaims(
    tuple(claim for claim in AT_PAPER_DOSE.claims if claim.after == VCSD.name and claim.before != ALPHA_0),
    FEWEST_WHOLE_BASES,
)
"""The claims of docs/preregistration_qwen3_5.md: those of the paper's dose about VCSD that have runs there."""


def on_bases(runs: PlannedResults, bases: Collection[str]) -> PlannedResults:
    """The same results as if the list had these bases alone."""
    listed = replace(
        runs.listed,
        bases={name: base for name, base in runs.listed.bases.items() if name in bases},
        runs=tuple(run for run in runs.listed.runs if run.base in bases),
    )
    return replace(runs, listed=listed)


def on_whole_bases(runs: PlannedResults) -> PlannedResults:
    """The results on bases of which every listed run is finished. The others count as if they had not been planned."""
    return on_bases(runs, [base for base in runs.listed.bases if not runs.missing([base])])
