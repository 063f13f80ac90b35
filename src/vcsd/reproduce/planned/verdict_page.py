"""The page of verdicts: what the image contrast adds to mere sharpening, on five bases made for this question.

It applies docs/preregistration.md to whatever planned runs are finished, what speaks against the contrast first, and
names what is missing. `python -m vcsd.reproduce.every_page docs/results` writes it, with its picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.report.parts import unread_change, unread_note
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, DECODING, EXPERIMENTS, SHARPENED, VCSD
from vcsd.reproduce.pages.details import guard_of
from vcsd.reproduce.pages.first_screen import COMMAND, first_screen, how_to_repeat
from vcsd.reproduce.pages.provenance import hardware_line
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import interval, over_bases, paired, shown, shown_p
from vcsd.reproduce.planned.answers import (
    FEWEST_BASES,
    LAST_STEPS,
    LOOKS,
    MAIN_CONTROL,
    answers,
    entropy_matches,
    guard_answer,
    in_points,
    over,
    side_of,
    suite_changes,
    weakest_leads,
)
from vcsd.reproduce.planned.beyond_rules import (
    after_two_looks,
    also_against,
    losses_of_the_control,
    trained,
    undecided_sizes,
    without_contrast,
)
from vcsd.reproduce.planned.planned_results import (
    RUN_COMMAND,
    in_words,
    made_again,
    unread_cell,
    with_bases_made_again,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.answers import Side
    from vcsd.reproduce.planned.planned_results import PlannedResults

PAGE, PICTURE = "what_the_contrast_adds.md", "what_the_contrast_adds.png"
TITLE = "What does the image contrast add to mere sharpening?"

BEST_STEP = "OPSD, best dev step"
LATER_CONTROLS = ("majority of 8", "OPSD beta 0.1", BEST_STEP)

GUARD_HEAD = ("", "runs", "bad", "bad, not stopped", "stopped", "good, but stopped", "warned")

HEADINGS: Mapping[Side, str] = {
    "against": "Against the contrast",
    "undecided": "Undecided",
    "described": "Described, without a verdict",
    "for": "For the contrast",
}

QUESTION = (
    f"{EXPERIMENTS['sharpening'].question} It is asked on five new bases (Qwen3-VL, 3.2M, pre-training seeds 11 to 15)."
)
BROKEN = (
    "Results were to be read once, after the last run. This rule was broken in four ways:\n\n"
    "- The runs on the two shipped bases were [read and published](sharpening_so_far.md) when time ran out.\n"
    "- The command printed the accuracies of the first 12 runs on new bases as they ended (it no longer does).\n"
    "- The pre-check was calibrated on the first of these bases.\n"
    "- The last three runs of qwen3_vl-small-11 (`majority of 8`, `OPSD beta 0.1`, `OPSD, best dev step`) were made on "
    "a CPU after the others had been read.\n\n"
    "Rules, bases, seeds and variants are those of the first commit. The code that answers the questions was committed "
    "before the other runs were read. Later came the lines against the contrast that have no number, the section about "
    "a base that was made twice, the place of questions 3 and 9, and some wording. The correction for two looks came "
    "last: at first, this page doubled no p, and said only which verdicts a doubled p would lose."
)


def verdict_page(runs: PlannedResults, at_paper_size: str = "") -> str:
    """Build the page. `at_paper_size` says what more bases with gains of the paper's size show."""
    planned = [run for run in runs.runs if run.base in runs.verdict_bases]
    missing = runs.missing(runs.verdict_bases)
    leads = weakest_leads(runs)
    lines = first_screen(
        TITLE,
        question=QUESTION,
        result=[f"{leads} More: [against](#against-the-contrast), [for](#for-the-contrast)."] if leads else [],
        sure=f"{len(planned) - len(missing)} of {len(planned)} planned runs are finished."
        + (f" Missing: {in_words(missing)}." if missing else "")
        + " The [rules](../preregistration.md), written before the runs, name the questions and the tests: Student's t "
        f"over bases, which count equally; with fewer than {FEWEST_BASES} bases, a question is undecided. **The "
        f"one-look rule was broken** ([how](#the-one-look-rule)). {after_two_looks(runs)} The rules correct within a "
        "question, not for the number of questions.",
        repeat=how_to_repeat(RUN_COMMAND),
    )
    found, guard = answers(runs), guard_answer(runs)
    for side, heading in HEADINGS.items():
        own = [f"- {answer.text}" for answer in found if answer.side == side]
        if side == "against":
            own += [f"- {guard.text}"] if guard.side == side else []
            own += also_against(runs, at_paper_size)
        elif side == "undecided":
            own += undecided_sizes(runs)
        elif side == "described" and own:
            own[-1] += without_contrast(runs)
        lines += [f"## {heading}", "", *(own or ["Nothing."]), ""]
    lines += [
        f"![Differences with 95% intervals, not corrected for two looks]({PICTURE})",
        "",
        *_suites(runs),
        *_matched(runs),
        *_again(runs),
    ]
    return "\n".join([*lines, *_guard(runs), *all_runs(runs, runs.verdict_bases), *_looks(), *_made(runs)])


