"""The worst result of each page of planned runs, for the front page: what speaks against the method comes first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcsd.inspect.precheck.calibration import FEWEST_BASES, PAPER_GAINS, misses, typical_miss
from vcsd.reproduce.base_folders import FAMILY_TITLES
from vcsd.reproduce.experiments import DECODING, LAG, OPSD, VCSD
from vcsd.reproduce.failures import failures_page, paper_dose_page, power_page, qwen3_5_page
from vcsd.reproduce.failures.failure_runs import FAILURE_LIST, POWER_LIST, read_once
from vcsd.reproduce.failures.failure_settings import SETTINGS, verdict
from vcsd.reproduce.judged.claim_tables import verdict_counts, worst_claims
from vcsd.reproduce.judged.judged_claims import AT_PAPER_DOSE, ON_QWEN3_5, QWEN3_5_LIST, on_whole_bases
from vcsd.reproduce.pages import precheck_page
from vcsd.reproduce.paired_runs import with_interval
from vcsd.reproduce.planned import dose_page, lag_page, so_far, verdict_page
from vcsd.reproduce.planned.answers import MAIN_CONTROL, weakest_leads
from vcsd.reproduce.planned.paper_dose import PAPER_DOSE_LIST, PAPER_DOSE_PAGE, paper_dose
from vcsd.reproduce.planned.planned_results import planned_results
from vcsd.reproduce.planned.run_list import read_run_list

if TYPE_CHECKING:
    from pathlib import Path

    from vcsd.reproduce.failures.failure_runs import ReadOnce
    from vcsd.reproduce.planned.planned_results import PlannedResults

LANGUAGE_PAGES = ("language.md", "language_exported.md")
FAIR_OPSD = "OPSD beta 0.1"
"""OPSD with the support of VCSD."""


def worst_results(out: Path) -> dict[str, str]:
    """One sentence for each page of planned runs, by file name. Pages without results are left out."""
    runs = planned_results(out)
    texts = {
        verdict_page.PAGE: weakest_leads(runs),
        dose_page.PAGE: _doses(runs),
        so_far.PAGE: _so_far(so_far.FinishedRuns(runs.listed, out)),
        lag_page.PAGE: _lag(lag_page.LagRuns(read_run_list(out / lag_page.LIST), out)),
        precheck_page.PAGE: _precheck(out),
        **{page: _language(out / page) for page in LANGUAGE_PAGES},
    }
    if (out / FAILURE_LIST).is_file():
        texts[failures_page.PAGE] = _failures(read_once(out, FAILURE_LIST))
    if (out / POWER_LIST).is_file():
        texts[power_page.PAGE] = _power(read_once(out, POWER_LIST))
    if (out / PAPER_DOSE_LIST).is_file():
        texts[PAPER_DOSE_PAGE] = _paper_dose(read_once(out, PAPER_DOSE_LIST))
    if (out / QWEN3_5_LIST).is_file():
        texts[qwen3_5_page.PAGE] = _qwen3_5(read_once(out, QWEN3_5_LIST))
    return {page: text for page, text in texts.items() if text}


def _language(path: Path) -> str:
    """The verdict of an emoji study by its page, which a package above this one writes; empty before there is one."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    parts = [f"the study {said}" for said in re.findall(r"\*\*The study (.+?)\.\*\*", text)]
    parts += re.findall(r"VCSD breaks at least one gate on \d+ of \d+ bases", text)
    parts += [f"found after the look: {said}" for said in re.findall(r"\*\*Found after the look: (.+?)\.\*\*", text)]
    return "; ".join(parts)


def on_opsd(runs: PlannedResults) -> str:
    """How far VCSD is above OPSD with and without the support of VCSD, on the new bases; empty without runs."""
    fair, matched = (runs.change(name, VCSD.name, runs.verdict_bases) for name in (FAIR_OPSD, OPSD.name))
    if fair is None or matched is None:
        return ""
    word = "is much closer" if abs(fair.mean) < abs(matched.mean) / 2 else "is not much closer"
    return (
        f"With the support of VCSD, OPSD {word}: on {fair.num_bases} new bases, VCSD minus `{FAIR_OPSD}` is "
        f"{with_interval(fair)}, and VCSD minus the matched OPSD {with_interval(matched)} "
        f"([what the contrast adds]({verdict_page.PAGE})).{_on_more_bases(runs.out)}"
    )


def _on_more_bases(out: Path) -> str:
    """How far VCSD is above matched OPSD on the bases that were made to decide it; empty until they may be read."""
    if not (out / POWER_LIST).is_file() or not (runs := read_once(out, POWER_LIST)).may_be_read:
        return ""
    return f" On [more bases]({power_page.PAGE}) of the smallest models: {_power(runs)}."


def at_paper_size(out: Path) -> str:
    """What the claims come to where gains have the paper's size, as sentences; empty until the runs may be read."""
    if not (out / PAPER_DOSE_LIST).is_file():
        return ""
    runs = read_once(out, PAPER_DOSE_LIST)
    if not runs.may_be_read:
        return ""
    counts = verdict_counts(AT_PAPER_DOSE, runs.runs).removeprefix("Of ")
    return f"On the new bases, of {counts}: {worst_claims(AT_PAPER_DOSE, runs.runs)}."


