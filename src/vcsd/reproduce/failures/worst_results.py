"""The worst result of each page of planned runs, for the front page: what speaks against the method comes first."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from vcsd.inspect.precheck.calibration import FEWEST_BASES, PAPER_GAINS, misses, typical_miss
from vcsd.reproduce.base_folders import FAMILY_TITLES
from vcsd.reproduce.experiments import DECODING, LAG, OPSD, VCSD
from vcsd.reproduce.failures import failures_page, paper_dose_page, power_page, qwen3_5_page
from vcsd.reproduce.failures.failure_runs import FAILURE_LIST, POWER_LIST, read_once, readable
from vcsd.reproduce.failures.failure_settings import SETTINGS, verdict
from vcsd.reproduce.judged.claim_tables import verdict_counts, worst_claims
from vcsd.reproduce.judged.judged_claims import AT_PAPER_DOSE, ON_QWEN3_5, QWEN3_5_LIST, on_whole_bases
from vcsd.reproduce.pages import precheck_page
from vcsd.reproduce.pages.index import COUNTED, WorstResult
from vcsd.reproduce.paired_runs import with_interval
from vcsd.reproduce.planned import dose_page, lag_page, so_far, verdict_page
from vcsd.reproduce.planned.answers import CONTROLS, MAIN_CONTROL, judged, over
from vcsd.reproduce.planned.beyond_rules import SUPPORT
from vcsd.reproduce.planned.paper_dose import PAPER_DOSE_LIST, PAPER_DOSE_PAGE, worst_first
from vcsd.reproduce.planned.planned_results import planned_results

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from vcsd.reproduce.failures.failure_runs import ReadOnce
    from vcsd.reproduce.judged.judged_claims import JudgedClaims
    from vcsd.reproduce.pages.index import Worst
    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.planned_results import PlannedResults

LANGUAGE_PAGES = ("language.md", "language_exported.md")
FEWEST_SHOWN_UNREAD = 0.05
"""Points: a smaller change in unread answers is left out of the front page, which says so."""


def worst_results(out: Path) -> dict[str, WorstResult]:
    """The worst result of each page of planned runs, by its file name. Pages without results are left out."""
    runs = planned_results(out)
    worst = {
        verdict_page.PAGE: _adds(runs),
        dose_page.PAGE: _doses(runs),
        so_far.PAGE: _so_far(so_far.FinishedRuns(runs)),
        lag_page.PAGE: _lag(lag_page.lag_runs(out)),
        precheck_page.PAGE: _precheck(out),
        **{page: _language(out / page) for page in LANGUAGE_PAGES},
    }
    if (out / FAILURE_LIST).is_file():
        worst[failures_page.PAGE] = _failures(read_once(out, FAILURE_LIST))
    if (out / POWER_LIST).is_file():
        worst[power_page.PAGE] = _on_opsd_with_more_bases(read_once(out, POWER_LIST))
    if (out / PAPER_DOSE_LIST).is_file():
        worst[PAPER_DOSE_PAGE] = _claims(AT_PAPER_DOSE, read_once(out, PAPER_DOSE_LIST))
    if (out / QWEN3_5_LIST).is_file():
        worst[qwen3_5_page.PAGE] = _claims(ON_QWEN3_5, read_once(out, QWEN3_5_LIST), are_whole=True)
    return {page: result for page, result in worst.items() if result is not None}


def _language(path: Path) -> WorstResult | None:
    """The verdict of an emoji study by its page, which a package above this one writes; None before there is one."""
    text = " ".join(path.read_text(encoding="utf-8").split()) if path.is_file() else ""
    said = re.search(r"\*\*The study (.+?)\.\*\*", text)
    if said is None:
        return None
    parts = re.findall(r"VCSD breaks at least one gate on \d+ of \d+ bases", text)
    parts += [f"found after the look: {later}" for later in re.findall(r"\*\*Found after the look: (.+?)\.\*\*", text)]
    num = re.search(r"There are (\d+) bases", text)
    word: Worst = "fails" if said[1] == "fails" else "undecided"
    return WorstResult(word, num[1] if num else "", "; ".join(parts), f"the study {said[1]}")


def _in_brackets(change: Paired) -> str:
    """A difference with its 95% interval, and with the change in unread answers if that is not small."""
    is_small = change.unread is not None and abs(change.unread) < FEWEST_SHOWN_UNREAD
    return re.sub(r",? ?unread [-+.\d]+(?=\)$)", "", with_interval(change)) if is_small else with_interval(change)


def _counted(runs: PlannedResults, bases: Iterable[str]) -> str:
    """The number of bases of each family, such as "6 Qwen3-VL, 6 Qwen3.5"."""
    counts = Counter(FAMILY_TITLES[runs.listed.bases[base].family] for base in bases)
    return ", ".join(f"{num} {title}" for title, num in counts.items())


def _unfinished(runs: ReadOnce) -> WorstResult:
    """A list that may not be read yet: how many runs are finished, and nothing else."""
    bases = _counted(runs.runs, runs.runs.listed.bases)
    return WorstResult("no result", bases, f"planned, no result yet: {runs.status().replace('*', '')}", "none yet")


def on_opsd(runs: PlannedResults) -> str:
    """How far VCSD is above OPSD with and without the support of VCSD, on the new bases; empty without runs."""
    fair, matched = (runs.change(name, VCSD.name, runs.verdict_bases) for name in (SUPPORT, OPSD.name))
    if fair is None or matched is None:
        return ""
    word = "is much closer" if abs(fair.mean) < abs(matched.mean) / 2 else "is not much closer"
    return (
        f"With the support of VCSD, OPSD {word}: on {fair.num_bases} new bases, VCSD minus `{SUPPORT}` is "
        f"{with_interval(fair)}, and VCSD minus the matched OPSD {with_interval(matched)} "
        f"([what the contrast adds]({verdict_page.PAGE})).{_on_more_bases(runs.out)}"
    )


def _on_more_bases(out: Path) -> str:
    """How far VCSD is above matched OPSD on the bases that were made to decide it; empty until they may be read."""
    if (runs := readable(out, POWER_LIST)) is None:
        return ""
    return f" On [more bases]({power_page.PAGE}) of the smallest models: {power_page.in_words(runs)}."


def at_paper_size(out: Path) -> str:
    """What the claims come to where gains have the paper's size, as sentences; empty until the runs may be read."""
    if (runs := readable(out, PAPER_DOSE_LIST)) is None:
        return ""
    counts = verdict_counts(AT_PAPER_DOSE, runs.runs).removeprefix("Of ")
    return f"On the new bases, of {counts}: {worst_claims(AT_PAPER_DOSE, runs.runs)}."


