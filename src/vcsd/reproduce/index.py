"""The front page of a folder of results: every experiment with its headline, and how long it all took."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vcsd.evaluation.compare import spread
from vcsd.reproduce.experiments import EXPERIMENTS
from vcsd.reproduce.journal import JOURNAL, duration, noted
from vcsd.reproduce.provenance import made_with
from vcsd.reproduce.tables import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from vcsd.reproduce.experiments import Experiment, Variant
    from vcsd.reproduce.results import Results


def index_page(results: Results, judged: Sequence[Mapping[str, str]]) -> str:
    """The page, from the experiments whose own page is there."""
    out = results.plan.out
    written = [each for each in EXPERIMENTS.values() if results.groups_of(each) and (out / f"{each.name}.md").is_file()]
    rows = [
        [f"[{each.name}]({each.name}.md)", each.title, each.shows, headline(each, results), _verdicts(each, judged)]
        for each in written
    ]
    head = ["experiment", "what it is about", "in the paper", "Acc in percent, mean over runs", "[claims](claims.md)"]
    lines = [
        "# The paper's experiments in the synthetic world",
        "",
        "Written by `vcsd reproduce`; not edited by hand. Every number is from a file in `cells/`, one for each run. "
        "[claims.md](claims.md) puts the paper's claims and these results side by side.",
        "",
        markdown(head, rows, is_text=True),
        "",
    ]
    missing = [each.name for each in EXPERIMENTS.values() if each not in written]
    if missing:
        lines += [f"Not run yet: {', '.join(missing)}.", ""]
    return "\n".join([*lines, "## How this was made", "", *made_with(written, results), "", *_commands(out)])


def headline(experiment: Experiment, results: Results) -> str:
    """The aggregate of every variant, or how near the contrast is to mutual information, group by group."""
    groups = results.groups_of(experiment)
    parts = []
    for group in groups:
        means = [
            f"{variant.name} {spread(list(acc.values())).mean:.1f}{_of_how_many(len(acc), variant, group, results)}"
            for variant in experiment.variants
            if (acc := results.acc(variant, group))
        ]
        black = [
            result["pmi"]["black"]["correlation"]
            for result in results.found(experiment.variants[0], group).values()
            if "black" in result.get("pmi", {})
        ]
        means += [f"r = {spread(black).mean:.2f} with the mutual information (no Acc)"] if black else []
        if means:
            parts.append((f"{group}: " if len(groups) > 1 else "") + ", ".join(means))
    return "; ".join(parts)


def _of_how_many(found: int, variant: Variant, group: str, results: Results) -> str:
    """A word of warning where a mean is over fewer runs than there should be."""
    wanted = len(results.cells_of(variant, group))
    return "" if found == wanted else f" ({found} of {wanted} runs)"


def _verdicts(experiment: Experiment, judged: Sequence[Mapping[str, str]]) -> str:
    counts = Counter(row["verdict"] for row in judged if row["experiment"] == experiment.name)
    return ", ".join(word if num == 1 else f"{num} {word}" for word, num in counts.items())


def _commands(out: Path) -> Iterator[str]:
    """Every command that ran something: cells, seconds, wall time."""
    commands = noted(out)
    if not commands:
        return
    rows = [
        [
            f"`{each['command']}`",
            each["hardware"],
            str(len(each["seeds"])),
            str(sum(len(bases) for bases in each["bases"].values())),
            f"{each['cells_run']} ({each['cells_known']} known before, {each['cells_failed']} failed)",
            str(each["jobs"]),
            f"{each['run_seconds']:,.0f}",
            f"{each['wall_seconds']:,.0f}" + (", interrupted" if each["ended"] == "interrupted" else ""),
        ]
        for each in commands
    ]
    head = ["command", "hardware", "seeds", "bases", "runs", "at a time", "seconds of runs", "wall seconds"]
    yield from (f"Wall time, from `{JOURNAL}`:", "", markdown(head, rows), "")
    if len(commands) > 1:
        wall = sum(each["wall_seconds"] for each in commands)
        yield from (f"In all: {sum(each['cells_run'] for each in commands)} runs, {duration(wall)} of wall time.", "")
    on_disk, told = len(list((out / "cells").glob("*.json"))), sum(each["cells_run"] for each in commands)
    if on_disk > told:  # fewer is no riddle: a cell may be run again, on another machine or after its file was removed
        yield f"`cells/` holds {on_disk} results, these commands ran {told}: the wall time of the others is not known."
        yield ""
