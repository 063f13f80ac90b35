"""The page of the pre-check's calibration: what predicted the gain of training, and how far it was off.

Every base is predicted from the other bases alone. The pre-check itself quotes what is written here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from statistics import mean, median
from typing import TYPE_CHECKING

from vcsd.inspect.precheck.calibration import (
    CHANGED_CHOICES,
    DECODING_GAIN,
    FEWEST_BASES,
    FIRST_STEPS,
    LARGE_GAIN,
    PAPER_GAINS,
    Pair,
    among_large_gains,
    base_statistics,
    beyond_decoding,
    calibrate,
    line_through,
    misses,
    predictors,
    root_mean_square,
    runs_of_bases,
    statistic_names,
    typical_miss,
)
from vcsd.reproduce.cell_result import read_results
from vcsd.reproduce.pages.first_screen import COMMAND, first_screen
from vcsd.reproduce.pages.tables import markdown
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from vcsd.inspect.precheck.calibration import Predictor

PAGE, PICTURE, FILE = "precheck.md", "precheck.png", "precheck.json"
STEPS_COMMAND = "python -m vcsd.reproduce.planned.first_steps docs/results BASES"
TITLE = "How well does the pre-check predict the gain of training?"
QUESTION = (
    "`vcsd precheck` measures what contrast decoding gains on a base, and forecasts what training will gain "
    "([how](../inspect.md#could-training-help)). How far off is this forecast?"
)
SMALL_GAIN = 5.0
"""Points. The size of the paper's gains, which matters most to a user."""

ALL_RIGHT = 99.995
"""Percent. A base above it is at 100% when printed with two digits."""

ADDED = "**Added after the results had been read; no verdict rests on it.**"
NEEDS_ANSWERS = ("accuracy of the base", DECODING_GAIN, "answers")
"""Words in the names of statistics that need answers; the others are free of labels."""


@dataclass(frozen=True)
class LeftOut:
    """What bases say that the table of statistics leaves out: the finding for the top of the page, and a section."""

    finding: str
    section: Sequence[str]


def pairs_of(out: Path, only: Collection[str] | None = None) -> dict[str, Pair]:
    """The gains of contrast decoding and of training, for each base that has both."""
    bases = base_statistics(out / "cells", only)
    return {name: (own[DECODING_GAIN], own["gain"]) for name, own in bases.items() if DECODING_GAIN in own}


def calibration_json(out: Path, unseen: Collection[str] = (), earlier: Collection[str] = ()) -> str:
    """The calibration as the package ships it, with its test on `unseen` bases.

    The mean gain of the `earlier` bases is what one could always have said instead.
    """
    shipped: dict[str, object] = {"bases": _rounded(pairs_of(out))}
    if unseen:
        shipped["test"] = {"bases": _rounded(pairs_of(out, unseen)), "earlier": sorted(earlier)}
    return json.dumps(shipped, indent=1) + "\n"


def _rounded(pairs: Mapping[str, Pair]) -> dict[str, dict[str, float]]:
    return {
        name: {"contrast decoding": round(decoding, 4), "training": round(training, 4)}
        for name, (decoding, training) in pairs.items()
    }