def _again(runs: PlannedResults) -> Iterator[str]:
    """The answers of the rules if a base that was made twice counted with its second version."""
    other = with_bases_made_again(runs)
    if other is None:
        return
    twice = made_again(runs)
    yield from ("## A base that was made twice", "")
    yield (
        f"{', '.join(twice)} was made a second time by mistake. The seed was the same but the weights differ, because "
        "training on a GPU does not repeat bit for bit. The first one counts above, because its runs began first. This "
        "table shows, without a verdict, what the second one would change:"
    )
    yield ""
    rows = []
    for name in (*(each.name for each in SHARPENED), "another picture", DECODING.name, *LATER_CONTROLS):
        pair = [each.change(name, VCSD.name, each.verdict_bases) for each in (runs, other)]
        rows.append([f"VCSD minus `{name}`", *(_short(change) for change in pair)])
    yield from (markdown(["", "first base counts", "second base instead"], rows), "")
    for base in twice:
        accs = [
            {name: _acc(each, name, base) for name in (BASE.name, VCSD.name, MAIN_CONTROL)} for each in (runs, other)
        ]
        said = [", ".join(f"{name} {acc}" for name, acc in each.items()) for each in accs]
        yield from (f"Acc on {base}: first {said[0]}; second {said[1]}.", "")


def _acc(runs: PlannedResults, name: str, base: str) -> str:
    accs = list(runs.scores(name, [base]).values())
    return f"{accs[0]:.2f}" if accs else "missing"


def _short(change: Paired | None) -> str:
    limits = interval(change)
    if change is None or limits is None:
        return "missing"
    unread = unread_note(change.unread, digits=2)
    return f"{change.mean:+.2f} ({limits[0]:+.2f} to {limits[1]:+.2f}; {unread}; {change.num_bases} bases)"


def _suites(runs: PlannedResults) -> Iterator[str]:
    changes = suite_changes(runs)
    if not changes:
        return
    rows = []
    total = over(runs, MAIN_CONTROL)
    for name, change in {**changes, "Acc": total}.items():
        limits = interval(change)
        suite = None if name == "Acc" else name
        means = [over_bases(runs.scores(each, runs.verdict_bases, suite)).mean for each in (MAIN_CONTROL, VCSD.name)]
        if change is None or limits is None or change.p is None or change.detectable is None:
            continue
        word = {"for": "ahead", "against": "behind"}.get(side_of(change), "undecided")
        rows.append(
            [
                name,
                *(f"{value:.1f}" for value in means),
                f"{change.mean:+.2f}",
                "" if change.unread is None else unread_change(change.unread, digits=2),
                f"{limits[0]:+.2f} to {limits[1]:+.2f}",
                shown_p(change.p).removeprefix("= "),
                f"{change.detectable:.1f}",
                word,
            ]
        )
    head = ["", MAIN_CONTROL, "VCSD", "difference", "unread"]
    head += ["95% interval", "p (two looks, Holm for suites)", "80% power from", "VCSD is"]
    yield from ("## Suite by suite", "", markdown(head, rows), "", *losses_of_the_control(runs))


