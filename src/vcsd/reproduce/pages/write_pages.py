"""Write the results down: one page and one plot per experiment, the claims, how all was made, and the front page."""

from __future__ import annotations

import json
from math import isnan
from typing import TYPE_CHECKING

from vcsd.inspect.precheck.calibration import PAPER_GAINS
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, VCSD, references_of
from vcsd.reproduce.pages.claims import CLAIMS
from vcsd.reproduce.pages.details import detail_tables, guard_lines
from vcsd.reproduce.pages.first_screen import COMMAND, first_screen, question_first
from vcsd.reproduce.pages.index import index_page, is_page, with_page
from vcsd.reproduce.pages.judges import FEWEST_BASES
from vcsd.reproduce.pages.plots import plot
from vcsd.reproduce.pages.provenance import MADE_PAGE, made_page, made_with, summary, wall_times
from vcsd.reproduce.pages.stricter import stricter_lines
from vcsd.reproduce.pages.tables import LEGEND, markdown, score_tables
from vcsd.reproduce.paired_runs import NEAR
from vcsd.reproduce.results import acc_change
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.pages.claims import Claim
    from vcsd.reproduce.pages.judges import JudgedClaim
    from vcsd.reproduce.results import Results

BETA_0 = next(variant for variant in EXPERIMENTS["support"].variants if variant.name == "beta 0")

FIRST_RULES = "claims_first_rules.json"
"""In a results folder, the verdicts that were published before the rules were made stricter, if there are any."""

GUARD_NOTE = (
    "The guard stops a run when the pull of its target, KL(target || original), has grown too far. This threshold was "
    "lowered from four times to three after the runs without support up to seed 105 were known, so these lines "
    "describe the guard and do not test it. "
)
GUARD_TESTS = {
    "what_the_contrast_adds.md": "[the guard on new runs](what_the_contrast_adds.md#the-guard-on-new-runs)",
    "paper_dose.md": "[at the paper's dose](paper_dose.md#the-guard-on-these-runs)",
    "more_bases.md": "[on more bases](more_bases.md#the-guard-on-these-runs)",
}
"""The pages that test the guard on runs that were made after its threshold was lowered."""
GUARD_UNTESTED = "New runs have to test it."

VERDICTS = ("disagrees", "undecided", "agrees", "no claim")
"""In the order of the page: what speaks against the paper first."""


def write_pages(experiments: Sequence[Experiment], results: Results) -> list[Path]:
    """Write the pages of some experiments, of claims, of how all was made, and the front page; return their paths."""
    out, written = results.sweep.out, []
    for experiment in experiments:
        drawn = plot(experiment, results, out / f"{experiment.name}.png")
        path = out / f"{experiment.name}.md"
        path.write_text(experiment_page(experiment, results, drawn), encoding="utf-8")
        written.append(path)
    claims, index, made = write_claims(results), out / "README.md", out / MADE_PAGE
    index.write_text(index_page(results, judged(results)), encoding="utf-8")
    made.write_text(made_page(with_page(results), results), encoding="utf-8")
    return [*written, claims, index, made]


def write_claims(results: Results) -> Path:
    """Write the page of claims, and the same as JSON; return the path of the page."""
    path = results.sweep.out / "claims.md"
    path.write_text(claims_page(results), encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(judged(results), indent=1) + "\n", encoding="utf-8")
    return path


def experiment_page(
    experiment: Experiment, results: Results, drawn: Path | None = None, *, coming: Collection[str] = ()
) -> str:
    """The page of one experiment. `coming` names the pages that are written at the same time."""
    lines = [
        *question_first(experiment.title, experiment.question),
        *_verdicts_first(experiment, results),
        f"In the paper: {experiment.shows}. Here: models of a few million parameters on drawn pictures "
        "(`docs/world.md`).",
        "",
        summary(experiment, results),
        "",
        *_missing(experiment, results),
        *((LEGEND, "") if references_of(experiment) else ()),
        *((f"![{experiment.title}]({drawn.name})", "") if drawn else ()),
    ]
    for group in results.groups_of(experiment):
        lines += [f"## {group}", "", *score_tables(experiment, results, group)]
        lines += [*detail_tables(experiment, results, group)]
    if experiment.name == "support":
        lines += _guard(results, coming)
    made = [*made_with([experiment], results), *wall_times(experiment, results)]
    return "\n".join([*lines, "## How this was made", "", *made, "", "[All experiments](README.md)", ""])


