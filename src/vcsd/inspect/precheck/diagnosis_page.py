"""The page of a pre-check, its JSON, and the verdict: what was measured, and what that is worth."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from statistics import mean, median
from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.inspect.precheck.calibration import (
    LARGE_GAIN,
    PAPER_GAINS,
    among_large_gains,
    best_predictor,
    beyond_decoding,
    calibrated,
    expected_gain,
    misses,
    typical_miss,
    unseen,
)
from vcsd.report import parts
from vcsd.report.chart import ShareBar, bar_chart
from vcsd.report.markup import Html, text
from vcsd.report.page import Page, PageSection
from vcsd.report.parts import Answer, Case, Tile, plain_table, signed, unread_note
from vcsd.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.inspect.precheck.calibration import Pair
    from vcsd.inspect.precheck.diagnosis import Diagnosis, ExampleStatistics
    from vcsd.types import Example

MOST_CASES = 4
"""The number of examples shown: the most visual ones, and the least visual ones."""

MOST_CATEGORIES = 30
"""The most categories in the tables, the largest first; the JSON file has all."""

FEWEST_FOR_INTERVAL = 10
"""The fewest examples with which a category gets an interval."""

INTERVAL = "95%"

BINS = (-4.0, -2.0, -1.0, -0.5, -0.1, 0.1, 0.5, 1.0, 2.0, 4.0)
"""Edges of the histogram of contrasts, in nats."""

SIZES = (1, 2, 3, 6, 21)
"""Where the bars of the support begin."""

NAMES = {"image": "plain", "control": "control", "contrast": "contrast"}

CALIBRATION_NOTE = (
    "The tables show, in points of accuracy, what training gained for each base, and what the gain of contrast "
    "decoding and the other bases of the calibration predicted."
)


def verdict(diagnosis: Diagnosis) -> str:
    """Describe what contrast decoding gains here, what training is expected to gain, and why to doubt that forecast.

    `grounds` has the numbers behind the doubts.
    """
    gain = diagnosis.decoding_gain()
    if gain is None:
        return (
            "No verdict: the data has no answers, and without them no statistic predicts the gain of training well "
            "enough. Add an answer column to some rows."
        )
    expected = expected_gain(gain[0], (gain[2] - gain[1]) / 2)
    ends = f"95%: {signed(gain[1])} to {signed(gain[2])}"
    notes = "; ".join(note for note in (ends, unread_note(diagnosis.decoding_unread())) if note)
    return (
        f"Contrast decoding gains {signed(gain[0])} points here ({notes}). If training does for this model what it did "
        f"for {len(calibrated())} tiny bases, it gains {signed(expected.value)} points (95%: {signed(expected.low)} to "
        f"{signed(expected.high)}). For a real model, take this as an indication, not as a forecast{_doubts()}."
    )


def _doubts() -> str:
    """Return the calibration's reasons to doubt the forecast, as clauses; an empty string without any."""
    (low, high), test, doubts = PAPER_GAINS, unseen(), []
    if typical_miss() > low:
        doubts.append(f"it cannot tell a gain of the paper's size ({low:g} to {high:g} points) from none")
    if test is not None and not test.is_better:
        doubts.append(f"on {len(test.pairs)} bases that it had not seen, it was no better than a constant")
    return f": {', and '.join(doubts)}" if doubts else ""


def grounds() -> list[str]:
    """Return what the forecast rests on and how far off it was, in a few sentences."""
    predictor = best_predictor()
    return [
        f"It is calibrated on {len(calibrated())} bases of the offline world: tiny models, {_families()}, with "
        f"synthetic pictures. In training, {_lost()}.",
        f"Training gained {_more()} (correlation {predictor.correlation:+.2f}, 95%: {predictor.low:+.2f} to "
        f"{predictor.high:+.2f}{_large_gains()}).",
        f"When each base was predicted from the others, the typical miss was {typical_miss():.1f} points and the worst "
        f"{signed(misses()[0][3])}.",
        *_tested(),
    ]


def _more() -> str:
    """How much more training gained than contrast decoding, over the calibrated bases: median and mean."""
    rest = beyond_decoding(calibrated())
    of_median, of_mean = (
        f"{abs(more):.1f} points {'more' if more > 0 else 'less'}" for more in (median(rest), mean(rest))
    )
    return f"{of_median} than contrast decoding in the median, and {of_mean} on average"


def _large_gains() -> str:
    """The correlation among bases that gained much, where doses do not set them apart."""
    own = among_large_gains()
    if own is None:
        return ""
    ends = f"95%: {own.low:+.2f} to {own.high:+.2f}"
    return f"; {own.correlation:+.2f}, {ends}, among the {own.num_bases} that gained more than {LARGE_GAIN:g} points"