def _matched(runs: PlannedResults) -> Iterator[str]:
    matches = entropy_matches(runs)
    if not matches:
        return
    yield from ("## Sharpening matched by final entropy", "")
    yield (
        "The rules do not say how to match, so this comparison is exploratory and gives no verdict. For each base, "
        "VCSD is compared with the sharpened run (anchor 1.5, 2 or 3) whose final entropy, the mean of the last "
        f"{LAST_STEPS} steps, is closest to VCSD's."
    )
    runs_of = [{each.base: each.chosen for each in matches}, {each.base: VCSD.name for each in matches}]
    unread = [
        {(base, 0): share for base, name in names.items() for share in runs.unread(name, [base]).values()}
        for names in runs_of
    ]
    change = paired(
        {(match.base, 0): match.control_acc for match in matches},
        {(match.base, 0): match.acc for match in matches},
        looks=LOOKS,
        unread=(unread[0], unread[1]),
    )
    outside = [match.base for match in matches if not match.is_inside]
    yield from ("", f"VCSD minus the matched run: {in_points(change)}.", "")
    if outside:
        yield (
            f"On {', '.join(outside)}, VCSD's final entropy lies outside the range of the sharpened runs, so there the "
            "match is only the nearest one."
        )
        yield ""
    anchors = sorted({name for match in matches for name in match.entropies})
    rows = [
        [
            match.base,
            f"{match.entropy:.3f}",
            *(f"{match.entropies[name]:.3f}" if name in match.entropies else "" for name in anchors),
            match.chosen,
            f"{match.control_acc:.1f}",
            f"{match.acc:.1f}",
            f"{match.acc - match.control_acc:+.1f}",
        ]
        for match in matches
    ]
    head = ["base", "entropy, VCSD", *(f"entropy, {name}" for name in anchors), "matched", "its Acc", "VCSD", "apart"]
    yield from (markdown(head, rows), "")


def _guard(runs: PlannedResults) -> Iterator[str]:
    """What the guard says about every training run on new bases, doses included, and how these runs ended."""
    lines = list(guard_rows(runs))
    if not lines:
        return
    yield from ("## The guard on new runs", "")
    yield (
        "These runs, with those on the bases of the [doses](doses.md), test the guard: its threshold was lowered after "
        "the runs up to seed 105, and they were made later. A run that ends below its base counts as *bad*. Only final "
        "scores were measured, so a run that fell and recovered is not seen. The present guard judged the recorded "
        "metrics again; these are rounded, so a step may be off by one from what a run logged."
    )
    yield from ("", markdown(GUARD_HEAD, lines), "", f"{guard_answer(runs).text} {what_the_guard_says(runs)}", "")
    named = list(_stopped(runs))
    if named:
        yield from (*named, "")


def what_the_guard_says(runs: PlannedResults) -> str:
    """How many runs the guard stops at all, and what it says about the bad ones."""
    base = runs.scores(BASE.name, runs.listed.bases)
    known = [(run, result) for results in trained(runs).values() for run, result in results.items() if run in base]
    stops = sum(guard_of(result)["stop"] is not None for _, result in known)
    warnings = [guard_of(result)["warn"] for run, result in known if result["acc"] < base[run]]
    steps = sorted(step for step in warnings if step is not None)
    text = f"Of all {len(known)} runs it stops {stops or 'none'}" + ("." if stops else ", so this shows little.")
    if warnings:
        text += f" Of the {len(warnings)} bad ones it did not even warn about {len(warnings) - len(steps)}"
        text += f"; about the others it warned at step {', '.join(map(str, steps))}." if steps else "."
    return text


