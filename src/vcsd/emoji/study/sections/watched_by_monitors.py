"""What the monitors saw of counting and presence while runs trained, and what the contrast does to number words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.emoji.study.key_monitor import KEYS
from vcsd.emoji.study.sections.language_tables import bullet
from vcsd.emoji.study.settle import (
    AROUND,
    FIRST_STEPS,
    MARGIN,
    MOST_LOST,
    Counted,
    is_broken,
    seen_in_time,
    why_broken,
)
from vcsd.monitor.lines import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from vcsd.emoji.study.sections.language_tables import Results
    from vcsd.emoji.study.study_list import EmojiRun


_LAST = 10
"""Steps at the end of a run whose deciding words are compared with those of its first steps."""


def watched_by_monitors(results: Results, out: Path) -> Iterator[str]:
    """The sections of the page about counting, presence and number words."""
    yield from _counting(results, out)
    yield from _presence(results, out)
    yield from _numbers(results)


def _counting(results: Results, out: Path) -> Iterator[str]:
    yield "## Counting, and what the monitors saw"
    yield ""
    yield from bullet(
        "`flips`: the share of number words at which the contrast changed the most likely token, in the first and the "
        "last ten steps."
    )
    yield from bullet("`alarm`: the first alarm of the run's guard, and of a guard for counting alone, without labels.")
    yield from bullet(
        "`why`, for runs that break counting: `contrast` for VCSD if its target is wrong before any training, by more "
        f"than {MARGIN:g} points, else `training`. The target is that of VCSD with beta 0.1, also for runs with "
        "another beta, so `training` does not clear the contrast of those."
    )
    yield from bullet(
        f"`in time`: whether an alarm came before {MOST_LOST:g} points were lost among the rollouts. The loss is the "
        f"mean from {AROUND} steps before the alarm to {AROUND} after it, against the first {FIRST_STEPS} steps. An "
        "alarm in the last steps of a run is in time by this rule, but of no use."
    )
    yield ""
    yield f"Runs on `dev` are shown at their end, after {_longest(results)} steps."
    yield ""
    yield from _watched_runs(results, out, "count")


def _longest(results: Results) -> int:
    return max(run.setting.steps for run in results if run.setting is not None)


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
    yield "The percentage of counting questions whose most likely number is the true one: with the picture, with the"
    yield "black picture, and in VCSD's target. `black prefers` counts what the most likely number is with the black"
    yield "picture, and `pushed` is the mean contrast of wrong numbers, in nats."
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