def contrast_at_paper_size(out: Path) -> str:
    """VCSD minus decoding and sharpening on the bases that judge at gains of the paper's size, as a sentence.

    Empty until their runs may be read.
    """
    if (runs := readable(out, PAPER_DOSE_LIST)) is None:
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
    runs = readable(out, PAPER_DOSE_LIST)
    compared = "" if runs is None else paper_dose_page.precheck_compared(runs.runs, planned_results(out))
    if runs is None or not compared:
        return ""
    page = f"{PAPER_DOSE_PAGE}#the-pre-check-on-bases-that-it-has-not-seen"
    return (
        f"It was tested on [{len(runs.runs.listed.bases)} bases that it has not seen]({page}), at *dose* "
        f"{paper_dose_page.DOSE:g} (the share of captions in pre-training that ignore their picture). "
        f"{compared.replace('constant here', 'constant there')}"
    )


def _adds(runs: PlannedResults) -> WorstResult | None:
    """The smallest difference to a control, and how many controls VCSD is not clearly above."""
    changes = {name: over(runs, name) for name in CONTROLS} | judged(runs)
    known = {name: change for name, change in changes.items() if change is not None}
    if not known:
        return None
    name, least = min(known.items(), key=lambda pair: pair[1].mean)
    weak = [change for change in known.values() if change.mean < 0 or not change.is_clear]
    worst: Worst = "disagrees" if any(change.is_clear for change in weak) else "undecided" if weak else "agrees"
    verdict = f"not clearly above {len(weak)} of {len(known)} controls"
    return WorstResult(
        worst, _counted(runs, runs.verdict_bases), f"{VCSD.name} minus `{name}` {_in_brackets(least)}", verdict
    )


def _doses(runs: PlannedResults) -> WorstResult | None:
    """What training does where there is nothing to gain."""
    null = dose_page.gain(runs, VCSD.name, dose_page.NULL_WORLD) if dose_page.NULL_WORLD in runs.doses else None
    if null is None:
        return None
    bases = _counted(runs, [base for base, _ in runs.scores(VCSD.name, runs.doses[dose_page.NULL_WORLD])])
    came_out = f"with true captions, {VCSD.name} minus base {_in_brackets(null)}"
    return WorstResult("no verdict", bases, came_out, "no verdict: fewer than five bases")


def _so_far(runs: so_far.FinishedRuns) -> WorstResult | None:
    """In how many pairs of base and seed VCSD is behind the controls that came closest."""
    came_out = so_far.behind_controls(runs)
    if not came_out:
        return None
    return WorstResult("no verdict", str(len(runs.bases)), came_out, "no verdict: fewer than five bases")


