"""Write the page about the emoji study from its result files, with the verdicts of `settle.py`.

    python -m vcsd.emoji.study.language_page docs/results/language_runs.json --out docs/results/language \\
        --page docs/results/language.md

Until all runs are finished the page says how many are, and nothing else. Files that are not of the list are named as
left out. The page is not edited by hand. Its picture is drawn beside it, if matplotlib is installed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from vcsd.emoji.questions import SUITES
from vcsd.emoji.study.key_monitor import KEYS
from vcsd.emoji.study.language_picture import draw_language
from vcsd.emoji.study.seen_by_training import MEASURED, seen_by_training
from vcsd.emoji.study.set_aside import num_set_aside
from vcsd.emoji.study.settle import (
    AROUND,
    FIRST_STEPS,
    GATES,
    MARGIN,
    MOST_LOST,
    Counted,
    broken_gates,
    gain,
    is_broken,
    is_wanted,
    seen_in_time,
    study_verdict,
    unusual,
    verdict,
    why_broken,
    worst_gate,
)
from vcsd.emoji.study.study_list import EmojiRun, OtherListError, StudyList, read_study, tried_on_dev
from vcsd.errors import ConfigError, VcsdError
from vcsd.monitor.lines import read_lines
from vcsd.reproduce.paired_runs import paired
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from matplotlib.figure import Figure

    from vcsd.emoji.study.settle import RunSetting, Scores
    from vcsd.reproduce.paired_runs import Paired

    Results = Mapping[EmojiRun, dict[str, Any]]

TITLES = {
    "language": "A real language model with true but skewed captions",
    "language_exported": "The same language model, measured as it is exported",
}
CONTROLS = ("alpha 0", "sharpened 2")
FIRST_PLANNED = ("emoji-1", "emoji-2", "emoji-3")
"""The bases that were planned first. Two more were planned before any result was read."""

_LAST = 10
"""Steps at the end of a run whose deciding words are compared with those of its first steps."""


def read_results(
    listed: StudyList, out: Path, name: str = "language"
) -> tuple[dict[EmojiRun, dict[str, Any]], list[str]]:
    """Return the results that exist in the order of the list, and the names of the files that are not of this list.

    Raise a ConfigError if the results of a base come from different weights, or if a study other than the first has
    results of exams that did not round.
    """
    paths = {run: out / "cells" / f"{run.name}.json" for run in listed.runs}
    left_out = {path.name for path in (out / "cells").glob("*.json")} - {path.name for path in paths.values()}
    results = {}
    for run, path in paths.items():
        try:
            if (result := listed.read_result(path)) is not None:
                results[run] = result
        except OtherListError:
            left_out.add(path.name)
    if name != "language" and not _is_rounded(results):
        raise ConfigError([f"{out} has results of exams without rounding. They belong to no list but the first."])
    for base in listed.bases:
        if len({result["base_weights"] for run, result in results.items() if run.base == base}) > 1:
            raise ConfigError([f"{out}: the results of {base} come from different weights. Keep those of one base."])
    return results, sorted(left_out)


def page(listed: StudyList, out: Path, name: str = "language") -> str:
    """Return the page. Rules and picture are named after the study."""
    results, left_out = read_results(listed, out, name)
    rules = f"preregistration_{name}.md"
    lines = [f"# {TITLES.get(name, name)}: results", ""]
    lines += [f"{len(results)} of {len(listed.runs)} planned runs are finished."]
    if len(results) == len(listed.runs):
        lines += [
            f"The rules were written before them, in [{rules}](../{rules}).",
            "The prior comes from true but skewed captions; it is not the language model's own. Accuracies are percent",
            f"of right deciding words. There are {len(listed.bases)} bases, with one run of each method: they say "
            "little about others.",
            "",
            *_study_verdict(listed, results),
            *_which_weights(results),
            *_verdicts(listed, results),
            f"![VCSD minus the others on unusual colours, and its change on every other suite]({name}.png)",
            "",
            *_gains(listed, results),
            *_kept(listed, results),
            *_settling(listed, results),
            *_tables(results),
            *seen_by_training(results, out),
            *_counting(results, out),
            *_presence(results, out),
            *_numbers(results),
        ]
    else:
        lines += ["Nothing else is shown before all of them are.", ""]
    lines += [*_left_out(left_out), *_lost(num_set_aside(out))]
    return "\n".join(lines).rstrip() + "\n"


def _study_verdict(listed: StudyList, results: Results) -> Iterator[str]:
    said = _judged(results, listed.bases)
    yield f"**The study {said}.**"
    if said == "fails":
        yield "VCSD, at the best setting of the grid, does not help this kind of model."
    if first := [base for base in listed.bases if base in FIRST_PLANNED]:
        yield f"Judged by the {len(first)} bases that were planned first alone, it {_judged(results, first)}."
    yield ""


def _is_rounded(results: Results) -> bool:
    """Whether the exams of all trained runs measured weights as `vcsd export` writes them by default."""
    return all(result.get("measured") == MEASURED for run, result in results.items() if run.trains)


def _which_weights(results: Results) -> Iterator[str]:
    """Which weights the exams measured; for the first study, what was wrong with that and was added to its page."""
    if _is_rounded(results):
        text = (
            "All scores are of weights rounded to bfloat16, as `vcsd export` writes them by default, computed in "
            "float32. [The first study](language.md), which failed, measured unrounded ones; this one does not "
            "replace it."
        )
    else:
        text = (
            "**Found after the look: the exam measured other weights than training used.** Training computes in "
            "bfloat16: it rounds the weights of matrix products in every pass, and samples from a rounded copy. "
            "The exam took them unrounded, and found other answers than training had sampled ([What training "
            "saw](#what-training-saw)). The likely reason is that [bfloat16 hides small "
            "updates](../training.md#what-bfloat16-hides-at-small-learning-rates). Other prompts and the lag of "
            "rollouts cannot explain it, nor can the temperature for presence and counting; arithmetic in "
            "bfloat16 is not excluded. The verdict stands by its rules, but it is not about the model that `vcsd "
            "export` writes by default. [A second study](../preregistration_language_exported.md) measures that "
            "one. The sections about what training saw and about presence were added after the look."
        )
    yield from wrap(text, 120, break_long_words=False, break_on_hyphens=False)
    yield ""


def _judged(results: Results, bases: Iterable[str]) -> str:
    scores = [_scores_on_test(results, base) for base in bases]
    return study_verdict([(is_wanted(own["base"]), _verdict(own)) for own in scores])


def _scores_on_test(results: Results, base: str) -> dict[str, Any]:
    return {variant: result["scores"] for variant, result in _on_test(results, base).items()}


def _verdict(own: Mapping[str, Any]) -> str:
    return verdict(own["base"], own["VCSD"], [own[name] for name in CONTROLS])


def _verdicts(listed: StudyList, results: Results) -> Iterator[str]:
    yield "## Verdicts"
    yield ""
    for base in listed.bases:
        own = _scores_on_test(results, base)
        kind = "" if is_wanted(own["base"]) else " The base itself does not show the phenomenon."
        yield f"- {base}: **{_verdict(own)}**.{kind}"
    yield ""
    yield "Gates that the other methods break:"
    yield ""
    for base in listed.bases:
        own = _scores_on_test(results, base)
        for variant, scores in own.items():
            if variant not in ("base", "VCSD"):
                broken = broken_gates(own["base"], scores)
                yield f"- {base}, {variant}: {', '.join(broken) or 'none'}."
    yield ""


def _gains(listed: StudyList, results: Results) -> Iterator[str]:
    """What VCSD gains on unusual colours over the base and over every other method."""
    scores = {base: _scores_on_test(results, base) for base in listed.bases}
    yield "## VCSD minus the others, on unusual colours"
    yield ""
    yield "Points, on the same questions. After +-: half of the 95% interval over questions, for this base and run."
    yield "The last column is the mean over bases, each of which counts once, with its standard error and p."
    yield ""
    yield "| VCSD minus | " + " | ".join(scores) + " | over bases |"
    yield "|---|" + "--:|" * (len(scores) + 1)
    for other, change in gains_over_bases(listed, results).items():
        apart = [gain(own[other], own["VCSD"]) for own in scores.values()]
        cells = " | ".join(f"{mean:+.1f} +- {width:.1f}" for mean, width in apart)
        yield f"| {other} | {cells} | {change} |"
    yield ""


def gains_over_bases(listed: StudyList, results: Results) -> dict[str, Paired]:
    """VCSD minus every other method on unusual colours, over bases."""
    others = [variant for variant in _on_test(results, next(iter(listed.bases))) if variant != "VCSD"]
    return {other: _vcsd_minus(other, listed, results, unusual) for other in others}


def changes_of_gates(listed: StudyList, results: Results) -> dict[str, Paired]:
    """VCSD minus the base on every gate, over bases, the largest loss first."""

    def right(suite: str) -> Callable[[Scores], float]:
        return lambda scores: scores[suite]["right"]

    changes = {suite: _vcsd_minus("base", listed, results, right(suite)) for suite in GATES}
    return dict(sorted(changes.items(), key=lambda item: item[1].mean))


def _vcsd_minus(other: str, listed: StudyList, results: Results, value: Callable[[Scores], float]) -> Paired:
    """The difference of a value of the scores on `test`, base by base."""
    own = {(base, 0): _scores_on_test(results, base) for base in listed.bases}
    change = paired(*({run: value(scores[name]) for run, scores in own.items()} for name in (other, "VCSD")))
    assert change is not None, "all runs are finished"
    return change


def _kept(listed: StudyList, results: Results) -> Iterator[str]:
    """What VCSD changes on the suites that should not lose."""
    yield "## VCSD minus the base, on every other suite"
    yield ""
    yield "Points over bases, with standard error and p, the largest loss first, and the bases on which VCSD breaks it."
    yield ""
    yield "| suite | over bases | broken on |"
    yield "|---|--:|---|"
    scores = {base: _scores_on_test(results, base) for base in listed.bases}
    for suite, change in changes_of_gates(listed, results).items():
        broken = [base for base, own in scores.items() if is_broken(own["base"][suite], own["VCSD"][suite])]
        yield f"| {suite} | {change} | {', '.join(broken) or 'none'} |"
    yield ""


def _on_test(results: Results, base: str) -> dict[str, dict[str, Any]]:
    """The results of a base on `test`, by variant."""
    return {run.variant: result for run, result in results.items() if (run.base, run.stage) == (base, "test")}


def _settling(listed: StudyList, results: Results) -> Iterator[str]:
    yield "## Settling rate, beta and steps, on `dev`"
    yield ""
    base, tried = tried_on_dev(results)
    settled = listed.settled(results)
    assert base is not None
    assert settled is not None
    yield "| method | rate | beta | steps | unusual colours | worst loss of a gate | broken gates |"
    yield "|---|---|---|--:|--:|--:|---|"
    yield f"| base | | | | {unusual(base):.1f} | | |"
    for variant, runs in tried.items():
        for setting, scores in runs.items():
            broken = ", ".join(broken_gates(base, scores)) or "none"
            numbers = f"{unusual(scores):.1f} | {worst_gate(base, scores):.1f} | {broken}"
            yield f"| {variant} | {setting.rate} | {setting.beta} | {setting.steps} | {numbers} |"
    yield ""
    for variant, chosen in settled.items():
        passed = "passes all gates" if chosen.has_passed else "is the least harmful one, because none passes all gates"
        yield f"- {variant}: {chosen.setting}, which {passed}.{_at_the_edge(listed, tried[variant], chosen.setting)}"
    yield ""


def _at_the_edge(listed: StudyList, tried: Mapping[RunSetting, Scores], setting: RunSetting) -> str:
    """Say if no higher rate and no more steps were tried: a better setting may lie beyond the grid."""
    highest = max(float(other.rate) for other in tried)
    if (float(setting.rate), setting.steps) != (highest, listed.steps[-1]):
        return ""
    return " This is the edge of the grid: what lies beyond was not tried."


def _tables(results: Results) -> Iterator[str]:
    bases = list(dict.fromkeys(run.base for run in results if run.stage == "test"))
    for base in bases:
        own = _on_test(results, base)
        yield f"## {base}, on `test`"
        yield ""
        yield "| accuracy | " + " | ".join(own) + " |"
        yield "|---|" + "--:|" * len(own)
        for suite in SUITES:
            cells = " | ".join(f"{result['scores'][suite]['right']:.1f}" for result in own.values())
            yield f"| {suite} | {cells} |"
        cells = " | ".join(str(result.get("english_perplexity", "")) for result in own.values())
        yield f"| perplexity of English | {cells} |"
        yield ""


def _counting(results: Results, out: Path) -> Iterator[str]:
    yield "## Counting, and what the monitors saw"
    yield ""
    yield "`flips`: share of number words at which the contrast changed the most likely token, in the first and last"
    yield "ten steps. `alarm`: first alarm of the run's guard, and of a guard for counting alone, without labels."
    yield "`why`, for runs that break counting: `contrast` for VCSD if its target is wrong before any training,"
    yield f"by more than {MARGIN:g} points, else `training`. `in time`: whether an alarm came before {MOST_LOST:g}"
    yield f"points were lost among the rollouts, as a mean from {AROUND} steps before the alarm to {AROUND} after it,"
    yield f"against the first {FIRST_STEPS} steps."
    yield ""
    yield from _watched_runs(results, out, "count")


def _presence(results: Results, out: Path) -> Iterator[str]:
    yield "## Presence, and what the monitors saw"
    yield ""
    yield "The same columns for presence, whose deciding words are yes and no."
    yield ""
    yield from _watched_runs(results, out, "presence")


def _watched_runs(results: Results, out: Path, suite: str) -> Iterator[str]:
    """A line for every run about what was seen of a suite while it trained."""
    columns = ["flips, first", "flips, last", "KL there, first", "KL there, last", "alarm, run", f"alarm, {suite}"]
    yield f"| run | {suite} | " + " | ".join([*columns, "why", "in time"]) + " |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|---|---|"
    for run, result in results.items():
        if run.trains:
            cells = _watched(results, run, list(read_lines(out / "runs" / run.name / KEYS)), suite)
            yield f"| {run.name} | {result['scores'][suite]['right']:.1f} | " + " | ".join(cells) + " |"
    yield ""


def _watched(results: Results, run: EmojiRun, recorded: Sequence[Mapping[str, Any]], suite: str) -> list[str]:
    """The cells of a run about what was seen of a suite while it trained."""
    lines = [line for line in recorded if line["suite"] == suite]
    last = max((int(line["step"]) for line in lines), default=0)
    first_part = [line for line in lines if line["step"] <= FIRST_STEPS]
    last_part = [line for line in lines if line["step"] > last - _LAST]
    means = [_mean(part, name) for name in ("argmax_changed", "kl_target_original") for part in (first_part, last_part)]
    alarms = [_first_alarm(results[run]["alarms"].get(who, {})) for who in ("run", suite)]
    cells = [*(f"{mean:.3f}" if mean is not None else "-" for mean in means), *(str(a or "-") for a in alarms)]
    base = _base_of(results, run)
    if not is_broken(base["scores"][suite], results[run]["scores"][suite]):
        return [*cells, "-", "-"]
    why = why_broken(base["key_contrast"][suite]) if run.variant == "VCSD" else "training"
    return [*cells, why, _in_time(lines, alarms)]


def _numbers(results: Results) -> Iterator[str]:
    """What the contrast does to number words without any training, on the base and after each run."""
    yield "## Number words, with and without the contrast"
    yield ""
    yield "Percent of counting questions whose most likely number is the true one: with the picture, with the black"
    yield "picture, and in VCSD's target. Then what the black picture prefers, and the mean contrast of wrong numbers"
    yield "in nats."
    yield ""
    yield "| run | picture | black | target | black prefers | pushed |"
    yield "|---|--:|--:|--:|---|---|"
    for run, result in results.items():
        if "key_contrast" in result:
            own = result["key_contrast"]["count"]
            shares = " | ".join(f"{own[name]:.1f}" for name in ("original", "control", "target"))
            prefers = ", ".join(f"{word} {num}" for word, num in own["control_says"].items())
            pushed = ", ".join(f"{word} {nats:+.2f}" for word, nats in own["pushed"].items())
            yield f"| {run.name} | {shares} | {prefers} | {pushed} |"
    yield ""


def _first_alarm(steps: Mapping[str, int | None]) -> int | None:
    """The first step at which a guard warned; one that stops at once has warned as well."""
    return min((step for step in steps.values() if step is not None), default=None)


def _base_of(results: Results, run: EmojiRun) -> dict[str, Any]:
    """The result of a run's base on the same split."""
    (base,) = (
        result
        for other, result in results.items()
        if (other.variant, other.base, other.stage) == ("base", run.base, run.stage)
    )
    return base


