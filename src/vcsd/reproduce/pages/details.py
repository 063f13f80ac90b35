"""What an experiment measures besides accuracy: learning curves, drift, contrast by word, cost, and the guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from vcsd.evaluation.scoring.compare import spread
from vcsd.monitor.guard import SIGNALS, Guard
from vcsd.reproduce.cell_result import CONTROLS, CurvePoint, GuardSteps
from vcsd.reproduce.experiments import BASE
from vcsd.reproduce.pages.tables import markdown, variants_of
from vcsd.reproduce.paired_runs import shown
from vcsd.reproduce.results import curves_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vcsd.reproduce.cell_result import CellResult, ProfileName
    from vcsd.reproduce.experiments import Experiment, Variant
    from vcsd.reproduce.results import Results

LOSS_ALLOWED = 5.0
"""Points that a run may lose before the guard must have stopped it."""

_COUNTS: tuple[Literal["unresolved", "truncated"], ...] = ("unresolved", "truncated")


def detail_tables(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """All tables for which an experiment has results."""
    yield from _curves(experiment, results, group)
    for name, tables in (("main", _words), ("anchor", _drift), ("pmi", _pmi), ("decoding", _cost)):
        if experiment.name == name:
            yield from tables(experiment, results, group)
    yield from _health(experiment, results, group)


def _mean(values: Sequence[float], digits: int = 2) -> str:
    return shown(spread(list(values)), digits=digits) if values else ""


def _curves(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """Acc over training."""
    curves = {variant.name: curves_of(results, variant, group).values() for variant in experiment.variants}
    steps = sorted({step for several in curves.values() for curve in several for step in curve})
    rows = [
        [name, *(_mean([curve[step] for curve in several if step in curve], 1) for step in steps)]
        for name, several in curves.items()
    ]
    if steps:
        yield from ("Acc over training, by step:", "", markdown(["step", *map(str, steps)], rows), "")
        yield from _unread_over_training(experiment, results, group, steps)


def _unread_over_training(experiment: Experiment, results: Results, group: str, steps: Sequence[int]) -> Iterator[str]:
    """The share of unread answers at the points of the curves."""
    rows = []
    for variant in experiment.variants:
        finished = results.finished(variant, group).values()
        shares = [
            (point["step"], 100 * point["unresolved"] / result["num_questions"])
            for result in finished
            for point in result.get("curve", ())
            if "unresolved" in point
        ]
        if shares:
            at = {step: [share for place, share in shares if place == step] for step in steps}
            rows.append([variant.name, *(_mean(at[step], 1) for step in steps)])
    if rows:
        yield from ("Unread answers over training, %, by step:", "", markdown(["step", *map(str, steps)], rows), "")
    else:
        yield from ("How many answers were unread along these curves was not recorded. Those of the last step:", "")


def _words(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """Figure 6: the contrast word by word."""
    which: tuple[ProfileName, ...] = ("profile", "profile_of_wrong")
    reads = [contrast_of(profile, words) for profile in which for words in ("seen", "other")]
    rows = []
    for variant in variants_of(experiment, results, group):
        columns = [list(results.values(variant, group, read).values()) for read in reads]
        if any(columns):
            rows.append([variant.name, *(_mean(values) for values in columns)])
    if rows:
        head = ["", "right, visual words", "right, other words", "wrong, visual words", "wrong, other words"]
        yield (
            "Contrast in nats (Figure 6) on the base's right and wrong answers; all models score the same answers. "
            "Visual words name what a picture shows: shapes, colours, numbers, directions, yes and no."
        )
        yield from ("", markdown(head, rows), "")


def contrast_of(profile: ProfileName, words: str) -> Callable[[CellResult], float | None]:
    """Reads the mean contrast of visual ("seen") or other words from a result."""
    return lambda result: result.get(profile, {}).get(words)


def contrast_of_all(words: str) -> Callable[[CellResult], float | None]:
    """Reads the mean contrast of visual ("seen") or other words in all answers, right and wrong together."""

    def read(result: CellResult) -> float | None:
        parts = [result.get("profile"), result.get("profile_of_wrong")]
        pairs = [(part[words], part[f"num_{words}"]) for part in parts if part and words in part]
        total = sum(num for _, num in pairs)
        return sum(value * num for value, num in pairs) / total if total else None

    return read


def drift_of(result: CellResult) -> float | None:
    """The share of rollouts in another script, in percent, averaged over training."""
    values = [value for value in result.get("series", {}).get("language_drift", []) if value is not None]
    return 100.0 * sum(values) / len(values) if values else None


def _drift(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    rows = [
        [variant.name, _mean(list(results.values(variant, group, drift_of).values()))]
        for variant in experiment.variants
    ]
    yield from (markdown(["", "rollouts in another script, %, mean over training"], rows), "")


def _pmi(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    runs = [result["pmi"] for result in results.finished(experiment.variants[0], group).values()]
    names = {"correlation": "r", "rank_correlation": "rank r", "same_sign": "same sign", "same_choice": "same choice"}
    names["mean_gap"] = "mean gap, nats"
    rows = []
    for control in CONTROLS:
        measures = [run[control] for run in runs if control in run]
        if measures:
            rows.append([control.replace("_", " "), *(_mean([run[name] for run in measures]) for name in names)])
    if rows:
        yield "How well the contrast under each control matches the mutual information, on plausible tokens:"
        yield from ("", markdown(["control", *names.values()], rows), "")


def _cost(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    for variant in experiment.variants:
        cells = {result["key"]: result for result in results.finished(variant, group).values()}  # seeds share a cell
        ratios = [result["cost"]["ratio"] for result in cells.values() if "cost" in result]
        if ratios:
            yield (
                f"Contrast decoding took {_mean(ratios)} times as long as plain decoding, "
                "with several runs sharing the machine."
            )
            yield ""


def _health(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """Answers that could not be read or were cut off, the guard's verdicts, and seconds."""
    rows = []
    for variant in variants_of(experiment, results, group):
        finished = list(results.finished(variant, group).values())
        guards = [guard_of(result) for result in finished if "guard" in result]
        seconds = [result["training_seconds"] for result in finished if "training_seconds" in result]
        rows.append(
            [
                variant.name,
                *(_mean([100 * result[name] / result["num_questions"] for result in finished], 1) for name in _COUNTS),
                _first_of([guard["warn"] for guard in guards]),
                _first_of([guard["stop"] for guard in guards]),
                _mean(seconds, 0),
            ]
        )
    if rows:
        head = ["", "unread, %", "cut off, %", "guard warned", "guard would have stopped", "training, s"]
        yield (
            "Answers that could not be read or were cut off, the guard, and seconds of training without evaluation, "
            "mean ± standard deviation over runs. Machines differ between runs, so seconds do not compare speed:"
        )
        yield from ("", markdown(head, rows), "")
    yield from _unread(experiment, results, group)