def precheck_page(out: Path, tested: str = "", left_out: LeftOut | None = None) -> str:
    """Build the page. `tested` and `left_out` say how it does on bases that do not enter the calibration."""
    pairs = pairs_of(out)
    if len(pairs) < FEWEST_BASES:
        return f"# {TITLE}\n\nToo few bases with contrast decoding and training: {len(pairs)} of {FEWEST_BASES}.\n"
    off, (slope, start) = misses(pairs), line_through(list(pairs.values()))
    lines = [
        *first_screen(
            TITLE,
            question=QUESTION,
            result=[
                *([tested] if tested else []),
                _misses_in_words(pairs, off),
                *([left_out.finding] if left_out else []),
            ],
            sure=_limits(pairs, at_the_top(out)),
            repeat=f"`{COMMAND}` writes this page from the files in `cells/`; do not edit it. It also writes `{FILE}`, "
            "which `vcsd precheck` quotes.",
        ),
        "## Misses",
        "",
        f"![Gain of training against gain of contrast decoding]({PICTURE})",
        "",
        f"A line through all bases has a slope of {slope:.2f} and an intercept of {start:+.2f} points. "
        + _bars(out, pairs),
        "",
        "The forecast is the gain of contrast decoding plus the median, over the other bases, of what training gained "
        "beyond contrast decoding. The base itself does not enter its own forecast. The table is in points of "
        "accuracy, with the largest miss first. " + _seeds_left_out(pairs),
        "",
        _by_dose(out, off),
        "",
        _instead_of_the_mean(pairs, dose_of(out)),
        "",
        markdown(
            ["base", "contrast decoding", "predicted", "measured", "miss"],
            [[name, f"{pairs[name][0]:+.1f}", *(f"{value:+.1f}" for value in row)] for name, *row in off],
        ),
        "",
        *(left_out.section if left_out else []),
        "## Every statistic",
        "",
        "Each row is a statistic of a base. `correlation` is that with the gain of training. `miss of a line` is the "
        "typical miss (root mean square) if a line through the other bases predicts the gain; `miss of the mean` is "
        "that of their mean gain, which needs no statistic. The intervals treat bases as independent, although those "
        "with one seed share their initial weights and first lessons. Statistics of the first training step need no "
        "answers. Bases of lists that are read once ([failures](where_it_fails.md), [more bases](more_bases.md)) are "
        "left out.",
        "",
        _made_again(out),
        "",
        _table(calibrate(out / "cells")),
        "",
        *_on_the_same_bases(out),
    ]
    return "\n".join(lines)


def _seeds_left_out(pairs: Mapping[str, Pair]) -> str:
    """The typical miss if the other bases of the same pre-training seed are left out too."""
    off = []
    for name, (decoding, training) in pairs.items():
        others = [gain - own for other, (own, gain) in pairs.items() if _seed(other) != _seed(name)]
        off.append(training - decoding - median(others) if others else math.nan)
    return (
        "Bases with one seed share their initial weights and first lessons. If they are left out of each other's "
        f"forecasts too, a typical miss is {root_mean_square(off):.1f} points."
    )


def _bars(out: Path, pairs: Mapping[str, Pair]) -> str:
    """What the intervals in the picture are, and what they leave out."""
    nums = Counter(len(own.trained) for name, own in runs_of_bases(out / "cells").items() if name in pairs)
    seeds = ", ".join(f"{num} with {each} seed{'s' * (each > 1)}" for each, num in sorted(nums.items()))
    return (
        "The bars are 95% intervals over questions. The results do not keep single answers, so an interval treats the "
        "two models as if they had answered different questions. It is too wide if both tend to be right on the same "
        "ones. It does not cover the spread over training seeds: each base has too few of them for that "
        f"({seeds})."
    )


def _seed(base: str) -> str:
    """A base without its dose: family, size and pre-training seed.

    >>> _seed("qwen3_vl-small-11-dose-0.4"), _seed("qwen3_5-small-1")
    ('qwen3_vl-small-11', 'qwen3_5-small-1')
    """
    return base.partition("-dose-")[0]


def _by_dose(out: Path, off: list[tuple[str, float, float, float]]) -> str:
    """The typical miss at each dose: where the prior is strongest, decoding says least about training."""
    doses = dose_of(out)
    misses_by_dose = {
        dose: [miss for name, _, _, miss in off if doses[name] == dose]
        for dose in sorted({doses[name] for name, *_ in off})
    }
    parts = [f"{root_mean_square(own):.1f} at {dose:g} ({len(own)} bases)" for dose, own in misses_by_dose.items()]
    return (
        "**By dose** (the share of captions in pre-training that ignore their picture), the typical misses are "
        f"{', '.join(parts)}."
    )