def _in_time(lines: Sequence[Mapping[str, Any]], alarms: Sequence[int | None]) -> str:
    counted = [Counted(line["step"], line["responses"], line["right"]) for line in lines]
    said = seen_in_time(counted, [alarm for alarm in alarms if alarm is not None])
    return {True: "yes", False: "no", None: "unknown"}[said]


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Average a statistic over the deciding words of several lines."""
    pairs = [(line["key"][name], line["keys"]) for line in lines if name in line["key"]]
    weight = sum(keys for _, keys in pairs)
    return sum(value * keys for value, keys in pairs) / weight if weight else None


def _left_out(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield "## Left out"
        yield ""
        yield f"{len(names)} result files are of another list of runs and count nowhere on this page:"
        yield ""
        yield from (f"- {name}" for name in names)
        yield ""


def _lost(num: int) -> Iterator[str]:
    if num:
        yield "## Set aside"
        yield ""
        yield f"{num} results in `lost` are of bases whose weights were lost before all their runs were made. By the"
        yield "rules they were set aside unread and count nowhere; these bases started over."
        yield ""


def draw_picture(listed: StudyList, out: Path) -> Figure | None:
    """Draw the picture of the page; None before all runs are finished."""
    results, _ = read_results(listed, out)
    if len(results) < len(listed.runs):
        return None
    return draw_language(gains_over_bases(listed, results), changes_of_gates(listed, results))


def _write(listed: StudyList, out: Path, path: Path) -> None:
    """Write the page, and its picture beside it. Without matplotlib the picture stays as it is."""
    path.write_text(page(listed, out, path.stem), encoding="utf-8")
    try:
        figure = draw_picture(listed, out)
    except ImportError:
        sys.stdout.write("No picture: matplotlib is not installed. Install the extra: pip install 'vcsd[eval]'.\n")
        return
    if figure is not None:
        figure.savefig(path.with_suffix(".png"), dpi=130)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.study.language_page", description="Write the page.")
    parser.add_argument("list", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="The folder of the results.")
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    try:
        _write(read_study(options.list), options.out, options.page)
    except VcsdError as error:
        sys.stderr.write(visible(f"error: {type(error).__name__}: {error}\n"))
        sys.exit(2)


if __name__ == "__main__":
    main()
