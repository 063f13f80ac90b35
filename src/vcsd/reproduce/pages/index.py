"""The front page of a results folder: one line for each study, and every experiment with its headline."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from vcsd.evaluation.scoring.compare import spread
from vcsd.inspect.precheck.calibration import PAPER_GAINS
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, VCSD
from vcsd.reproduce.pages.first_screen import WORDS
from vcsd.reproduce.pages.provenance import MADE_PAGE
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import interval, over_bases, shown_ends
from vcsd.reproduce.results import acc_change

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.results import Results

Worst = Literal["fails", "lost", "disagrees", "undecided", "agrees", "no verdict", "no result"]
"""The worst verdict on a page, in the order of the front page: what speaks against the method comes first."""


@dataclass(frozen=True)
class WorstResult:
    """What the front page says about a page: its worst result in one short sentence."""

    worst: Worst
    bases: str
    came_out: str
    verdict: str


PLANNED = {
    "language.md": "Does VCSD help a real language model (135M) taught by true but skewed captions?",
    "where_it_fails.md": "In which settings does VCSD fail, and which abilities does training cost?",
    "language_exported.md": "Does VCSD help the same language model, measured as it is exported?",
    "paper_dose.md": "Do the claims hold where gains have the paper's size?",
    "what_the_contrast_adds.md": "What does the contrast add to sharpening and other controls, in the default world?",
    "more_bases.md": "Is VCSD above matched OPSD?",
    "precheck.md": "How well does the pre-check forecast the gain of training?",
    "doses.md": "Does VCSD do harm where all captions are true?",
    "sharpening_so_far.md": "How do the same controls do on the shipped bases?",
    "lag.md": "What does it cost to draw rollouts some steps ahead?",
    "qwen3_5.md": "Is VCSD above its controls on Qwen3.5?",
}
"""The question of each page of runs by rules written before them, and of pages over several lists."""
CLAIMS_QUESTION = "Do the paper's claims hold in the default world?"

RULES = (
    "[sharpening and doses](../preregistration.md), [failures and more bases](../preregistration_failures.md), "
    "[the paper's dose](../preregistration_paper_dose.md), [Qwen3.5](../preregistration_qwen3_5.md), "
    "[a real language model](../preregistration_language.md) and [as exported](../preregistration_language_exported.md)"
)
ADVICE = "when to expect a gain, when a loss, and what to measure"
LEGEND = (
    "A number with brackets is a difference in points of Acc, with its 95% interval over bases; these intervals are "
    "not corrected. **`unread`** is the change in the share of responses from which no answer could be extracted, in "
    "points; it is left out where it is less than 0.05. A **gate** is a suite that must not get worse; each study "
    "names its own. A **dose** is the share of captions in pre-training that ignore their picture, and the default "
    "world has 0.6. Only a **verdict** says that something was shown. Verdicts need five bases, and their pages say "
    "for how many tests they are corrected."
)
MAIN_PICTURE = "main_differences.png"
OWN_PAGE = ("sharpening", "dose")
"""Experiments that are planned runs and have a page there."""


def is_page(out: Path, name: str, coming: Collection[str]) -> bool:
    """Whether a folder has a page, or will have it: `coming` names the pages that are written at the same time."""
    return name in coming or (out / name).is_file()


def index_page(
    results: Results,
    judged: Sequence[Mapping[str, str]],
    worst: Mapping[str, WorstResult] = MappingProxyType({}),
    *,
    coming: Collection[str] = (),
) -> str:
    """Build the front page from the pages that are there.

    `worst` has the worst result of each page of planned runs, by its file name. `coming` is as in `is_page`.
    """
    out = results.sweep.out
    planned = [page for page in PLANNED if is_page(out, page, coming)]
    lines = [
        "# Results",
        "",
        WORDS,
        "",
    ]
    if planned:
        lines += [f"[What the evidence says](../evidence.md): {ADVICE}.", "", *_picture(out, coming)]
        lines += ["## Questions and results", "", *_worst_first(planned, results, judged, worst), ""]
        lines += ["## The paper's experiments, in the default world", ""]
    written = with_page(results, coming)
    head = ["experiment", "topic", "in the paper", "Acc in percent, mean over bases", "[claims](claims.md)"]
    rows = [
        [
            f"[{experiment.name}]({experiment.name}.md)",
            experiment.title,
            experiment.shows,
            headline(experiment, results),
            _verdicts(experiment, judged),
        ]
        for experiment in written
    ]
    lines += [f"The [claims](claims.md) of the paper{_counts(judged)}.", ""]
    lines += [markdown(head, rows, is_text=True), ""]
    own = OWN_PAGE if planned else ()
    missing = [each.name for each in EXPERIMENTS.values() if each not in written and each.name not in own]
    lines += [f"Not finished: {', '.join(missing)}.", ""] if missing else []
    lines += [
        "Generated by `vcsd reproduce`; do not edit. Every number comes from a file in `cells/`, which has one file "
        f"for each run. [How this was made]({MADE_PAGE}) lists commands, bases, versions and times.",
        "",
    ]
    return "\n".join(lines)


def with_page(results: Results, coming: Collection[str] = ()) -> list[Experiment]:
    """The experiments that have bases and a page of their own."""
    out = results.sweep.out
    return [
        experiment
        for experiment in EXPERIMENTS.values()
        if is_page(out, f"{experiment.name}.md", coming) and results.groups_of(experiment)
    ]


def _picture(out: Path, coming: Collection[str]) -> list[str]:
    """The picture of the main differences, and what it leaves out."""
    if not is_page(out, MAIN_PICTURE, coming):
        return []
    return [
        f"![VCSD minus six others, with 95% intervals, in the default world and at gains of the paper's size]"
        f"({MAIN_PICTURE})",
        "",
        "Each interval is over bases and is not corrected for the number of comparisons; the table below has the "
        "verdicts. The studies of a [language model](language_exported.md) measure something else and are not drawn.",
        "",
    ]


def _worst_first(
    planned: Sequence[str],
    results: Results,
    judged: Sequence[Mapping[str, str]],
    worst: Mapping[str, WorstResult],
) -> Iterator[str]:
    """One line for each page, the worst first."""
    shown = {page: worst.get(page, WorstResult("no result", "", "", "none yet")) for page in planned}
    questions = {**PLANNED, "claims.md": CLAIMS_QUESTION}
    if (claims := _claims_result(results, judged)) is not None:
        shown["claims.md"] = claims
    order = sorted(shown, key=lambda page: (get_args(Worst).index(shown[page].worst), list(questions).index(page)))
    rows = [
        [f"[{questions[page]}]({page})", shown[page].bases, shown[page].came_out, shown[page].verdict] for page in order
    ]
    yield (
        "One line for each page, with its worst result, and the worst page first. Some pages follow rules that were "
        f"written before their runs: {RULES}. The other pages have no such rules."
    )
    yield ""
    yield markdown(["question", "bases", "worst result", "verdict"], rows, is_text=True)
    yield ""
    yield LEGEND


def _claims_result(results: Results, judged: Sequence[Mapping[str, str]]) -> WorstResult | None:
    """The claims of the paper: how far the gain is from the paper's, and how many have which verdict."""
    counts = Counter(row["verdict"] for row in judged)
    change = acc_change(results, BASE, VCSD, *results.ordinary) if results.ordinary else None
    ends = interval(change)
    if change is None or ends is None or not counts:
        return None
    low, high = PAPER_GAINS
    size = "the world exaggerates: " if ends[0] > high else ""
    gain = f"{VCSD.name} minus base {change.mean:+.2f} (95% {shown_ends(ends)}), in the paper {low:+.2f} to {high:+.2f}"
    worst: Worst = next((word for word in ("disagrees", "undecided") if counts[word]), "agrees")
    return WorstResult(worst, str(change.num_bases), size + gain, _counts(judged).removeprefix(": "))