def _instead_of_the_mean(pairs: Mapping[str, Pair], doses: Mapping[str, float]) -> str:
    """What the median replaced, when it was chosen, and what the mean gave."""
    rest = beyond_decoding(pairs)
    strongest = max(doses[name] for name in pairs)
    weaker = {name: pair for name, pair in pairs.items() if doses[name] < strongest}
    off = misses(pairs, mean)
    high = sum(miss < 0 for name, *_, miss in off if name in weaker)
    text = (
        f"**The median replaced the mean after the bases of dose {strongest:g} had been seen**, so the results that "
        "led to this choice also judge it. Training minus contrast decoding has a median of "
        f"{median(rest):+.2f} points and a mean of {mean(rest):+.2f}"
    )
    if weaker:
        text += (
            f" ({mean(beyond_decoding(weaker)):+.2f} without dose {strongest:g}). With the mean, the forecast was too "
            f"high for {high} of the {len(weaker)} other bases"
        )
    return (
        f"{text}. Its typical miss was {root_mean_square([miss for *_, miss in off]):.1f} points, the worst "
        f"{off[0][3]:+.1f} ({off[0][0]})."
    )


def _made_again(out: Path) -> str:
    """Which bases have the rate of changed choices, and how well a first step that was made again repeats the run."""
    bases = base_statistics(out / "cells")
    known = [name for name, own in bases.items() if CHANGED_CHOICES in own]
    text = (
        "*Changed choices* are the share of tokens for which the target prefers another token than the model does. "
        f"Only newer runs recorded them: {len(bases) - len(known)} of {len(bases)} bases lack them."
    )
    path = out / FIRST_STEPS
    steps = json.loads(path.read_bytes()) if path.is_file() else []
    if not steps:
        return text
    recorded = _recorded_kls(out)
    apart = [
        abs(step["metrics"]["kl_target_original"] / kl - 1)
        for step in steps
        if (kl := recorded.get((step["digest"], step["seed"])))
    ]
    num_again = len({step["base"] for step in steps})
    text += (
        f" For {num_again} {'base' if num_again == 1 else 'bases'}, the first step was repeated after the runs, from "
        f"the same weights and with the same seed (`{STEPS_COMMAND}`)."
    )
    if not apart:
        return text
    return (
        f"{text} KL(target || image) of the repeated steps is within {100 * max(apart):.2g}% of what the runs recorded."
    )


def _recorded_kls(out: Path) -> dict[tuple[object, int], float | None]:
    """KL(target || image) in the first step of finished runs, by the hash of the base and the seed."""
    recorded: dict[tuple[object, int], float | None] = {}
    for cell in read_results(out):
        if cell["variant"] == "VCSD" and "series" in cell:
            recorded.setdefault((cell["identity"]["base"], cell["seed"]), cell["series"]["kl_target_original"][0])
    return recorded


def at_the_top(out: Path) -> set[str]:
    """The bases that answered everything correctly before training, and could not gain."""
    return {name for name, own in base_statistics(out / "cells").items() if own["accuracy of the base"] > ALL_RIGHT}


def _misses_in_words(pairs: Mapping[str, Pair], off: list[tuple[str, float, float, float]]) -> str:
    """How far the forecast is off on the bases of the calibration, and what it cannot tell."""
    wrong = [name for name, (decoding, training) in pairs.items() if (decoding > 0) != (training > 0)]
    typical = typical_miss(pairs)
    return (
        f"On the {len(pairs)} bases of the calibration, each predicted from the others, the typical miss is "
        f"{typical:.1f} points (root mean square) and the worst {off[0][3]:+.1f} ({off[0][0]})."
        + _hidden(typical)
        + " Contrast decoding's gain has the wrong sign for "
        + (f"{len(wrong)} bases ({', '.join(wrong)})." if len(wrong) > 1 else f"{wrong[0]}." if wrong else "no base.")
        + _among(among_large_gains(pairs))
    )


