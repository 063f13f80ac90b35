"""The page of the planned runs on the shipped bases: the same controls, suite by suite, without a verdict.

`python -m vcsd.reproduce.every_page docs/results` writes it. Verdicts rest on other bases and have a page of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan
from typing import TYPE_CHECKING

from vcsd.report.parts import unread_change
from vcsd.reproduce.base_folders import FAMILY_TITLES
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, DECODING, OPSD, VCSD, Variant
from vcsd.reproduce.pages.first_screen import first_screen, how_to_repeat
from vcsd.reproduce.pages.provenance import hardware_line
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.planned.answers import MAIN_CONTROL
from vcsd.reproduce.planned.planned_results import RUN_COMMAND
from vcsd.reproduce.planned.run_list import SHIPPED, PlannedRun
from vcsd.reproduce.results import unread_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.planned.planned_results import PlannedResults

PAGE = "sharpening_so_far.md"
REFERENCES = (BASE, OPSD, VCSD)


@dataclass(frozen=True, eq=False)
class FinishedRuns:
    """The planned runs on the shipped bases that have results, with base, OPSD and VCSD of the same base and seed."""

    runs: PlannedResults

    @property
    def planned(self) -> list[PlannedRun]:
        """The planned runs that start from a shipped base."""
        return [run for run in self.runs.listed.runs if run.base.startswith(SHIPPED)]

    @property
    def bases(self) -> list[str]:
        """The shipped bases, as the list of runs names them."""
        return list(dict.fromkeys(run.base for run in self.planned))

    def seeds(self, base: str) -> list[int]:
        """The seeds of a base for which at least one planned run is finished."""
        finished = {run.seed for run in self.planned if run.base == base and self.runs.result(run) is not None}
        return sorted(finished)

    def variants(self, base: str) -> list[Variant]:
        """Base, OPSD and VCSD, then what was planned for a base, in the order of the list."""
        return list(dict.fromkeys((*REFERENCES, *(run.variant for run in self.planned if run.base == base))))

    def _result_of(self, variant: str, base: str, seed: int) -> CellResult | None:
        own = next(each for each in self.variants(base) if each.name == variant)
        return self.runs.result(PlannedRun(own, base, seed))

    def score(self, variant: str, base: str, seed: int, suite: str | None = None) -> float | None:
        """Acc of a variant, or its score on a suite; None without a result."""
        result = self._result_of(variant, base, seed)
        if result is None:
            return None
        return result["acc"] if suite is None else result["scores"][suite]

    def unread(self, variant: str, base: str, seed: int, suite: str | None = None) -> float:
        """The share of unread answers in percent, of all suites or of one; nan if it is not recorded."""
        result = self._result_of(variant, base, seed)
        share = None if result is None else unread_share(result, suite)
        return nan if share is None else share

    def missing(self) -> list[str]:
        """The planned runs on shipped bases without a result."""
        return [
            f"{run.variant.name} ({title(run.base)}, seed {run.seed})"
            for run in self.planned
            if self.runs.result(run) is None
        ]


def title(base: str) -> str:
    """The name of a shipped base's family.

    >>> title("shipped:qwen3_vl")
    'Qwen3-VL'
    """
    return FAMILY_TITLES[base.removeprefix(SHIPPED)]


def so_far_page(runs: FinishedRuns) -> str:
    """Build the page."""
    missing = runs.missing()
    num_finished = len(runs.planned) - len(missing)
    behind = behind_controls(runs)
    lines = [
        *first_screen(
            "The controls on the shipped bases",
            question="The verdicts on [what the contrast adds](what_the_contrast_adds.md) rest on five other bases. "
            "How does VCSD compare with the same controls on the two bases that the package ships?",
            result=[f"{behind} ([against](#against-the-contrast), [for](#for-the-contrast-suite-by-suite))."]
            if behind
            else [],
            sure=f"**No verdict**: there are two bases, with one or two seeds. {num_finished} of {len(runs.planned)} "
            "planned runs on them are finished. The bases had been used in pilots, and these runs were read before the "
            "last planned run was finished, which the [rules](../preregistration.md) do not allow.",
            repeat=how_to_repeat(RUN_COMMAND),
        ),
        "`unread` is the change in the share of responses from which no answer could be extracted, in points; they "
        "count as wrong.",
        "",
        "## Against the contrast",
        "",
        *_against(runs),
        "",
        "## For the contrast: suite by suite",
        "",
        *_suites(runs),
    ]
    for base in runs.bases:
        lines += [f"## {title(base)}: all runs", "", *_table(runs, base), ""]
    return "\n".join([*lines, *_made(runs, missing)])


def behind_controls(runs: FinishedRuns) -> str:
    """In how many pairs of base and seed VCSD is behind the controls that came closest; empty without runs."""
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
    return f"{VCSD.name} is {' and '.join(parts)}" if parts else ""


def pairs(runs: FinishedRuns, *variants: str) -> Iterator[tuple[str, int]]:
    """The bases and seeds for which all of some variants have results."""
    for base in runs.bases:
        for seed in runs.seeds(base):
            if all(runs.score(name, base, seed) is not None for name in variants):
                yield base, seed


def difference(runs: FinishedRuns, before: str, after: str, base: str, seed: int, suite: str | None = None) -> float:
    """Points of `after` minus points of `before`."""
    scores = [runs.score(name, base, seed, suite) for name in (before, after)]
    assert None not in scores, f"{before} and {after} need results"
    return scores[1] - scores[0]  # type: ignore[operator]


def unread_difference(
    runs: FinishedRuns, before: str, after: str, base: str, seed: int, suite: str | None = None
) -> str:
    """The change in unread answers that stands next to a difference."""
    return unread_change(runs.unread(after, base, seed, suite) - runs.unread(before, base, seed, suite))


def share(runs: FinishedRuns, variant: str, base: str, seed: int) -> float:
    """The share of VCSD's gain over the base that a variant reaches, in percent."""
    gains = [difference(runs, BASE.name, name, base, seed) for name in (variant, VCSD.name)]
    return 100 * gains[0] / gains[1]


