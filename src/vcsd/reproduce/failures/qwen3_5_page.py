"""The page of VCSD and its controls on new bases of Qwen3.5, judged by docs/preregistration_qwen3_5.md.

`python -m vcsd.reproduce.every_page docs/results` writes it. Until its runs may be read, it says how many are finished,
and nothing else about them. What decides is in `judged_claims.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.experiments import BASE, OPSD, VCSD
from vcsd.reproduce.failures import after_reading
from vcsd.reproduce.failures.failure_runs import POWER_LIST
from vcsd.reproduce.failures.power_page import LOST, lost_cells
from vcsd.reproduce.judged.claim_tables import (
    claims_section,
    draw_claims,
    named_changes,
    shares_section,
    short,
    suites_section,
    trained_controls,
    verdict_counts,
)
from vcsd.reproduce.judged.judged_claims import ON_QWEN3_5, OPEN, on_bases, on_whole_bases
from vcsd.reproduce.pages.first_screen import question_first
from vcsd.reproduce.planned.answers import MAIN_CONTROL
from vcsd.reproduce.planned.planned_results import AGAIN, made_again, planned_results
from vcsd.reproduce.planned.verdict_page import all_runs
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

    from vcsd.reproduce.failures.failure_runs import ReadOnce
    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.paper_dose import DoseClaim
    from vcsd.reproduce.planned.planned_results import PlannedResults

PAGE, PICTURE = "qwen3_5.md", "qwen3_5.png"
QUESTION = (
    "Is VCSD above its base, above OPSD and above the controls on small models of the architecture of Qwen3.5? The "
    "controls ran on Qwen3-VL before."
)
WEAK = 40.0
"""A base that answers less than this share correctly before training: three of nine earlier ones did."""


def qwen3_5_page(runs: ReadOnce) -> str:
    """Build the page."""
    listed = runs.runs.listed.bases
    lines = [
        *question_first("VCSD and its controls on Qwen3.5", QUESTION),
        f"The [rules](../preregistration_qwen3_5.md) were committed before the first run: {len(listed)} new bases "
        "(Qwen3.5, 3.0M) of the default world. A base counts only if all its runs are finished.",
        "",
        runs.status(),
        "",
        *_lost(runs),
    ]
    if not runs.may_be_read:
        return "\n".join([*lines, *runs.commands(), ""])
    whole = on_whole_bases(runs.runs)
    if left_out := [name for name in listed if name not in whole.listed.bases]:
        lines += [f"**Left out, because not all of their runs are finished**: {', '.join(left_out)}.", ""]
    lines += [*_claims(whole), *_without_lost(runs, whole)]
    lines += [f"![The differences with 95% intervals]({PICTURE})", ""] if whole.listed.bases else []
    lines += [*shares_section(ON_QWEN3_5, whole, PARAMETERS.ignore_share)]
    lines += [*suites_section(whole, [claim.before for claim in ON_QWEN3_5.claims]), *_hidden(whole)]
    lines += [*after_reading.guard_on(whole, added=""), *all_runs(whole, list(whole.listed.bases))]
    return "\n".join([*lines, *runs.made()])


def draw_qwen3_5(runs: PlannedResults) -> Figure | None:
    """The differences that are judged: those that were large before, to base, OPSD and sharpening, beside the others.

    None without whole bases.
    """
    return draw_claims(ON_QWEN3_5, on_whole_bases(runs), [BASE.name, OPSD.name, MAIN_CONTROL], "Acc on Qwen3.5")


def _lost(runs: ReadOnce) -> Iterator[str]:
    """Which bases started over because their weights were lost before all their runs were finished, or by mistake."""
    if own := lost_cells(runs):
        names = ", ".join(sorted({cell["base"] for cell in own}))
        yield (
            f"**Started over**, because their weights were lost before all their runs were finished: {names}. By the "
            f"rules, their first results ({len(own)}) were moved to `{LOST}/cells` unread, and are not used."
        )
        yield ""
    if twice := made_again(runs.runs):
        yield f"**Made twice by mistake**: {', '.join(twice)}. The later results are in `{AGAIN}/cells`, and not used."
        yield ""


def _without_lost(runs: ReadOnce, whole: PlannedResults) -> Iterator[str]:
    """What the verdicts would be without the bases that started over."""
    lost = {cell["base"] for cell in lost_cells(runs)}
    rest = [name for name in whole.listed.bases if name not in lost]
    if len(rest) < len(whole.listed.bases):
        counts = verdict_counts(ON_QWEN3_5, on_bases(whole, rest))
        yield (
            f"Without the bases that started over, {len(rest)} are left; no verdict rests on this. "
            f"{counts}: {_verdicts(on_bases(whole, rest))}."
        )
        yield ""


def _verdicts(runs: PlannedResults) -> str:
    return "; ".join(f"{name} {ON_QWEN3_5.verdict(change)}" for name, change in named_changes(ON_QWEN3_5, runs).items())


def _claims(whole: PlannedResults) -> Iterator[str]:
    earlier = planned_results(whole.out, POWER_LIST) if (whole.out / POWER_LIST).is_file() else None
    known = [] if earlier is None else [each for each, base in earlier.listed.bases.items() if base.family == "qwen3_5"]

    def before(claim: DoseClaim) -> Paired | None:
        return None if earlier is None else earlier.change(claim.before, claim.after, known)

    rules = (
        "The last column is the mean of the six bases of [more bases](more_bases.md), which were looked at before and "
        "of which three were made again: they give no verdict and are not in the other columns."
    )
    yield from claims_section(ON_QWEN3_5, whole, rules, ("six earlier bases", before))


def _hidden(whole: PlannedResults) -> Iterator[str]:
    """What the averages hide."""
    bases = list(whole.listed.bases)
    controls, named = trained_controls(ON_QWEN3_5), named_changes(ON_QWEN3_5, whole)
    yield from ("## What the averages hide", "")
    yield "Described, without a verdict. Bases are named by their pre-training seeds."
    yield ""
    bound = after_reading.if_unread_were_right(whole, bases)
    if bound is not None:
        yield (
            "- If every unread answer of OPSD had been right, VCSD minus OPSD would be "
            f"{after_reading.shown_bound(bound)}."
        )
    yield from _weak(whole)
    yield from after_reading.behind(whole, [OPSD.name, *controls], bases)
    yield from after_reading.harm(whole, bases)
    yield from after_reading.ceiling(whole, controls, bases)
    yield from after_reading.ratio_of_means(whole, controls, bases)
    undecided = {name: change for name, change in named.items() if ON_QWEN3_5.verdict(change) == OPEN}
    yield from after_reading.close_calls(undecided)
    yield from after_reading.power_of_first_step(named, len(ON_QWEN3_5.claims))
    yield ""


def _weak(whole: PlannedResults) -> Iterator[str]:
    """VCSD minus OPSD on bases that pre-training left weak, and on the others."""
    scores = whole.scores(BASE.name, whole.listed.bases)
    weak = [base for (base, _), acc in scores.items() if acc < WEAK]
    rest = [base for base in whole.listed.bases if base not in weak]
    on_weak, on_rest = (whole.change(OPSD.name, VCSD.name, bases) for bases in (weak, rest))
    if on_weak is not None:
        names = ", ".join(map(short, weak))
        others = "there are no others" if on_rest is None else f"{after_reading.shown_bound(on_rest)} on the others"
        yield (
            f"- **Weak bases**: before training, {names} answer less than {WEAK:g}% correctly. VCSD minus OPSD is "
            f"{after_reading.shown_bound(on_weak)} there; {others}."
        )