def _missing(experiment: Experiment, results: Results) -> list[str]:
    if num := results.num_missing(experiment):
        runs = "1 run is" if num == 1 else f"{num} runs are"
        return [f"**{runs} missing**: means are over the runs counted in the last column.", ""]
    return []


def _verdicts_first(experiment: Experiment, results: Results) -> list[str]:
    """The verdicts on the experiment's claims, those against the paper first."""
    rows = judged(results, experiment)
    order = {"disagrees": "**Disagrees**", "undecided": "Undecided", "agrees": "Agrees"}
    parts = []
    for verdict, words in order.items():
        claims = [f'"{row["claim"].rstrip(".")}"' for row in rows if row["verdict"] == verdict]
        if claims:
            parts.append(f"{words}: {'; '.join(claims)}")
    lines = [f"**Result** for [the paper's claims](claims.md). {'. '.join(parts)}.", ""] if parts else []
    for row in (row for row in rows if row["verdict"] == "no claim"):
        lines += [f"**Result**, without a verdict. {row['claim']} Here: {row['ours']}.", ""]
    return lines


def judged(results: Results, experiment: Experiment | None = None) -> list[dict[str, str]]:
    """Every claim, or those of one experiment, with the paper's number, our result and the verdict."""
    rows = []
    for claim in CLAIMS:
        if experiment is not None and claim.experiment != experiment.name:
            continue
        judgement = claim.judge(results)
        ours, verdict = judgement.text, judgement.verdict
        if verdict != "not run" and results.num_missing(EXPERIMENTS[claim.experiment]):
            ours, verdict = f"{ours} (so far: some runs are missing)", "undecided"
        row = {"experiment": claim.experiment, "claim": claim.says, "paper": claim.number}
        rows.append({**row, "ours": ours, "could_decide": power(claim, judgement), "verdict": verdict})
    return rows


def power(claim: Claim, judgement: JudgedClaim) -> str:
    """Whether the runs behind a claim could have decided it: what they would show in 80% of cases."""
    if not judgement.changes:
        return ""
    fewest = min(change.num_bases for change in judgement.changes)
    if fewest < FEWEST_BASES:
        return f"no: {fewest} base{'' if fewest == 1 else 's'} of {FEWEST_BASES}"
    is_decided = judgement.verdict in ("agrees", "disagrees")
    if judgement.is_alike:
        margin = max(change.alike_within or 0.0 for change in judgement.changes)
        if judgement.verdict == "disagrees":
            return f"decided: different; alike could have been shown within {margin:.2f} {claim.unit}"
        word = "decided" if is_decided else "yes" if margin <= NEAR else "no"
        return f"{word}: alike within {margin:.2f} {claim.unit}"
    least = max(change.detectable or 0.0 for change in judgement.changes)
    word = "decided" if is_decided else "no"
    if not is_decided and claim.smallest is not None:
        word = "yes" if least <= claim.smallest else f"not of the paper's size ({claim.smallest:g})"
    if claim.threshold is not None:
        return f"{word}: {claim.unit} from {claim.threshold + least:.2f} would be clearly above {claim.threshold:g}"
    return f"{word}: differences from {least:.2f} {claim.unit}"