def _tested() -> list[str]:
    """Compare the forecast with a constant on bases that its calibration had not seen; empty without a test."""
    test = unseen()
    if test is None:
        return []
    gains = [gain for _, gain in test.pairs.values()]
    return [
        f"On {len(gains)} bases that the calibration had not seen, which gained {signed(min(gains))} to "
        f"{signed(max(gains))} points, it was {'better' if test.is_better else 'no better'} than a constant: off by "
        f"{test.typical_miss:.2f} points typically (correlation {test.correlation:+.2f}), where always saying "
        f"{test.constant:+.2f}, the mean gain of {len(test.earlier)} earlier bases, is off by "
        f"{test.typical_miss_of_constant:.2f}."
    ]


def _families() -> str:
    num_others = sum(not name.startswith("qwen3_vl") for name in calibrated())
    return "all of one family" if not num_others else f"all but {num_others} of one family"


def _lost() -> str:
    """How many of the calibrated bases training harmed."""
    num_lost = sum(training < 0 for _, training in calibrated().values())
    return f"{num_lost} of them lost accuracy" if num_lost else "all of them gained"


def rows_of(diagnosis: Diagnosis) -> list[list[str]]:
    """Return every statistic with its meaning, for tables on the page and in the terminal."""
    accuracies = {view: diagnosis.accuracy(view) for view in NAMES}
    length = {view: mean(one.num_tokens[view] for one in diagnosis.examples) for view in NAMES}
    same = diagnosis.mean("same_without_image")
    change = diagnosis.length_change()
    rows = [
        ["examples", str(len(diagnosis.examples)), _skipped(diagnosis)],
        ["contrast", f"{diagnosis.contrast():+.4f} nats", "mean over the tokens of the answers"],
        ["largest contrast", f"{diagnosis.mean('largest_contrast'):+.4f} nats", "of an answer's most visual token"],
        ["support", f"{diagnosis.mean('support_size'):.3f}", "plausible candidates per token"],
        ["entropy", f"{diagnosis.mean('entropy'):.4f} nats", "of the model with the image, per token"],
        ["pull", f"{diagnosis.mean('kl_target_original'):.4f} nats", "KL(target || image) per token"],
        ["changed choices", f"{diagnosis.mean('argmax_changed'):.1%}", "tokens where the target prefers another one"],
        ["end token, guarded", _lift(diagnosis.mean("end_lift")), "log target - log image at the answer's end"],
        ["end token, unguarded", _lift(diagnosis.mean("end_lift_unguarded")), "the same without the guard"],
        ["same without image", f"{same:.1%}", "answers that the control does not change"],
        ["length", f"{length['image']:.1f}", f"tokens; {length['contrast']:.1f} by contrast decoding"],
        [
            "change of length",
            f"{signed(change[0])}",
            f"expected tokens; 95%: {signed(change[1])} to {signed(change[2])}",
        ],
    ]
    for view, value in accuracies.items():
        if value is not None:
            rows.append([f"accuracy, {NAMES[view]}", f"{value:.1f}", "percent of the rows with an answer"])
    return rows


def _skipped(diagnosis: Diagnosis) -> str:
    return f"{len(diagnosis.skipped)} could not be used{'; precheck.json has the reasons' if diagnosis.skipped else ''}"


def _lift(nats: float) -> str:
    """Format the lift of the end token, which is nan if no answer has its end in the support.

    >>> _lift(0.25), _lift(float("nan"))
    ('+0.2500 nats', 'not measured')
    """
    return "not measured" if math.isnan(nats) else f"{nats:+.4f} nats"


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, object]:
    """Return the statistics as JSON values, over all examples and by category."""
    gain = diagnosis.decoding_gain()
    return {
        **_numbers(diagnosis),
        "skipped": dict(diagnosis.skipped),
        "expected_gain": None if gain is None else asdict(expected_gain(gain[0], (gain[2] - gain[1]) / 2)),
        "calibrated_on": sorted(calibrated()),
        "calibration": _as_objects(misses()),
        "tested_on_unseen_bases": _test_json(),
        "verdict": verdict(diagnosis),
        "grounds": grounds(),
        "by_category": {name: _numbers(own) for name, own in diagnosis.by_category().items()},
    }


def _as_objects(rows: Sequence[tuple[str, float, float, float]]) -> list[dict[str, str | float]]:
    return [dict(zip(("base", "predicted", "measured", "miss"), row, strict=True)) for row in rows]


def _test_json() -> dict[str, object] | None:
    """The test on bases that the calibration has not seen."""
    test = unseen()
    if test is None:
        return None
    return {
        "typical_miss": test.typical_miss,
        "correlation": test.correlation,
        "constant": test.constant,
        "typical_miss_of_constant": test.typical_miss_of_constant,
        "bases": _as_objects(test.misses),
    }