def contrast_at_paper_size(out: Path) -> str:
    """VCSD minus decoding and sharpening on the bases that judge at gains of the paper's size, as a sentence.

    Empty until their runs may be read.
    """
    if not (out / PAPER_DOSE_LIST).is_file() or not (runs := read_once(out, PAPER_DOSE_LIST)).may_be_read:
        return ""
    changes = {claim.before: change for claim, change in AT_PAPER_DOSE.changes(runs.runs).items()}
    known = {name: change for name in (DECODING.name, MAIN_CONTROL) if (change := changes[name]) is not None}
    if not known:
        return ""
    parts = [
        f"minus `{name}` is {with_interval(change)}: {AT_PAPER_DOSE.verdict(change)}" for name, change in known.items()
    ]
    num = min(change.num_bases for change in known.values())
    return f"VCSD {'; '.join(parts)} ([dose {paper_dose_page.DOSE:g}]({PAPER_DOSE_PAGE}), {num} bases)."


def precheck_on_new_bases(out: Path) -> str:
    """How the pre-check does on the bases that were kept apart to test it; empty until their runs may be read."""
    if not (out / PAPER_DOSE_LIST).is_file():
        return ""
    runs = read_once(out, PAPER_DOSE_LIST)
    compared = paper_dose_page.precheck_compared(runs.runs, planned_results(out)) if runs.may_be_read else ""
    page = f"{PAPER_DOSE_PAGE}#the-pre-check-on-bases-that-it-has-not-seen"
    return (
        f"**Tested on [{len(runs.runs.listed.bases)} bases that it has not seen]({page})**, at dose "
        f"{paper_dose_page.DOSE:g}. {compared.replace('constant here', 'constant there')}"
        if compared
        else ""
    )


def _doses(runs: PlannedResults) -> str:
    """What is left at gains of the paper's size, and what training does where there is nothing to gain."""
    closest, parts = paper_dose(runs), []
    if closest is not None:
        changes = {
            name: runs.change(name, VCSD.name, runs.doses[closest.dose]) for name in (DECODING.name, MAIN_CONTROL)
        }
        known = {name: change for name, change in changes.items() if change is not None}
        differences = " and minus ".join(f"`{name}` {with_interval(change)}" for name, change in known.items())
        if known:
            num = min(change.num_bases for change in known.values())
            parts.append(f"at gains of the paper's size, VCSD minus {differences} ({num} bases, no verdict)")
    null = dose_page.gain(runs, VCSD.name, dose_page.NULL_WORLD) if dose_page.NULL_WORLD in runs.doses else None
    if null is not None:
        parts.append(f"with true captions, VCSD minus base {with_interval(null)}")
    return "; ".join(parts)


def _so_far(runs: so_far.FinishedRuns) -> str:
    """In how many pairs of base and seed VCSD is behind the controls that came closest."""
    parts = []
    for name in ("another picture", DECODING.name):
        gaps = []
        for base in runs.bases:
            if name not in {variant.name for variant in runs.variants(base)}:
                continue
            for seed in runs.seeds(base):
                ours, theirs = (runs.score(variant_name, base, seed) for variant_name in (VCSD.name, name))
                if ours is not None and theirs is not None:
                    gaps.append(ours - theirs)
        if gaps:
            parts.append(f"behind `{name}` in {sum(gap < 0 for gap in gaps)} of {len(gaps)} runs")
    return f"VCSD is {' and '.join(parts)} ({len(runs.bases)} bases)" if parts else ""


def _lag(runs: lag_page.LagRuns) -> str:
    changes = {variant.name: change for variant in LAG.variants[1:] if (change := runs.change(variant)) is not None}
    worst = min(changes.items(), key=lambda pair: pair[1].mean, default=None)
    if worst is None:
        return ""
    word = lag_page.on_this_base(worst[1])
    return f"{worst[0]} changes Acc by {with_interval(worst[1])}, on this base {word}; {lag_page.NO_VERDICT}"


def _failures(runs: ReadOnce) -> str:
    if not runs.may_be_read:
        return runs.status().replace("*", "")
    judged = [(each.name, failures_page.change_of(runs, each), each.needs_gain) for each in SETTINGS]
    words = {name: verdict(change, needs_gain=needs_gain) for name, change, needs_gain in judged}
    ordered = sorted(words.items(), key=lambda pair: failures_page.ORDER.index(pair[1]))
    lost = [f"lost: {each}" for each in failures_page.lost_abilities(runs)]
    return "; ".join([*lost, *(f"{name}: {word}" for name, word in ordered)])


def _power(runs: ReadOnce) -> str:
    if not runs.may_be_read:
        return runs.status().replace("*", "")
    changes = sorted(power_page.changes(runs, OPSD).items(), key=lambda pair: pair[1].mean)
    families = {title: family for family, title in FAMILY_TITLES.items()}
    parts = []
    for title, change in changes:
        rest = power_page.without_lost(runs, families[title], OPSD)
        text = f"VCSD minus OPSD on {title} {with_interval(change)}"
        if rest is not None:
            text += f", {power_page.says(rest)}: only {rest.num_bases} of these bases were not made again"
        parts.append(text)
    return "; ".join(parts)


def _paper_dose(runs: ReadOnce) -> str:
    return worst_claims(AT_PAPER_DOSE, runs.runs) if runs.may_be_read else runs.status().replace("*", "")


def _qwen3_5(runs: ReadOnce) -> str:
    if not runs.may_be_read:
        return f"planned, no result yet: {runs.status().replace('*', '')}"
    return worst_claims(ON_QWEN3_5, on_whole_bases(runs.runs))


def _precheck(out: Path) -> str:
    pairs = precheck_page.pairs_of(out)
    if len(pairs) < FEWEST_BASES:
        return ""
    typical, worst = typical_miss(pairs), misses(pairs)[0]
    low, high = PAPER_GAINS
    word = "larger than" if typical > high else "as large as"
    hides = f", {word} the paper's gains ({low:g} to {high:g})" if typical > low else ""
    return f"predictions are off by {typical:.1f} points typically{hides}, and by {worst[3]:+.1f} at worst"