def claims_page(results: Results, on_opsd: str = "", at_paper_size: str = "", *, coming: Collection[str] = ()) -> str:
    """The page that compares the paper's claims with the results. `on_opsd` says more about OPSD below the table.

    `at_paper_size` says what runs with gains of the paper's size show.
    `coming` names the pages that are written at the same time.
    """
    sweep, claims = results.sweep, judged(results)
    note = _opsd_note(results, on_opsd)
    rows = [row for row in claims if row["verdict"] != "not run"]
    not_run = [row for row in claims if row["verdict"] == "not run"]
    counts = {word: sum(row["verdict"] == word for row in rows) for word in VERDICTS}
    names = dict.fromkeys(row["experiment"] for row in not_run)
    bases = "; ".join(
        f"{group}: {', '.join(base.folder.name for base in bases)}" for group, bases in results.groups.items()
    )
    lines = [
        *first_screen(
            "The paper's claims, tested in the synthetic world",
            question="Does each claim of the paper hold for models with a few million parameters on synthetic "
            "pictures? Directions are compared, not sizes.",
            result=[
                f"Of {len(claims)} comparisons, {counts['disagrees']} disagree with the paper, {counts['undecided']} "
                f"are undecided, {counts['agrees']} agree, {counts['no claim']} are not made in the paper"
                + (f", {len(not_run)} have not been run ({', '.join(names)})." if not_run else "."),
                *_disagreements(rows),
                *_sizes(results, at_paper_size, coming),
            ],
            sure=f"A verdict needs at least {FEWEST_BASES} bases and a two-sided p below 0.05 "
            "([rules](#how-the-verdicts-are-given)). The column *could decide* says what the runs could have shown. "
            "The p-values are not corrected for the number of rows: of 20 claims without any effect, one would be "
            f"decided by chance.{_made_stricter(results)}",
            repeat="`vcsd reproduce` makes the runs and writes this page from the files in `cells/`; do not edit it. "
            f"From the result files of this repository alone: `{COMMAND}`.",
        ),
        _claims_table(results, rows, has_note=bool(note)),
        "",
        *note,
        *(["## At gains of the paper's size", "", at_paper_size, ""] if at_paper_size else []),
        *_rules(results),
        *_changed(results, claims),
        *stricter_lines(results),
        *_guard(results, coming),
        "## The world",
        "",
        f"Every result records the hash of the world's parameters, here {PARAMETERS.digest()}; `docs/world.md` "
        f"explains how they were chosen. Results are on the split `{sweep.split}`, at least {sweep.num_questions} "
        f"questions in each of {len(SEVEN)} suites. Seeds: {', '.join(map(str, results.seeds))}; bases: {bases}.",
        "",
    ]
    return "\n".join(lines)


def _rules(results: Results) -> list[str]:
    return [
        "## How the verdicts are given",
        "",
        "Rules in `src/vcsd/reproduce/pages/judges.py` give the verdicts:",
        "",
        "- **Directions are compared, not sizes**, because the models are small and the pictures are synthetic. There "
        "is one exception: a difference that is not clear disagrees if its interval lies below the paper's number.",
        "- **Bases count equally**: the runs of a base are averaged first. After a difference, ± is the standard error "
        "over bases; after a single value, it is their standard deviation.",
        f"- **Fewer than {FEWEST_BASES} bases decide nothing.** A difference counts if its two-sided p is below 0.05. "
        "The largest of several differences must be significant after a correction for all of them.",
        "- **Alike** means that the whole interval lies within one point of zero (two one-sided tests at 5%).",
        "- Everything else is undecided.",
        "",
        *_looks(results),
        "The column *could decide* says which true difference the runs would show in 80% of cases, given their spread "
        "and number of bases, and whether that is enough for the paper's smallest number. For a claim that things are "
        "alike, it gives the margin within which the runs would show this if it is true; for a correlation, the value "
        "from which it would be clearly above the rule's threshold. Effects here are larger than the paper's, so "
        "claims can be decided by runs that could not have shown an effect of the paper's size.",
        "",
    ]


def _claims_table(results: Results, rows: Sequence[Mapping[str, str]], *, has_note: bool) -> str:
    """All claims with their verdicts, disagreements first; rows about OPSD point to the note below."""
    links = {
        name: f"[{name}]({name}.md)" if (results.sweep.out / f"{name}.md").is_file() else name for name in EXPERIMENTS
    }
    strong = {"disagrees": "**disagrees**"}
    table = [
        [
            row["claim"],
            links[row["experiment"]],
            row["paper"],
            row["ours"] + (" \\*" if has_note and OPSD.name in row["claim"] else ""),
            row["could_decide"],
            strong.get(row["verdict"], row["verdict"]),
        ]
        for row in sorted(rows, key=lambda row: VERDICTS.index(row["verdict"]))
    ]
    return markdown(["claim", "experiment", "the paper", "here", "could decide", "verdict"], table, is_text=True)


