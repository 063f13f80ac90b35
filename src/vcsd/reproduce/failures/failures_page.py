"""The page "Where it fails, and what it keeps": failures first, by docs/preregistration_failures.md.

`python -m vcsd.reproduce.every_page docs/results` writes it, with its picture. Until its runs may be read, it says how
many are finished, and nothing else about them.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING

from vcsd.report.parts import unread_change
from vcsd.reproduce.abilities.measure_abilities import NUM_KEPT
from vcsd.reproduce.failures.failure_details import details
from vcsd.reproduce.failures.failure_pictures import broken_by_base, first_broken
from vcsd.reproduce.failures.failure_settings import (
    ABILITIES,
    FEWEST_BASES,
    MARGIN,
    ORDINARY_SETTING,
    SETTINGS,
    asked,
    keeps,
    unread_of,
    verdict,
)
from vcsd.reproduce.pages.first_screen import first_screen, how_to_repeat
from vcsd.reproduce.pages.plots import new_figure
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import holm, interval, paired, shown_p, with_interval
from vcsd.reproduce.planned.planned_plots import draw_differences

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.failures.failure_runs import ReadOnce
    from vcsd.reproduce.failures.failure_settings import Ability, FailureSetting, FailureVerdict
    from vcsd.reproduce.paired_runs import Paired, Run

PAGE, PICTURE, DIFFERENCES = "where_it_fails.md", "where_it_fails.png", "where_it_fails_differences.png"
TITLE = "Where it fails, and what it keeps"
ORDER = ("fails: harm", "fails: no gain", "undecided", "works")

QUESTION = (
    "Does VCSD still gain in six settings in which it may fail, and which abilities does training cost? Each setting "
    "has new bases (Qwen3-VL, 3.2M); a difference is after minus before training."
)
HISTORY = (
    "- History: the rules, the list of runs and the code that gives the verdicts were committed before any result. The "
    "tables and words of this page were changed later, most of them before the results were read. The history cannot "
    "show that order, because it has these changes and the results in one commit"
)
WORDS = (
    "`ordinary`: VCSD as usual. `text only`: the text gives the answer, and the picture is black. `pass@8`: at least "
    "one of eight sampled answers is right. `unread`: the change in the share of responses from which no answer could "
    "be extracted; they count as wrong."
)
CHOSEN = (
    "These questions were not picked by hand: they are the first ones of each setting's first base. An ellipsis marks "
    "a long answer without its beginning. The results do not keep answers given without the picture, so `text only` is "
    "not shown."
)
COULD_SHOW = (
    "`could show`: the smallest true difference, in points, that this many bases with this spread would show in 80% of "
    "cases, by one test at 5%, before any correction. Where it is large, *undecided* says little."
)
MEASURES = (
    "The five abilities, in percent: `sight`, the things in a picture that a description names correctly; `hints`, "
    "right answers if the question gives the answer as a hint; `text only`, the same with a black picture; `usual "
    "pictures`, right answers about pictures as skewed as the base's prior; `pass@8`. The rows below these five "
    "describe, without a verdict. [The rules](../preregistration_failures.md#what-it-keeps) define them all."
)


def failures_page(runs: ReadOnce) -> str:
    """Build the page."""
    sure = f"{runs.status()} The [rules](../preregistration_failures.md) were committed before any result"
    repeat = how_to_repeat(runs.command)
    if not runs.may_be_read:
        lines = first_screen(TITLE, question=QUESTION, result=[], sure=f"{sure}.", repeat=repeat)
        return "\n".join([*lines, *_planned(), ""])
    lines = first_screen(
        TITLE,
        question=f"{QUESTION} {WORDS}",
        result=[*_lost_in_words(runs), _settings_in_words(runs)],
        sure=f"{sure} ([what came later](#how-this-was-made)). The test is Student's t over bases; fewer than "
        f"{FEWEST_BASES} bases decide nothing. The p-values of abilities are corrected for five tests. The verdicts on "
        "the six settings are not corrected for their number.",
        repeat=repeat,
    )
    lines += ["## Setting by setting", "", *_verdicts(runs), ""]
    lines += [f"![What each setting changes, and what ordinary training keeps, with 95% intervals]({DIFFERENCES})", ""]
    if any(first_broken(runs, setting) for setting in SETTINGS):
        lines += [f"![Questions that were answered correctly before training, and not after]({PICTURE})", ""]
        lines += [CHOSEN, "", _descriptions_kept(runs), ""]
    for setting in (*_by_verdict(runs), ORDINARY_SETTING):
        lines += [*_kept(runs, setting), ""]
    made = [line for line in runs.made() if line]
    return "\n".join([*lines, *details(runs), *_shipped(runs), made[0], "", *made[1:], HISTORY, ""])


def _descriptions_kept(runs: ReadOnce) -> str:
    """In how many of the broken answers only the answer changed, and not the description before it."""
    parts = []
    for setting in (ORDINARY_SETTING, *_by_verdict(runs)):
        kept = [broken.keeps_description for of_base in broken_by_base(runs, setting) for broken in of_base]
        parts += [f"{sum(kept)} of {len(kept)} (`{setting.name}`)"] if kept else []
    return (
        "**Often the description stays the same, and only the answer after it turns wrong**, as from B to A: in "
        f"{', '.join(parts)} of all such questions. Results keep the answers to {NUM_KEPT} questions of each kind on "
        "each base. (Added after the results had been read.)"
    )


def _planned() -> Iterator[str]:
    yield "What will be compared, after minus before:"
    yield ""
    rows = [[setting.name, setting.differs, setting.measure] for setting in SETTINGS]
    yield markdown(["setting", "what differs", "compared"], rows, is_text=True)


def change_of(runs: ReadOnce, setting: FailureSetting) -> Paired | None:
    """What a setting is judged by: after minus before, over bases."""
    before, after = runs.finished(setting)
    unread = [{run: setting.unread(result) for run, result in results.items()} for results in (before, after)]
    values = ({run: setting.read(result) for run, result in results.items()} for results in (before, after))
    return paired(*values, unread=(unread[0], unread[1]))


def draw_kept(runs: ReadOnce) -> Figure | None:
    """Draw what settings are judged by, and the judged abilities after ordinary training; None until they are read."""
    if not runs.may_be_read:
        return None
    figure = new_figure(10.5, 4.0)
    left, right = figure.subplots(1, 2)
    draw_differences(left, {setting.name: change_of(runs, setting) for setting in _by_verdict(runs)})
    left.set_title("setting by setting, after minus before", fontsize=10)
    kept = _kept_changes(*runs.finished(ORDINARY_SETTING))
    draw_differences(right, {ability.name: change for ability, change in kept if ability.has_verdict})
    right.set_title("ordinary training: what it keeps, VCSD minus base", fontsize=10)
    figure.tight_layout()
    return figure


def _by_verdict(runs: ReadOnce) -> list[FailureSetting]:
    """Failures first."""

    def rank(setting: FailureSetting) -> int:
        return ORDER.index(_word(runs, setting))

    return sorted(SETTINGS, key=rank)


def _word(runs: ReadOnce, setting: FailureSetting) -> FailureVerdict:
    return verdict(change_of(runs, setting), needs_gain=setting.needs_gain)


def _verdicts(runs: ReadOnce) -> Iterator[str]:
    rows = [_verdict_row(runs, setting) for setting in _by_verdict(runs)]
    head = [
        "setting",
        "compared",
        "before",
        "after",
        "difference",
        "unread",
        "95% interval",
        "could show",
        "bases",
        "expected",
        "verdict",
    ]
    yield markdown(head, rows, is_text=True)
    yield ""
    yield (
        "VCSD fails if it does harm, or if the rules ask for a gain and the 90% interval lies within "
        f"{MARGIN:g} point of zero. " + _asked(runs) + _unread_of_all_kinds()
    )
    yield from ("", COULD_SHOW, "", MEASURES)


def _unread_of_all_kinds() -> str:
    """Which settings compare some kinds of questions, while unread answers are those of all kinds."""
    names = [f"`{setting.name}`" for setting in SETTINGS if setting.answers is not None]
    return (
        f" For {' and '.join(names)}, unread answers are counted over all kinds of questions, not only over the "
        "compared ones."
    )


def _verdict_row(runs: ReadOnce, setting: FailureSetting) -> list[str]:
    change = change_of(runs, setting)
    before, after = runs.finished(setting)
    both = [run for run in before if run in after]
    means = [f"{mean(setting.read(results[run]) for run in both):.1f}" if both else "" for results in (before, after)]
    ends = interval(change)
    word = verdict(change, needs_gain=setting.needs_gain)
    return [
        f"{setting.name}: {setting.differs}",
        setting.measure,
        *means,
        "" if change is None else f"{change.mean:+.1f}",
        "" if change is None or change.unread is None else unread_change(change.unread),
        "" if ends is None else f"{ends[0]:+.1f} to {ends[1]:+.1f}",
        _could_show(change),
        "0" if change is None else str(change.num_bases),
        setting.expected,
        f"**{word}**" if word.startswith("fails") else word,
    ]


def _could_show(change: Paired | None) -> str:
    """The smallest difference that as many bases would show; empty with a single base or none."""
    return "" if change is None or change.detectable is None else f"{change.detectable:.1f}"


def _asked(runs: ReadOnce) -> str:
    """For the kinds that training asked: the difference that the held-out kinds are compared with."""
    setting = next(each for each in SETTINGS if each.name == "other questions")
    change = change_of(runs, replace(setting, read=asked))
    return (
        ""
        if change is None
        else f"After training on colours only, right answers to the five kinds about colours change by {change}."
    )


def _kept(runs: ReadOnce, setting: FailureSetting) -> Iterator[str]:
    """The abilities before and after, in one setting."""
    before, after = runs.finished(setting)
    yield from (f"## {setting.name.capitalize()}: what it keeps", "")
    if not set(before) & set(after):
        yield "No base has both results."
        return
    rows = [_ability_row(ability, change, before, after) for ability, change in _kept_changes(before, after)]
    head = [
        "ability",
        setting.before,
        setting.after,
        "difference",
        "unread",
        "95% interval",
        "could show",
        "p (Holm for five)",
        "verdict",
    ]
    yield markdown(head, rows)


def _kept_changes(
    before: Mapping[Run, CellResult], after: Mapping[Run, CellResult]
) -> Iterator[tuple[Ability, Paired]]:
    """The change of each ability; the p of the judged ones is corrected for their number."""
    changes = [_kept_change(ability, before, after) for ability in ABILITIES]
    judged = [change for ability, change in zip(ABILITIES, changes, strict=True) if ability.has_verdict and change]
    corrected = iter(holm(judged, num_planned=sum(ability.has_verdict for ability in ABILITIES)))
    for ability, change in zip(ABILITIES, changes, strict=True):
        if change is not None:
            yield ability, next(corrected) if ability.has_verdict else change


def lost_abilities(runs: ReadOnce) -> list[str]:
    """What is lost by the rules, setting by setting, the ordinary one first."""
    return [
        f"{setting.name}: {ability.name} {with_interval(change)}"
        for setting in (ORDINARY_SETTING, *SETTINGS)
        for ability, change in _kept_changes(*runs.finished(setting))
        if ability.has_verdict and keeps(change) == "lost"
    ]


def _lost_in_words(runs: ReadOnce) -> Iterator[str]:
    """What is lost comes before everything else."""
    lost = lost_abilities(runs)
    said = "; ".join(map(after_training, lost))
    yield f"**Abilities lost by the rules, in points: {said}.**" if lost else "No ability is lost by the rules."
    if falls := _unclear_falls(runs):
        yield (
            "Undecided after the correction for five abilities, although the 95% interval lies below zero: "
            f"{'; '.join(map(after_training, falls))}. (This line was added after the results had been read.)"
        )


def after_training(fall: str) -> str:
    """Say the fall of an ability as a phrase.

    >>> after_training("ordinary: text only -7.93"), after_training("cannot see: pass@8 -6.25")
    ('text only -7.93, after ordinary training', 'pass@8 -6.25, in the setting `cannot see`')
    """
    setting, _, ability = fall.partition(": ")
    where = "after ordinary training" if setting == ORDINARY_SETTING.name else f"in the setting `{setting}`"
    return f"{ability}, {where}"


def _settings_in_words(runs: ReadOnce) -> str:
    """The settings by verdict, failures first."""
    words: dict[str, list[str]] = {"fails": []}
    for setting in _by_verdict(runs):
        words.setdefault(_word(runs, setting).partition(":")[0], []).append(setting.name)
    parts = [f"{word} in {', '.join(f'`{name}`' for name in names) or 'none'}" for word, names in words.items()]
    return f"Verdicts on the six settings: {'; '.join(parts)} ([table](#setting-by-setting))."


def _unclear_falls(runs: ReadOnce) -> list[str]:
    """The judged abilities whose interval lies below zero, and that are not lost after the correction."""
    falls = []
    for setting in (ORDINARY_SETTING, *SETTINGS):
        for ability, change in _kept_changes(*runs.finished(setting)):
            ends = interval(change)
            if ability.has_verdict and keeps(change) == "undecided" and ends is not None and ends[1] < 0:
                falls.append(f"{setting.name}: {ability.name} {with_interval(change)}")
    return falls


def _kept_change(ability: Ability, before: Mapping[Run, CellResult], after: Mapping[Run, CellResult]) -> Paired | None:
    """The change of an ability, with that in unread answers if the ability is read from answers."""
    values = (_values(ability, results) for results in (before, after))
    if ability.answers is None:
        return paired(*values)
    unread = [
        {run: unread_of(result, ability.answers) for run, result in results.items()} for results in (before, after)
    ]
    return paired(*values, unread=(unread[0], unread[1]))


def _values(ability: Ability, results: Mapping[Run, CellResult]) -> dict[Run, float]:
    values = {run: ability.read(result["abilities"]) for run, result in results.items()}
    return {run: value for run, value in values.items() if value is not None}


def _ability_row(
    ability: Ability, change: Paired, before: Mapping[Run, CellResult], after: Mapping[Run, CellResult]
) -> list[str]:
    first, second = (_values(ability, results) for results in (before, after))
    both = [run for run in first if run in second]
    ends = interval(change)
    digits, word = ability.digits, keeps(change) if ability.has_verdict else ""
    return [
        ability.name if len(both) == len(before) else f"{ability.name} ({change.num_bases} bases)",
        *(f"{mean(values[run] for run in both):.{digits}f}" for values in (first, second)),
        f"{change.mean:+.{digits}f}",
        "" if change.unread is None else unread_change(change.unread),
        "" if ends is None else f"{ends[0]:+.{digits}f} to {ends[1]:+.{digits}f}",
        _could_show(change) if ability.has_verdict else "",
        shown_p(change.p).removeprefix("= ") if ability.has_verdict and change.p is not None else "",
        f"**{word}**" if word == "lost" else word,
    ]


def _shipped(runs: ReadOnce) -> Iterator[str]:
    """The runs on shipped bases, without a verdict."""
    yield from ("## The shipped bases, without a verdict", "")
    judged = [ability for ability in ABILITIES if ability.has_verdict]
    rows = []
    for run, result in runs.shipped.items():
        if result is not None:
            values = [ability.read(result["abilities"]) for ability in judged]
            numbers = ["" if value is None else f"{value:.1f}" for value in values]
            rows.append([f"{result['group']}, {run.variant.name}", f"{result['acc']:.1f}", *numbers])
    yield markdown(["", "Acc", *(ability.name for ability in judged)], rows)
    yield ""