def _numbers(diagnosis: Diagnosis) -> dict[str, object]:
    means = (
        "same_without_image",
        "support_size",
        "entropy",
        "kl_target_original",
        "argmax_changed",
        "end_lift",
        "end_lift_unguarded",
        "largest_contrast",
    )
    return {
        "num_examples": len(diagnosis.examples),
        "accuracy": {NAMES[view]: diagnosis.accuracy(view) for view in NAMES},
        "decoding_gain": diagnosis.decoding_gain(),
        "unread": diagnosis.decoding_unread(),
        "contrast": diagnosis.contrast(),
        **{name: None if math.isnan(value := diagnosis.mean(name)) else value for name in means},
        "length_change": diagnosis.length_change(),
    }


def diagnosis_page(diagnosis: Diagnosis, examples: Mapping[str, Example], title: str) -> Page:
    """Build the page. `examples` holds what was asked, by id."""
    tiles = [
        Tile(f"accuracy, {NAMES[view]}", f"{value:.1f}", tone=tone)
        for view, tone in (("control", "base"), ("image", "opsd"), ("contrast", "vcsd"))
        if (value := diagnosis.accuracy(view)) is not None
    ]
    ranked = sorted(diagnosis.examples, key=lambda one: -one.largest_contrast)
    notes = [f"Examples: {_skipped(diagnosis)}."] if diagnosis.skipped else []
    sections = [
        PageSection(
            "Statistics",
            Html(f'<div class="prose">{plain_table(["", "value", "what it is"], rows_of(diagnosis))}</div>'),
        ),
        PageSection("Contrast of the tokens", _histogram(diagnosis), "In nats, over all tokens of all answers."),
        PageSection("Support of the tokens", _supports(diagnosis), "Plausible candidates, over all tokens."),
        PageSection("By kind of answer", _by_kind(diagnosis)),
        PageSection("By category", _by_category(diagnosis), _CATEGORY_LEAD),
        PageSection("How good is the forecast?", _calibration()),
        PageSection("The most visual questions", _cases(ranked[:MOST_CASES], examples)),
        PageSection("The least visual questions", _cases(ranked[::-1][:MOST_CASES], examples)),
    ]
    return Page(f"Pre-check: {title}", sections, verdict(diagnosis), tiles, notes)


def _histogram(diagnosis: Diagnosis) -> Html:
    values = [value for one in diagnosis.examples for value in one.contrasts]
    counts = Counter(sum(value >= edge for edge in BINS) for value in values)
    names = [f"below {BINS[0]:g}", *(f"{low:g} to {high:g}" for low, high in pairwise(BINS))]
    names.append(f"{BINS[-1]:g} and more")
    bars = [
        ShareBar(name, 100 * counts[place] / len(values), f"% of {len(values)}") for place, name in enumerate(names)
    ]
    return bar_chart("", bars)


def _supports(diagnosis: Diagnosis) -> Html:
    sizes = [size for one in diagnosis.examples for size in one.support_sizes]
    bounds = [*pairwise((*SIZES, math.inf))]
    shares = [100 * mean(low <= size < high for size in sizes) for low, high in bounds]
    names = [_range(low, high) for low, high in bounds]
    note = f"% of {len(sizes)}"
    return bar_chart("", [ShareBar(name, share, note) for name, share in zip(names, shares, strict=True)])


def _range(low: float, high: float) -> str:
    """Name the sizes from `low` to below `high`.

    >>> _range(1, 2), _range(3, 6), _range(21, math.inf)
    ('1', '3 to 5', '21 and more')
    """
    if math.isinf(high):
        return f"{low:g} and more"
    return f"{low:g}" if high == low + 1 else f"{low:g} to {high - 1:g}"


def _by_kind(diagnosis: Diagnosis) -> Html:
    rows = []
    for kind in dict.fromkeys(one.kind for one in diagnosis.examples):
        own = [one for one in diagnosis.examples if one.kind == kind]
        shares = [[one.is_right[view] for one in own if one.is_right[view] is not None] for view in NAMES]
        cells = [f"{100 * mean(map(bool, marks)):.1f}" if marks else "-" for marks in shares]
        rows.append(
            [kind.replace("_", " "), str(len(own)), *cells, f"{mean(one.largest_contrast for one in own):+.3f}"]
        )
    return plain_table(["", "N", *(f"accuracy, {name}" for name in NAMES.values()), "largest contrast"], rows)


_CATEGORY_LEAD = (
    "By the data's column 'category': accuracies in percent, points that contrast decoding gains, contrasts in nats, "
    "and the share of answers that the control does not change. Fewer than "
    f"{FEWEST_FOR_INTERVAL} examples get no interval."
)

NO_CATEGORIES = "The data has no column 'category'. Add one to see the statistics by category."