def guard_rows(runs: PlannedResults) -> Iterator[list[str]]:
    """For each variant: runs, bad runs, bad ones that the guard does not stop, stops, stops of good ones, warnings."""
    base = runs.scores(BASE.name, runs.listed.bases)
    for name, results in trained(runs).items():
        known = {run: result for run, result in results.items() if run in base}
        bad = {run for run, result in known.items() if result["acc"] < base[run]}
        stopped = {run for run, result in known.items() if guard_of(result)["stop"] is not None}
        warned = {run for run, result in known.items() if guard_of(result)["warn"] is not None}
        numbers = (known, bad, bad - stopped, stopped, stopped - bad, warned)
        yield [name, *(str(len(each)) for each in numbers)]


def _stopped(runs: PlannedResults) -> Iterator[str]:
    base = runs.scores(BASE.name, runs.listed.bases)
    for name, results in trained(runs).items():
        for run, result in results.items():
            stop = guard_of(result)["stop"]
            if run in base and (stop is not None or result["acc"] < base[run]):
                said = "not stopped" if stop is None else f"stopped at step {stop}"
                yield f"- {name}, {run[0]}: {base[run]:.1f} before training, {result['acc']:.1f} after; {said}."


def all_runs(runs: PlannedResults, bases: Sequence[str]) -> Iterator[str]:
    """Acc of every run on some bases, and the means of each suite."""
    names = dict.fromkeys(run.variant.name for run in runs.runs if run.base in bases)
    rows, by_suite = [], []
    for name in names:
        accs = runs.scores(name, bases)
        if not accs:
            continue
        by_base = {base: acc for (base, _), acc in accs.items()}
        gain = runs.change(BASE.name, name, bases)
        limits = interval(gain)
        rows.append(
            [
                name,
                *(f"{by_base[base]:.2f}" if base in by_base else "" for base in bases),
                shown(over_bases(accs)),
                "" if gain is None or name == BASE.name else f"{gain.mean:+.2f}",
                "" if limits is None or name == BASE.name else f"{limits[0]:+.2f} to {limits[1]:+.2f}",
                unread_cell(runs, name, bases),
            ]
        )
        means = [over_bases(runs.scores(name, bases, suite)) for suite in SEVEN]
        by_suite.append([name, *(shown(each, digits=1) for each in means), str(len(accs))])
    if rows:
        head = ["Acc", *bases, "mean ± sd", "over base", "95% interval", "unread, %"]
        yield from ("## All runs", "", markdown(head, rows), "")
        yield "`unread`: responses without an answer that could be extracted, in percent, which count as wrong."
        yield "Mean and range over bases."
        yield ""
        yield from ("Mean ± standard deviation over bases, suite by suite:", "")
        yield from (markdown(["", *SEVEN, "bases"], by_suite), "")


def _looks() -> Iterator[str]:
    yield from ("## The one-look rule", "", BROKEN, "")


def _made(runs: PlannedResults) -> Iterator[str]:
    found = (runs.result(run) for run in runs.runs if run.base in runs.verdict_bases)
    results = [result for result in found if result is not None]
    yield from ("## How this was made", "")
    if results:
        seconds = sum(result["seconds"] for result in results)
        yield f"- Runs: `{RUN_COMMAND}`; {seconds:,.0f} s of run time, many in parallel"
        yield hardware_line(results)
    stopped = runs.finished(BEST_STEP, runs.verdict_bases).values()
    if steps := [str(result["chosen_step"]) for result in stopped if "chosen_step" in result]:
        yield f"- `{BEST_STEP}`: the best of nine steps on `dev`, here step {', '.join(steps)}, base by base"
    yield f"- Page: `{COMMAND}`; questions and tests: `src/vcsd/reproduce/planned/answers.py`"
    yield (
        "- Other runs: on the [shipped bases](sharpening_so_far.md), without a verdict, and with other strengths of "
        "the prior ([doses](doses.md))"
    )
    yield (
        "- 80% power: the difference that as many bases with this spread would show in 80% of cases, which is the "
        "standard error times the sum of Student's t for 95% (two-sided) and for 80% (one-sided). This usual "
        "approximation is 1% too small for five bases and 5% for three. It holds for one test after two looks (97.5% "
        "instead of 95%), without Holm's correction"
    )
    yield ""