def _listed(runs: FinishedRuns, words: str, variants: tuple[str, ...], suite: str | None = None) -> Iterator[str]:
    """`words` for each run that has all variants, with their scores and the first one's share of VCSD's gain.

    After them come the unread answers of the first variant minus those of each other.
    """
    for base, seed in pairs(runs, *variants):
        scores = [runs.score(name, base, seed, suite) for name in variants]
        text = words.format(*scores, share=share(runs, variants[0], base, seed))
        unread = [
            f"{unread_difference(runs, other, variants[0], base, seed, suite)} against {other}"
            for other in variants[1:]
        ]
        yield f"  - {title(base)}, seed {seed}: {text} (unread {' and '.join(unread)})"


def _against(runs: FinishedRuns) -> Iterator[str]:
    yield "- **With another picture as control, training did at least as well as with a black one.**"
    yield from _listed(runs, "another picture {0:.1f}, VCSD {1:.1f}", ("another picture", "VCSD"))
    yield "- **Contrast decoding, without any training, came close to VCSD or was above it.**"
    yield from _listed(runs, "contrast decoding {0:.1f}, VCSD {1:.1f}", ("contrast decoding", "VCSD"))
    yield "- **With VCSD's support (beta 0.1), OPSD did better than the OPSD that VCSD is compared with.**"
    words = "OPSD with the support {0:.1f}, without {1:.1f}, VCSD {2:.1f}"
    yield from _listed(runs, words, ("OPSD beta 0.1", "OPSD", "VCSD"))
    yield "- **Sharpening alone, without any control picture, reached half to three quarters of VCSD's gain.**"
    words = "from {1:.1f} to {0:.1f}, {share:.0f}% of the gain to VCSD's {2:.1f}"
    yield from _listed(runs, words, (MAIN_CONTROL, "base", "VCSD"))
    yield "- **On `arithmetic`, VCSD was behind contrast decoding and behind OPSD with beta 0.1.**"
    words = "VCSD {0:.1f}, contrast decoding {1:.1f}, OPSD beta 0.1 {2:.1f}"
    yield from _listed(runs, words, ("VCSD", "contrast decoding", "OPSD beta 0.1"), "arithmetic")
    yield from ("", "A majority vote of 8 answers did not replace training:", "")
    yield from (line.strip() for line in _listed(runs, "from {1:.1f} to {0:.1f}", ("majority of 8", "base")))