def _lag(runs: lag_page.LagRuns) -> WorstResult | None:
    changes = {variant.name: change for variant in LAG.variants[1:] if (change := runs.change(variant)) is not None}
    worst = min(changes.items(), key=lambda pair: pair[1].mean, default=None)
    if worst is None:
        return None
    word = lag_page.on_this_base(worst[1])
    came_out = f"{worst[0]} changes Acc by {_in_brackets(worst[1])}, on this base {word}"
    return WorstResult("no verdict", "1", came_out, lag_page.NO_VERDICT)


def _failures(runs: ReadOnce) -> WorstResult:
    if not runs.may_be_read:
        return _unfinished(runs)
    words = Counter(
        verdict(failures_page.change_of(runs, each), needs_gain=each.needs_gain).partition(":")[0] for each in SETTINGS
    )
    lost = failures_page.lost_abilities(runs)
    worst: Worst = "fails" if words["fails"] else "lost" if lost else "undecided" if words["undecided"] else "agrees"
    counts = (
        f"of {len(SETTINGS)} settings, {words['fails']} fail, {words['undecided']} undecided, {words['works']} work"
    )
    abilities = f"{len(lost)} {'ability' if len(lost) == 1 else 'abilities'} lost"
    came_out = "; ".join(map(failures_page.after_training, lost))
    return WorstResult(
        worst, _counted(runs.runs, runs.runs.listed.bases), came_out or "no ability is lost", f"{abilities}; {counts}"
    )


def _on_opsd_with_more_bases(runs: ReadOnce) -> WorstResult | None:
    """VCSD minus OPSD on the family where it is smallest, and the verdict on each."""
    if not runs.may_be_read:
        return _unfinished(runs)
    changes = sorted(power_page.changes(runs, OPSD).items(), key=lambda pair: pair[1].mean)
    if not changes:
        return None
    words = {}
    came_out = f"on {FAMILY_TITLES[changes[0][0]]}, {VCSD.name} minus {OPSD.name} {_in_brackets(changes[0][1])}"
    for place, (family, change) in enumerate(changes):
        rest = power_page.without_lost(runs, family, OPSD)
        words[FAMILY_TITLES[family]] = power_page.says(change if rest is None else rest).replace("*", "")
        if place == 0 and rest is not None:
            came_out += f"; only {rest.num_bases} of its {change.num_bases} bases were not made again"
    worst: Worst = next(word for word in _JUDGED if word in words.values())
    verdicts = ", ".join(f"{word} on {title}" for title, word in words.items())
    return WorstResult(worst, _counted(runs.runs, runs.runs.listed.bases), came_out, verdicts)


def _claims(claims: JudgedClaims, runs: ReadOnce, *, are_whole: bool = False) -> WorstResult:
    """The smallest difference of claims that are judged together, of those that do not agree if there are any."""
    if not runs.may_be_read:
        return _unfinished(runs)
    results = on_whole_bases(runs.runs) if are_whole else runs.runs
    changes = [(claim, change) for claim, change in worst_first(claims.changes(results)) if change is not None]
    if not changes:
        return WorstResult("no verdict", "0", runs.status().replace("*", ""), "no verdict: no base has all its runs")
    words = {claim: claims.verdict(change).partition(":")[0].partition(",")[0] for claim, change in changes}
    claim, change = next((pair for pair in changes if words[pair[0]] != "agrees"), changes[0])
    worst: Worst = next(word for word in (*_JUDGED, "no verdict") if word in words.values())
    counts = Counter(words.values())
    verdicts = ", ".join(f"{counts[word]} {said}" for word, said in COUNTED.items() if counts[word])
    return WorstResult(
        worst,
        _counted(results, results.listed.bases),
        f"{claim.after} minus `{claim.before}` {_in_brackets(change)}",
        verdicts,
    )


def _precheck(out: Path) -> WorstResult | None:
    pairs = precheck_page.pairs_of(out)
    if len(pairs) < FEWEST_BASES:
        return None
    typical, worst = typical_miss(pairs), misses(pairs)[0]
    low, high = PAPER_GAINS
    word = "larger than" if typical > high else "as large as"
    hides = f", {word} the paper's gains ({low:g} to {high:g})" if typical > low else ""
    came_out = f"forecasts are off by {typical:.1f} points typically{hides}, and by {worst[3]:+.1f} at worst"
    return WorstResult("no verdict", str(len(pairs)), came_out, "no verdict: a description")


_JUDGED: tuple[Worst, ...] = ("disagrees", "undecided", "agrees")
"""What claims are called, the worst first."""