def _limits(pairs: Mapping[str, Pair], top: set[str]) -> str:
    """What the calibration rests on."""
    full = [name for name in pairs if name in top]
    small = sum(0 <= gain <= SMALL_GAIN for name, (_, gain) in pairs.items() if name not in top)
    lost = [name for name, (_, training) in pairs.items() if training < 0]
    others = sum(not name.startswith("qwen3_vl") for name in pairs)
    were = "was" if len(full) == 1 else "were"
    return (
        f"The calibration has {len(pairs)} tiny bases, {others} of them not Qwen3-VL, and synthetic pictures. "
        f"{small} gained between 0 and {SMALL_GAIN:g} points, the size of the paper's gains; "
        + (f"{len(full)} {were} at 100% and could not gain ({', '.join(full)}); " if full else "")
        + f"{len(lost)} lost"
        + (f" ({', '.join(lost)})" if lost else "")
        + ". The statistic was chosen as the best of several on a part of these results."
    )


def _hidden(typical: float) -> str:
    low, high = PAPER_GAINS
    if typical <= low:
        return ""
    word = "larger than" if typical > high else "as large as"
    return (
        f" A typical miss of {typical:.1f} points is {word} the paper's gains ({low:g} to {high:g}), so **the "
        "pre-check cannot tell a gain of that size from none**."
    )


def _among(large: Predictor | None) -> str:
    if large is None:
        return ""
    return (
        " Where gains are large, the correlation of the two gains disappears: among the "
        f"{large.num_bases} bases that gain more than {LARGE_GAIN:g} points it is {large.correlation:+.2f} "
        f"(95% {large.low:+.2f} to {large.high:+.2f})."
    )


def _on_the_same_bases(out: Path) -> Iterator[str]:
    """The same table over the bases that have every statistic, and over those that lack changed choices alone."""
    bases, doses = base_statistics(out / "cells"), dose_of(out)
    names = statistic_names(bases)
    without = [name for name in names if name != CHANGED_CHOICES]
    yield from ("## Every statistic, on the same bases", "")
    yield (
        f"{ADDED} The rows above rest on different bases, so their misses cannot be compared. In each table below, all "
        "rows rest on the same bases. The order changes if fewer doses are covered, so look at the number of bases of "
        "each dose."
    )
    yield ""
    for title, wanted in (("every statistic", names), ("every statistic but changed choices", without)):
        same = {
            base: {name: own[name] for name in (*wanted, "gain")}
            for base, own in bases.items()
            if all(name in own for name in wanted)
        }
        if len(same) < FEWEST_BASES:
            continue
        nums = Counter(doses[base] for base in same)
        of_doses = ", ".join(f"{num} at {dose:g}" for dose, num in sorted(nums.items()))
        yield from (f"The {len(same)} bases with {title} (by dose, {of_doses}):", "", _table(predictors(same)), "")


def _table(several: Sequence[Predictor]) -> str:
    rows = [
        [
            shown_name(one.name),
            "yes" if any(word in one.name for word in NEEDS_ANSWERS) else "no",
            str(one.num_bases),
            f"{one.correlation:+.2f}",
            f"{one.low:+.2f} to {one.high:+.2f}",
            f"{one.error:.1f}",
            f"{one.error_of_mean:.1f}",
            f"{one.worst[1]:+.1f} ({one.worst[0]})",
        ]
        for one in several
    ]
    head = ["statistic of the base", "needs answers", "bases", "correlation", "95%", "miss of a line"]
    return markdown([*head, "miss of the mean", "worst miss of a line"], rows)


def shown_name(statistic: str) -> str:
    """The name of a statistic in a table of Markdown."""
    return statistic.replace("|", "\\|")


def dose_of(out: Path) -> dict[str, float]:
    """The share of captions that ignore their picture, by base, as the groups of results name it."""
    doses = {}
    for cell in read_results(out):
        _, _, share = cell["group"].partition("ignore_share=")
        doses[cell["base"]] = float(share.partition(",")[0]) if share else PARAMETERS.ignore_share
    return doses
