"""Write the results down: one page and one plot per experiment, the page of claims, and the front page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import EXPERIMENTS, VCSD, references_of
from vcsd.reproduce.pages.claims import CLAIMS
from vcsd.reproduce.pages.details import detail_tables, guard_lines
from vcsd.reproduce.pages.index import index_page
from vcsd.reproduce.pages.plots import plot
from vcsd.reproduce.pages.provenance import made_with, summary, wall_times
from vcsd.reproduce.pages.stricter import stricter_lines
from vcsd.reproduce.pages.tables import LEGEND, markdown, score_tables
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.results import Results

BETA_0 = next(variant for variant in EXPERIMENTS["support"].variants if variant.name == "beta 0")

GUARD_NOTE = (
    "The threshold that stops a run was lowered from four times the pull to three after the runs without support up to "
    "seed 105 were known, so these lines describe the guard and do not test it. New runs have to."
)

VERDICTS = ("agrees", "disagrees", "undecided", "no claim")


def write_pages(experiments: Sequence[Experiment], results: Results) -> list[Path]:
    """Write the pages of some experiments, the page of claims and the front page; return their paths."""
    out, written = results.sweep.out, []
    for experiment in experiments:
        drawn = plot(experiment, results, out / f"{experiment.name}.png")
        path = out / f"{experiment.name}.md"
        path.write_text(experiment_page(experiment, results, drawn), encoding="utf-8")
        written.append(path)
    claims, index = write_claims(results), out / "README.md"
    index.write_text(index_page(results, judged(results)), encoding="utf-8")
    return [*written, claims, index]


def write_claims(results: Results) -> Path:
    """Write the page of claims, and the same as JSON; return the path of the page."""
    path = results.sweep.out / "claims.md"
    path.write_text(claims_page(results), encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(judged(results), indent=1) + "\n", encoding="utf-8")
    return path


def experiment_page(experiment: Experiment, results: Results, drawn: Path | None = None) -> str:
    """The page of one experiment."""
    lines = [
        f"# {experiment.title}",
        "",
        f"In the paper: {experiment.shows}. Here: tiny models in the synthetic world of `docs/world.md`.",
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
        lines += _guard(results)
    made = [*made_with([experiment], results), *wall_times(experiment, results)]
    return "\n".join([*lines, "## How this was made", "", *made, "", "[All experiments](README.md)", ""])


def _missing(experiment: Experiment, results: Results) -> list[str]:
    if num := results.num_missing(experiment):
        runs = "1 run is" if num == 1 else f"{num} runs are"
        return [f"**{runs} missing**: means are over the runs counted in the last column.", ""]
    return []


def judged(results: Results) -> list[dict[str, str]]:
    """Every claim with the paper's number, our result and the verdict."""
    rows = []
    for claim in CLAIMS:
        ours, verdict = claim.judge(results)
        if verdict != "not run" and results.num_missing(EXPERIMENTS[claim.experiment]):
            ours, verdict = f"{ours} (so far: some runs are missing)", "undecided"
        row = {"experiment": claim.experiment, "claim": claim.says, "paper": claim.number}
        rows.append({**row, "ours": ours, "verdict": verdict})
    return rows


def claims_page(results: Results) -> str:
    """The page that compares the paper's claims with the results."""
    sweep, claims = results.sweep, judged(results)
    rows = [row for row in claims if row["verdict"] != "not run"]
    not_run = [row for row in claims if row["verdict"] == "not run"]
    counts = {word: sum(row["verdict"] == word for row in rows) for word in VERDICTS}
    names = dict.fromkeys(row["experiment"] for row in not_run)
    links = {name: f"[{name}]({name}.md)" if (sweep.out / f"{name}.md").is_file() else name for name in EXPERIMENTS}
    strong = {"disagrees": "**disagrees**"}
    table = [
        [row["claim"], links[row["experiment"]], row["paper"], row["ours"], strong.get(row["verdict"], row["verdict"])]
        for row in rows
    ]
    bases = "; ".join(
        f"{group}: {', '.join(base.folder.name for base in bases)}" for group, bases in results.groups.items()
    )
    lines = [
        "# The paper's claims, tested in the synthetic world",
        "",
        "Generated by `vcsd reproduce` from the files in `cells/`; do not edit. The models have a few million "
        "parameters and the pictures are synthetic, so directions are compared, not sizes. Rules in "
        "`src/vcsd/reproduce/pages/judges.py` give the verdicts. A difference counts if its two-sided p is below 0.05, "
        "with runs that share a base counted together. Means within one point count as alike. The largest of several "
        "differences must be significant after a correction for all of them. Everything else is undecided.",
        "",
        f"Of {len(claims)} rows, {counts['agrees']} agree, {counts['disagrees']} disagree, {counts['undecided']} are "
        f"undecided, {counts['no claim']} make a comparison that the paper does not make"
        + (f", {len(not_run)} have not been run ({', '.join(names)})." if not_run else "."),
        "",
        markdown(["claim", "experiment", "the paper", "here", "verdict"], table, is_text=True),
        "",
        *stricter_lines(results),
        *_guard(results),
        "## The world",
        "",
        f"Every result records the hash of the world's parameters, here {PARAMETERS.digest()}; `docs/world.md` "
        f"explains how they were chosen. Results are on the split `{sweep.split}`, at least {sweep.num_questions} "
        f"questions in each of {len(SEVEN)} suites. Seeds: {', '.join(map(str, results.seeds))}; bases: {bases}.",
        "",
    ]
    return "\n".join(lines)


def _guard(results: Results) -> list[str]:
    lines = list(guard_lines(VCSD, BETA_0, results))
    return ["## The guard", "", GUARD_NOTE, "", *lines, ""] if lines else []