def _as_code(text: str) -> str:
    """Format a text as code on one line of a page.

    >>> _as_code("`red`\\n or so")
    "`'red' or so`"
    """
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"


def _unread(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """For each variant, an unread answer of the run that has the most."""
    for variant in variants_of(experiment, results, group):
        with_unread = [result for result in results.finished(variant, group).values() if result.get("unread")]
        if with_unread:
            worst = max(with_unread, key=lambda result: result["unresolved"])
            yield f"Example of an unread answer ({variant.name}): {_as_code(worst['unread'][0])}"
            yield ""


def _first_of(steps: Sequence[int | None]) -> str:
    """In how many runs the guard acted, and at which step first.

    >>> _first_of([None, 40, 31]), _first_of([None]), _first_of([])
    ('2 of 3, first at step 31', '0 of 1', '')
    """
    acted = [step for step in steps if step is not None]
    if not steps:
        return ""
    return f"{len(acted)} of {len(steps)}" + (f", first at step {min(acted)}" if acted else "")


def guard_of(result: CellResult) -> GuardSteps:
    """What the present guard says about a run: the first steps at which it warns and stops, and Acc at the stop.

    The guard's thresholds are not part of a cell's name, so it judges the recorded metrics again.
    """
    recorded = result["guard"]
    series = result.get("series", {})
    if not any(signal.metric in series for signal in SIGNALS):
        return recorded
    guard, first = Guard(), dict[str, int]()
    for step, values in enumerate(zip(*series.values(), strict=True), 1):
        known = {name: value for name, value in zip(series, values, strict=True) if value is not None}
        first.setdefault(guard.judge(step, known).action, step)
    stop = first.get("stop")
    acc = recorded.get("acc_at_stop") if stop == recorded.get("stop") else None
    return {"warn": first.get("warn"), "stop": stop, "acc_at_stop": acc}


def guard_lines(healthy: Variant, collapsing: Variant, results: Results) -> Iterator[str]:
    """Whether the guard leaves healthy runs alone and stops the runs without support in time, one line each."""
    for group in results.ordinary:
        if finished := results.finished(healthy, group):
            stopped = [f"{base} seed {seed}" for (base, seed), result in finished.items() if guard_of(result)["stop"]]
            verdict = f"it would have stopped {', '.join(stopped)}." if stopped else "it stops none."
            yield f"- {group}, healthy runs ({healthy.name}, {len(finished)}): {verdict}"
    start = results.acc(BASE, results.smallest)
    for (base, seed), result in results.finished(collapsing, results.smallest).items():
        yield f"- {base}, seed {seed}, {collapsing.name}: {guard_line(result, start.get((base, seed)))}"


def guard_line(result: CellResult, start: float | None = None) -> str:
    """How much a run had lost when the guard would have stopped it, against its best point until then or its base.

    >>> points = [{"step": 30, "acc": 50.0}, {"step": 60, "acc": 48.0}, {"step": 90, "acc": 20.0}]
    >>> guard_line({"guard": {"warn": 40, "stop": 55, "acc_at_stop": 49.0}, "curve": points})
    'best 50.0 at step 30, last 20.0 at step 90; stopped at step 55 with 1.0 points lost: in time'

    A result without a score at that step is judged by the next point, which is later.
    """
    first: list[CurvePoint] = [] if start is None else [{"step": 0, "acc": start, "scores": {}}]
    curve = [*first, *result["curve"]]
    guard = guard_of(result)
    stop = guard["stop"]
    best, last = max(curve, key=lambda point: point["acc"]), curve[-1]
    course = f"best {best['acc']:.1f} at step {best['step']}, last {last['acc']:.1f} at step {last['step']}"
    if stop is None:
        fell = best["acc"] - last["acc"] > LOSS_ALLOWED
        return f"{course}; not stopped" + (": too late" if fell else ", and it did not lose 5 points")
    after, by_then = next((point for point in curve if point["step"] >= stop), last), ""
    if (acc := guard.get("acc_at_stop")) is not None:
        after = {"step": stop, "acc": acc, "scores": {}}
    elif after["step"] > stop:
        by_then = f" by step {after['step']}"
    before = max((point["acc"] for point in curve if point["step"] <= after["step"]), default=after["acc"])
    lost = max(0.0, before - after["acc"])
    verdict = "in time" if lost <= LOSS_ALLOWED else "perhaps too late" if by_then else "too late"
    return f"{course}; stopped at step {stop} with {lost:.1f} points lost{by_then}: {verdict}"
