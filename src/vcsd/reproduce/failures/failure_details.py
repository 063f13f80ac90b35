"""What the verdicts of the failures page average away: single bases, kinds of questions, and what fell first.

These tables were added after the results had been read. They describe; no verdict rests on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.failures.failure_settings import ABILITIES, ORDINARY_SETTING, SETTINGS
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import interval, paired
from vcsd.world.questions.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vcsd.reproduce.failures.failure_runs import ReadOnce
    from vcsd.reproduce.failures.failure_settings import FailureSetting
    from vcsd.reproduce.paired_runs import Run

NUM_LOSSES = 8
"""How many of the largest losses of an ability on one base are listed."""

ALL_SETTINGS = (ORDINARY_SETTING, *SETTINGS)


def details(runs: ReadOnce) -> Iterator[str]:
    """The part of the page with single bases and kinds of questions."""
    yield from ("## What the averages hide", "")
    yield "Added after the results had been read; no verdict rests on it. After minus before, base by base:"
    yield from ("", _base_by_base(runs), "")
    yield "The largest losses of an ability on one base:"
    yield from ("", _largest_losses(runs), "")
    yield (
        "Right answers by kind of question, after minus before, mean over bases (32 questions of a kind on each). "
        "Bold: the 95% interval lies below zero, not corrected for the number of kinds."
    )
    yield from ("", _kinds(runs), "")


def _pairs(runs: ReadOnce, setting: FailureSetting) -> list[Run]:
    """The bases and seeds with both results."""
    before, after = runs.finished(setting)
    return [run for run in before if run in after]


def _base_by_base(runs: ReadOnce) -> str:
    """The difference that a setting is judged by, for every base; a column is a pre-training seed."""
    seeds = sorted({runs.runs.listed.bases[name].seed for setting in ALL_SETTINGS for name, _ in _pairs(runs, setting)})
    rows = []
    for setting in ALL_SETTINGS:
        before, after = runs.finished(setting)
        gains = {
            runs.runs.listed.bases[run[0]].seed: setting.read(after[run]) - setting.read(before[run])
            for run in _pairs(runs, setting)
        }
        numbers = [f"{gains[seed]:+.1f}" if seed in gains else "" for seed in seeds]
        rows.append([f"{setting.name}, {setting.measure}", *numbers])
    return markdown(["", *(f"base {seed}" for seed in seeds)], rows)


def _largest_losses(runs: ReadOnce) -> str:
    """Judged abilities that fell most, one base at a time."""
    losses = []
    for setting in ALL_SETTINGS:
        before, after = runs.finished(setting)
        for ability in (each for each in ABILITIES if each.has_verdict):
            for run in _pairs(runs, setting):
                first, last = (ability.read(results[run]["abilities"]) for results in (before, after))
                if first is not None and last is not None:
                    gain = setting.read(after[run]) - setting.read(before[run])
                    losses.append((last - first, setting, ability.name, run[0], first, last, gain))
    worst = sorted(losses, key=lambda loss: loss[0])[:NUM_LOSSES]
    rows = [
        [setting.name, name, base, f"{first:.1f}", f"{last:.1f}", f"{loss:+.1f}", f"{gain:+.1f} ({setting.measure})"]
        for loss, setting, name, base, first, last, gain in worst
    ]
    head = ["setting", "ability", "base", "before", "after", "difference", "what the setting is judged by"]
    return markdown(head, rows, is_text=True)


def _kinds(runs: ReadOnce) -> str:
    """Right answers to each kind of question."""
    rows = [[kind, *(_kind_change(runs, setting, kind) for setting in ALL_SETTINGS)] for kind in KINDS]
    return markdown(["", *(setting.name for setting in ALL_SETTINGS)], rows)


def _kind_change(runs: ReadOnce, setting: FailureSetting, kind: str) -> str:
    before, after = (
        {run: result["abilities"]["kinds"][kind] for run, result in results.items()}
        for results in runs.finished(setting)
    )
    change = paired(before, after)
    if change is None:
        return ""
    ends = interval(change)
    text = f"{change.mean:+.1f}"
    return f"**{text}**" if ends is not None and ends[1] < 0 else text