def category_rows(diagnosis: Diagnosis) -> list[list[str]]:
    """Return each category with its number of examples, accuracies, gain with interval, contrasts and same answers."""
    rows = []
    for name, own in _shown_categories(diagnosis):
        accuracies = [own.accuracy(view) for view in NAMES]
        gain = own.decoding_gain()
        rows.append(
            [
                name,
                str(len(own.examples)),
                *("-" if value is None else f"{value:.1f}" for value in accuracies),
                *(("-", "-") if gain is None else (signed(gain[0]), _interval(own, *gain))),
                f"{own.contrast():+.3f}",
                f"{own.mean('largest_contrast'):+.3f}",
                f"{own.mean('same_without_image'):.0%}",
            ]
        )
    return rows


CATEGORY_COLUMNS = ("", "N", *NAMES.values(), "gain", INTERVAL, "mean contrast", "largest", "same")


def _shown_categories(diagnosis: Diagnosis) -> list[tuple[str, Diagnosis]]:
    return list(diagnosis.by_category().items())[:MOST_CATEGORIES]


def categories_left(diagnosis: Diagnosis) -> str:
    """Return how many categories the tables leave out; an empty string if none."""
    num = len(diagnosis.by_category()) - MOST_CATEGORIES
    return f"{num} smaller categories are in precheck.json." if num > 0 else ""


def _interval(own: Diagnosis, _: float, low: float, high: float) -> str:
    """Return the interval, or a dash for a handful of examples, whose interval would mean nothing."""
    return f"{signed(low)} to {signed(high)}" if len(own.examples) >= FEWEST_FOR_INTERVAL else "-"


def _by_category(diagnosis: Diagnosis) -> Html:
    rows = category_rows(diagnosis)
    if not rows:
        return Html(f"<p>{text(NO_CATEGORIES)}</p>")
    shaped = [
        [
            name,
            f"{own.mean('support_size'):.2f}",
            f"{own.mean('entropy'):.4f}",
            f"{own.mean('kl_target_original'):.4f}",
            f"{own.mean('argmax_changed'):.1%}",
            *(_known(own.mean(lift)) for lift in ("end_lift", "end_lift_unguarded")),
            signed((change := own.length_change())[0]),
            _interval(own, *change),
        ]
        for name, own in _shown_categories(diagnosis)
    ]
    columns = [
        "",
        "support",
        "entropy",
        "pull",
        "changed choices",
        "end, guarded",
        "end, unguarded",
        "change in length",
        INTERVAL,
    ]
    left = categories_left(diagnosis)
    return Html(
        f"<h3>Accuracy and contrast</h3>{_known_columns(CATEGORY_COLUMNS, rows)}"
        f"<h3>Target and length</h3>{_known_columns(columns, shaped)}"
        + (f'<p class="note">{text(left)}</p>' if left else "")
    )


def _known_columns(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """Show a table without the columns that are unknown in every row."""
    kept = [place for place in range(len(columns)) if any(row[place] != "-" for row in rows)]
    return plain_table([columns[place] for place in kept], [[row[place] for place in kept] for row in rows])


def _known(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.4f}"


def _calibration() -> Html:
    """Show the grounds, the misses on bases that the calibration has not seen, and those on its own bases."""
    test, own = unseen(), _miss_table(misses(), calibrated())
    lead = f"<ul>{''.join(f'<li>{text(ground)}</li>' for ground in grounds())}</ul><p>{text(CALIBRATION_NOTE)}</p>"
    if test is None:
        return Html(lead + own)
    return Html(
        f"{lead}<h3>Bases that the calibration had not seen</h3>{_miss_table(test.misses, test.pairs)}"
        f"<h3>Bases of the calibration</h3>{own}"
    )


def _miss_table(rows: Sequence[tuple[str, float, float, float]], pairs: Mapping[str, Pair]) -> Html:
    shown = [[name, signed(pairs[name][0]), *(signed(value) for value in row)] for name, *row in rows]
    return plain_table(["", "contrast decoding", "predicted", "measured", "miss"], shown)


def _cases(chosen: Sequence[ExampleStatistics], examples: Mapping[str, Example]) -> Html:
    tones = {"image": "opsd", "control": "base", "contrast": "vcsd"}
    cases = []
    for one in chosen:
        example = examples[one.id]
        shown = VIEWS["original"](example).images
        images = [image for image in shown if isinstance(image, Image)]
        answers = [Answer(NAMES[view], tones[view], one.texts[view][:600], one.is_right[view]) for view in NAMES]
        title = f"{one.id}: largest contrast {one.largest_contrast:+.3f} nats"
        cases.append(Case(title, example.text[:600], example.answer or "", images, answers))
    return parts.cases(cases)