def _suites(runs: FinishedRuns) -> Iterator[str]:
    yield (
        f"VCSD minus `{MAIN_CONTROL}`, in points. The rules name this comparison first. From a pilot, they expected a "
        "difference on `hallucination` and `arithmetic`."
    )
    rows = [
        [
            f"{title(base)}, seed {seed}",
            *(f"{difference(runs, MAIN_CONTROL, VCSD.name, base, seed, suite):+.1f}" for suite in SEVEN),
            f"{difference(runs, MAIN_CONTROL, VCSD.name, base, seed):+.1f}",
        ]
        for base, seed in pairs(runs, MAIN_CONTROL, VCSD.name)
    ]
    yield from ("", markdown(["", *SEVEN, "Acc"], rows), "", "The change in unread answers, in points:", "")
    unread = [
        [
            f"{title(base)}, seed {seed}",
            *(unread_difference(runs, MAIN_CONTROL, VCSD.name, base, seed, suite) for suite in (*SEVEN, None)),
        ]
        for base, seed in pairs(runs, MAIN_CONTROL, VCSD.name)
    ]
    yield from (markdown(["", *SEVEN, "Acc"], unread), "")


def _table(runs: FinishedRuns, base: str) -> Iterator[str]:
    rows = []
    for variant in runs.variants(base):
        for seed in runs.seeds(base):
            acc = runs.score(variant.name, base, seed)
            if acc is None or (variant.kind in {"base", "decode"} and seed != runs.seeds(base)[0]):
                continue  # nothing is random there: all seeds share one result
            scores = [runs.score(variant.name, base, seed, suite) for suite in SEVEN]
            unread = runs.unread(variant.name, base, seed)
            rows.append(
                [
                    f"{variant.name}, seed {seed}" if variant.kind not in {"base", "decode"} else variant.name,
                    *(f"{score:.1f}" for score in scores),
                    f"{acc:.2f}",
                    "not recorded" if isnan(unread) else f"{unread:.1f}",
                    f"{share(runs, variant.name, base, seed):.0f}%",
                ]
            )
    yield markdown(["", *SEVEN, "Acc", "unread, %", "of VCSD's gain"], rows)


def _made(runs: FinishedRuns, missing: list[str]) -> Iterator[str]:
    found = (runs.runs.result(run) for run in runs.planned)
    results = [result for result in found if result is not None and RUN_COMMAND in result["command"]]
    yield from ("## How this was made", "")
    yield hardware_line(results)
    yield "- Order: runs on new bases had to wait for their bases, so later runs on the shipped bases were made first"
    yield f"- Missing on the shipped bases: {', '.join(missing) or 'nothing'}"
    yield (
        "- Base, OPSD and VCSD are earlier results of the same weights, recipe, prompts, seeds and questions, most of "
        "them made on a GPU; runs repeated on a CPU differed by at most 0.2 points in Acc "
        "([how the results came about](../results_history.md#time)). Contrast decoding of Qwen3-VL is an "
        "earlier result too"
    )
    yield (
        "- Left out: OPSD of Qwen3-VL with seed 104. An earlier reader scored it and left more than 0.2% of its "
        "answers unread"
    )
    yield (
        "- Not comparable: the numbers of `vcsd demo`, which asks other questions, and the means of "
        "[main](main.md), which are over several bases"
    )
    yield ""