COUNTED = {"disagrees": "disagree", "undecided": "undecided", "agrees": "agree"}
"""Verdicts in the order of every page, and how several are counted."""


def _counts(judged: Sequence[Mapping[str, str]]) -> str:
    """How many claims the results disagree with, leave undecided and agree with; empty if none was judged.

    >>> _counts([{"verdict": "agrees"}, {"verdict": "undecided"}, {"verdict": "agrees"}])
    ': 0 disagree, 1 undecided, 2 agree'
    """
    counts = Counter(row["verdict"] for row in judged)
    return ": " + ", ".join(f"{counts[verdict]} {word}" for verdict, word in COUNTED.items()) if counts else ""


def headline(experiment: Experiment, results: Results) -> str:
    """The mean Acc of every variant, or the contrast's correlation with mutual information, group by group."""
    groups = results.groups_of(experiment)
    parts = []
    for group in groups:
        means = []
        for variant in experiment.variants:
            if acc := results.acc(variant, group):
                num_planned = len(results.cells_of(variant, group))
                note = "" if len(acc) == num_planned else f" ({len(acc)} of {num_planned} runs)"
                means.append(f"{variant.name} {over_bases(acc).mean:.1f}{note}")
        black = [
            result["pmi"]["black"]["correlation"]
            for result in results.finished(experiment.variants[0], group).values()
            if "black" in result.get("pmi", {})
        ]
        means += [f"r = {spread(black).mean:.2f} with the mutual information (no Acc)"] if black else []
        if means:
            parts.append((f"{group}: " if len(groups) > 1 else "") + ", ".join(means))
    return "; ".join(parts)


def _verdicts(experiment: Experiment, judged: Sequence[Mapping[str, str]]) -> str:
    """How many claims of an experiment have which verdict, disagreements first."""
    counts = Counter(row["verdict"] for row in judged if row["experiment"] == experiment.name)
    order = sorted(counts, key=lambda word: [*COUNTED, word].index(word))
    return ", ".join(f"{counts[word]} {COUNTED.get(word, word) if counts[word] > 1 else word}" for word in order)
