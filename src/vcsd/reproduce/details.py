"""What an experiment measures beside accuracy: its course, drift, words, mutual information, cost, and the guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.evaluation.compare import spread
from vcsd.monitor.guard import SIGNALS, Guard
from vcsd.reproduce.experiments import BASE
from vcsd.reproduce.statistics import shown
from vcsd.reproduce.tables import markdown, variants_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vcsd.reproduce.experiments import Experiment, Variant
    from vcsd.reproduce.results import Results

LOSS_ALLOWED = 5.0
"""Points that a run may lose before the guard must have stopped it."""

CONTROLS = ("black", "noise", "blur", "no_image")


def detail_tables(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """Every table that an experiment's results have something for."""
    yield from _curves(experiment, results, group)
    for name, tables in (("main", _words), ("anchor", _drift), ("pmi", _pmi), ("decoding", _cost)):
        if experiment.name == name:
            yield from tables(experiment, results, group)
    yield from _health(experiment, results, group)


def _mean(values: Sequence[float], digits: int = 2) -> str:
    return shown(spread(list(values)), digits=digits) if values else ""


def _curves(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """Acc over training."""
    rows, every = {}, set()
    for variant in experiment.variants:
        curves = [
            {point["step"]: point["acc"] for point in result.get("curve", ())}
            for result in results.found(variant, group).values()
        ]
        rows[variant.name] = curves
        every |= {step for curve in curves for step in curve}
    if not every:
        return
    steps = sorted(every)
    cells = [
        [name, *(_mean([curve[step] for curve in curves if step in curve], 1) for step in steps)]
        for name, curves in rows.items()
    ]
    yield from ("Acc over training, by step:", "", markdown(["step", *map(str, steps)], cells), "")


def _words(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """Figure 6: the contrast word by word."""
    columns = [(which, kind) for which in ("profile", "profile_of_wrong") for kind in ("seen", "other")]

    def read(which: str, kind: str) -> Callable[[dict[str, Any]], Any]:
        return lambda result: result.get(which, {}).get(kind)

    rows = []
    for variant in variants_of(experiment, results, group):
        found = [list(results.values(variant, group, read(*column)).values()) for column in columns]
        if any(found):
            rows.append([variant.name, *(_mean(values) for values in found)])
    if rows:
        head = ["", "right, what is seen", "right, other words", "wrong, what is not there", "wrong, other words"]
        yield "Contrast in nats (Figure 6), on right and wrong answers of the base, the same under every model:"
        yield from ("", markdown(head, rows), "")


def drift_of(result: dict[str, Any]) -> float | None:
    """The share of rollouts in another script, in percent, on average over training."""
    values = [value for value in result.get("series", {}).get("language_drift", []) if value is not None]
    return 100.0 * sum(values) / len(values) if values else None


def _drift(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    rows = [
        [variant.name, _mean(list(results.values(variant, group, drift_of).values()))]
        for variant in experiment.variants
    ]
    yield from (markdown(["", "rollouts that drift, % over training"], rows), "")


def _pmi(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    found = [result["pmi"] for result in results.found(experiment.variants[0], group).values()]
    names = {"correlation": "r", "rank_correlation": "rank r", "same_sign": "same sign", "same_choice": "same choice"}
    rows = []
    for control in CONTROLS:
        each = [one[control] for one in found if control in one]
        if each:
            rows.append(
                [control.replace("_", " "), *(_mean([one[name] for one in each]) for name in (*names, "mean_gap"))]
            )
    if rows:
        yield "The contrast under each control beside the mutual information, on plausible tokens:"
        yield from ("", markdown(["control", *names.values(), "mean gap, nats"], rows), "")


def _cost(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    for variant in experiment.variants:
        cells = {each["key"]: each for each in results.found(variant, group).values()}  # one for all seeds of a base
        found = [each["cost"] for each in cells.values() if "cost" in each]
        if found:
            ratios = _mean([each["ratio"] for each in found])
            yield from (f"Contrast decoding took {ratios} times as long as plain decoding, runs side by side.", "")


def _health(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """Answers that could not be read or were cut, what the guard said, and seconds."""
    rows = []
    for variant in variants_of(experiment, results, group):
        found = list(results.found(variant, group).values())
        guards = [guard_of(each) for each in found if "guard" in each]
        seconds = [each["training_seconds"] for each in found if "training_seconds" in each]
        rows.append(
            [
                variant.name,
                *(_mean([100 * each[name] / each["num_questions"] for each in found], 1) for name in _COUNTS),
                *(_said([guard[word] for guard in guards]) for word in ("warn", "stop")),
                _mean(seconds, 0),
            ]
        )
    if rows:
        head = ["", "unread, %", "cut, %", "guard warned", "guard would have stopped", "training, s"]
        yield "Answers that no rule reads or that were cut, what the guard said, seconds of training without exams:"
        yield from ("", markdown(head, rows), "")
    yield from _unread(experiment, results, group)


def _as_code(text: str) -> str:
    """Any text as code on one line of a page.

    >>> _as_code("`red`\\n or so")
    "`'red' or so`"
    """
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"


def _unread(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """An answer that no rule reads, of the run of each variant that has the most of them."""
    for variant in variants_of(experiment, results, group):
        found = [each for each in results.found(variant, group).values() if each.get("unread")]
        if found:
            most = max(found, key=lambda each: int(each["unresolved"]))
            yield f"Unread, {variant.name}, such as: {_as_code(most['unread'][0])}"
            yield ""


_COUNTS = ("unresolved", "truncated")


def _said(steps: Sequence[int | None]) -> str:
    """In how many runs the guard spoke, and when first.

    >>> _said([None, 40, 31]), _said([None]), _said([])
    ('2 of 3, first at step 31', '0 of 1', '')
    """
    spoke = [step for step in steps if step is not None]
    if not steps:
        return ""
    return f"{len(spoke)} of {len(steps)}" + (f", first at step {min(spoke)}" if spoke else "")


def guard_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """What today's guard says of a run: the steps at which it first warns and stops, and the score at the latter.

    Its thresholds are no part of a cell's name, so it judges the course of the metrics anew.
    """
    recorded: dict[str, Any] = result["guard"]
    series: Mapping[str, list[float | None]] = result.get("series", {})
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
    """Whether the guard stops the run without support in time, and leaves healthy runs alone; a line each."""
    for group in results.ordinary:
        if fine := results.found(healthy, group):
            stopped = [f"{base} seed {seed}" for (base, seed), result in fine.items() if guard_of(result)["stop"]]
            said = f"it would have stopped {', '.join(stopped)}." if stopped else "it stopped none."
            yield f"- {group}, healthy runs ({healthy.name}, {len(fine)}): {said}"
    start = results.acc(BASE, results.smallest)
    for (base, seed), result in results.found(collapsing, results.smallest).items():
        yield f"- {base}, seed {seed}, {collapsing.name}: {guard_line(result, start.get((base, seed)))}"


def guard_line(result: dict[str, Any], start: float | None = None) -> str:
    """What a run had lost when the guard would have stopped it, compared with its best point before, or its base.

    >>> points = [{"step": 30, "acc": 50.0}, {"step": 60, "acc": 48.0}, {"step": 90, "acc": 20.0}]
    >>> guard_line({"guard": {"warn": 40, "stop": 55, "acc_at_stop": 49.0}, "curve": points})
    'best 50.0 at step 30, last 20.0 at step 90; stopped at step 55, when 1.0 points were lost: in time'

    A result without a score at that very step is judged by the next point, which is later.
    """
    curve = [*([] if start is None else [{"step": 0, "acc": start}]), *result["curve"]]
    guard = guard_of(result)
    stop = guard["stop"]
    best, last = max(curve, key=lambda point: point["acc"]), curve[-1]
    said = f"best {best['acc']:.1f} at step {best['step']}, last {last['acc']:.1f} at step {last['step']}"
    if stop is None:
        fell = best["acc"] - last["acc"] > LOSS_ALLOWED
        return f"{said}; not stopped" + (": too late" if fell else ", and it did not lose 5 points")
    after, when = next((point for point in curve if point["step"] >= stop), last), "when"
    if (acc := guard.get("acc_at_stop")) is not None:
        after = {"step": stop, "acc": acc}
    elif after["step"] > stop:
        when = f"and by step {after['step']}"
    before = max((point["acc"] for point in curve if point["step"] <= after["step"]), default=after["acc"])
    lost = max(0.0, before - after["acc"])
    word = "in time" if lost <= LOSS_ALLOWED else "too late" if when == "when" else "perhaps too late"
    return f"{said}; stopped at step {stop}, {when} {lost:.1f} points were lost: {word}"