def _disagreements(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """One sentence that lists the claims with which the results disagree."""
    claims = [f'"{row["claim"].rstrip(".")}"' for row in rows if row["verdict"] == "disagrees"]
    if not claims:
        return ["The results disagree with no claim of the paper."] if rows else []
    return [f"**The results disagree with {len(claims)} of the paper's claims:** {'; '.join(claims)}."]


def _opsd_note(results: Results, more: str) -> list[str]:
    """What to know about OPSD: how many answers it leaves unread, and what other runs say."""
    change = acc_change(results, VCSD, OPSD, *results.ordinary) if results.ordinary else None
    if change is None or change.unread is None or isnan(change.unread):
        return []
    text = (
        "\\* Unread answers, from which nothing could be extracted, count as wrong. Those of the matched OPSD minus "
        f"those of VCSD: {change.unread:+.2f} points."
    )
    return [f"{text} {more}".rstrip(), ""]


def _sizes(results: Results, at_paper_size: str, coming: Collection[str]) -> list[str]:
    """Where the gain is far above the paper's, and which pages look at gains of its size."""
    change = acc_change(results, BASE, VCSD, results.smallest) if results.ordinary else None
    pages = {"doses.md": "three bases, no verdict", "paper_dose.md": "eight new bases"}
    named = [f"[{page}]({page}) ({bases})" for page, bases in pages.items() if is_page(results.sweep.out, page, coming)]
    if change is None or not named or change.mean <= PAPER_GAINS[1]:
        return []
    counts, colon, _ = at_paper_size.partition(": ")
    summed = f" {counts} ([which](#at-gains-of-the-papers-size))." if colon else ""
    return [
        f"**Gains here are larger than the paper's**: on the smallest Qwen3-VL, VCSD gains {change.mean:+.1f} points, "
        f"in the paper {PAPER_GAINS[0]:+.2f} to {PAPER_GAINS[1]:+.2f}. What holds here need not hold where gains have "
        f"that size; see {' and '.join(named)}.{summed}",
    ]


def _looks(results: Results) -> list[str]:
    """Which groups were looked at twice, and what that costs."""
    groups = [group for group in results.ordinary if results.looks(group) > 1]
    if not groups:
        return []
    return [
        f"Bases were added to {' and '.join(groups)} after a first look at three. Their p-values are doubled, and "
        "intervals that test for equality are 95% instead of 90% intervals (Bonferroni for two looks). As a result, "
        "differences with a p between 0.025 and 0.05 before the correction no longer count.",
        "",
    ]


def _made_stricter(results: Results) -> str:
    if not (results.sweep.out / FIRST_RULES).is_file():
        return ""
    return " The rules were made stricter after the results were known ([what changed](#what-stricter-rules-changed))."


def _changed(results: Results, claims: Sequence[Mapping[str, str]]) -> list[str]:
    """The verdicts that differ from those published under the first rules."""
    path = results.sweep.out / FIRST_RULES
    if not path.is_file():
        return []
    before = {row["claim"]: row["verdict"] for row in json.loads(path.read_bytes())}
    lines = [
        f"- {row['claim']} Before: {before[row['claim']]}; now: {row['verdict']}."
        for row in claims
        if row["claim"] in before and before[row["claim"]] != row["verdict"]
    ]
    new = [f"- {row['claim']} Now: {row['verdict']}." for row in claims if row["claim"] not in before]
    head = (
        "The rules were made stricter after the results were known. They now give bases equal weights, ask for at "
        "least five bases, correct for two looks, test for equivalence, measure stability as step 300 minus step 90, "
        "judge Figure 6 by both rules, and look at all bases together. Verdicts by the first rules are in "
        f"`{FIRST_RULES}`. These verdicts changed:"
    )
    return ["## What stricter rules changed", "", head, "", *lines, "", "These rows are new or reworded:", "", *new, ""]


def _guard(results: Results, coming: Collection[str]) -> list[str]:
    lines = list(guard_lines(VCSD, BETA_0, results))
    tests = [link for page, link in GUARD_TESTS.items() if is_page(results.sweep.out, page, coming)]
    note = GUARD_NOTE + (f"Runs that were made later test it: {', '.join(tests)}." if tests else GUARD_UNTESTED)
    return ["## The guard", "", note, "", *lines, ""] if lines else []
