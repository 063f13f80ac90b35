"""The settings in which VCSD can fail, and the abilities that it may lose, as data, with the rules that judge them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from statistics import mean
from typing import TYPE_CHECKING, Literal

from vcsd.reproduce.paired_runs import equivalence_interval, interval
from vcsd.reproduce.results import unread_share
from vcsd.world.questions.about_colors import COLOR_KINDS
from vcsd.world.questions.kinds import KINDS

if TYPE_CHECKING:
    from vcsd.reproduce.cell_result import Abilities, CellResult
    from vcsd.reproduce.paired_runs import Paired

Read = Callable[["CellResult"], float]
"""One number of a result, in percent."""

FailureVerdict = Literal["fails: harm", "fails: no gain", "undecided", "works"]
KeepVerdict = Literal["lost", "undecided", "kept"]
FEWEST_BASES = 5
MARGIN, KEPT_MARGIN = 1.0, 2.0
"""Points: a smaller gain is none, and an ability may lose this much and still count as kept."""

ASKED_IN_TRAINING = tuple(kind.name for kind in COLOR_KINDS)
HELD_OUT = tuple(name for name in KINDS if name not in ASKED_IN_TRAINING)
PRIOR_HELPS = ("color", "color_choice", "shape_choice", "is_color", "is_above", "is_beside")
"""The kinds whose usual answer is right about as often as the prior says, in pictures as skewed as the prior."""


def acc(result: CellResult) -> float:
    """Mean over the seven suites."""
    return result["acc"]


def held_out(result: CellResult) -> float:
    """Right answers to the kinds that training did not ask."""
    return mean(result["abilities"]["kinds"][kind] for kind in HELD_OUT)


def asked(result: CellResult) -> float:
    """Right answers to the kinds that training asked."""
    return mean(result["abilities"]["kinds"][kind] for kind in ASKED_IN_TRAINING)


def prior_helps(result: CellResult) -> float:
    """Right answers about skewed pictures, to the kinds that the prior helps."""
    return mean(result["abilities"]["usual"][kind] for kind in PRIOR_HELPS)


def unread_of(result: CellResult, answers: str | None) -> float:
    """The share of unread answers of a result, in percent: of the exam, or of some of the abilities' answers.

    >>> unread_of({"unresolved": 1, "num_questions": 200}, None)
    0.5
    >>> unread_of({"abilities": {"unread": {"hint": 2.0}}}, "hint")
    2.0
    >>> unread_of({"abilities": {}}, "hint")
    nan
    """
    share = unread_share(result) if answers is None else result["abilities"].get("unread", {}).get(answers)
    return nan if share is None else share


@dataclass(frozen=True)
class FailureSetting:
    """A setting: what differs, on which bases, and which number is compared before and after.

    `suffix` ends the names of its bases; an empty one means the ordinary bases. Without `needs_gain` it is enough that
    nothing is lost.
    """

    name: str
    differs: str
    after: str
    measure: str
    read: Read
    expected: str = ""
    """What the rules expected, in their words."""
    before: str = "base"
    suffix: str = ""
    needs_gain: bool = True
    answers: str | None = None
    """Which answers of the abilities `read` is about; None: those of the exam.

    Their unread share is recorded over all kinds of questions, also where `read` takes some kinds only.
    """

    def unread(self, result: CellResult) -> float:
        """The share of these answers, of all kinds, without a readable answer, in percent; nan if not recorded."""
        return unread_of(result, self.answers)


ORDINARY_SETTING = FailureSetting("ordinary", "nothing", "VCSD", "Acc", acc)

SETTINGS = (
    FailureSetting(
        "cannot see",
        "the base was pre-trained on pictures in which every cell is one colour; it is asked about sharp ones",
        "VCSD",
        "Acc",
        acc,
        "no gain",
        suffix="-blurred",
    ),
    FailureSetting(
        "needs no picture",
        "the text of every training prompt gives the answer",
        "VCSD, told prompts",
        "Acc",
        acc,
        "no gain",
    ),
    FailureSetting(
        "other questions",
        "training prompts ask about colours only",
        "VCSD, color prompts",
        "right answers to the 8 kinds about places and numbers",
        held_out,
        "a gain, smaller than for the 5 kinds",
        answers="right",
    ),
    FailureSetting(
        "long answers",
        "the base describes the whole picture before every answer",
        "VCSD, long answers",
        "Acc",
        acc,
        "a smaller gain than usual",
        suffix="-reasons",
    ),
    FailureSetting(
        "prior mostly right",
        "the prior is right in about 90% of the questions about colours, and of those with yes or no",
        "VCSD, usual prompts",
        "right answers about such pictures, six kinds that the prior helps",
        prior_helps,
        "no loss",
        suffix="-prior-0.9",
        needs_gain=False,
        answers="usual",
    ),
    FailureSetting(
        "300 steps", "300 steps instead of 90", "VCSD, 300 steps", "Acc", acc, "a loss", before="VCSD", needs_gain=False
    ),
)
"""In the order of the rules."""


@dataclass(frozen=True)
class Ability:
    """One measure of what a model keeps. Only those with a verdict are judged."""

    name: str
    read: Callable[[Abilities], float | None]
    has_verdict: bool = False
    digits: int = 1
    answers: str | None = None
    """Which answers it is read from, as their unread ones are recorded; None: from no answers, or from read ones."""


ABILITIES = (
    Ability("sight", lambda a: mean(a["sight"].values()), has_verdict=True),
    Ability("hints", lambda a: a["hint"], has_verdict=True, answers="hint"),
    Ability("text only", lambda a: a["text_only"], has_verdict=True, answers="text_only"),
    Ability("usual pictures", lambda a: mean(a["usual"].values()), has_verdict=True, answers="usual"),
    Ability("pass@8", lambda a: a["pass_at"]["8"], has_verdict=True, answers="sampled"),
    Ability("right under black", lambda a: a["black"], answers="black"),
    Ability("same answer under black", lambda a: a["black_same"], answers="black"),
    Ability("pass@1", lambda a: a["pass_at"]["1"], answers="sampled"),
    Ability("different answers of 8", lambda a: a["distinct"], digits=2),
    Ability("their entropy, bits", lambda a: a["entropy"], digits=2),
    Ability("calibration error", lambda a: a["ece"]),
    Ability("confidence when right", lambda a: a["confidence_right"]),
    Ability("confidence when wrong", lambda a: a["confidence_wrong"]),
)
"""What a result says about abilities, those that are judged first."""


def verdict(change: Paired | None, *, needs_gain: bool) -> FailureVerdict:
    """Judge a setting by its difference over bases.

    >>> from vcsd.reproduce.paired_runs import paired
    >>> before = {(name, 1): 50.0 for name in "abcde"}
    >>> def after(*gains):
    ...     return {(name, 1): 50.0 + gain for name, gain in zip("abcde", gains)}
    >>> [verdict(paired(before, after(*gains)), needs_gain=True) for gains in ((9, 8, 9, 8, 7), (0, 0.1, 0, -0.1, 0.2))]
    ['works', 'fails: no gain']
    >>> [verdict(paired(before, after(-9, -8, -9, -8, -7)), needs_gain=needs_gain) for needs_gain in (True, False)]
    ['fails: harm', 'fails: harm']
    >>> verdict(paired(before, after(0, 0.1, 0, -0.1, 0.2)), needs_gain=False)
    'works'
    """
    if change is None or change.num_bases < FEWEST_BASES:
        return "undecided"
    ends, near = interval(change), equivalence_interval(change)
    assert ends is not None
    assert near is not None
    if ends[1] < 0:
        return "fails: harm"
    if not needs_gain:
        return "works" if near[0] > -MARGIN else "undecided"
    if near[0] >= -MARGIN and near[1] <= MARGIN:
        return "fails: no gain"
    return "works" if ends[0] > 0 else "undecided"


def keeps(change: Paired | None) -> KeepVerdict:
    """Judge an ability by its difference over bases, whose p is already corrected for the number of abilities.

    >>> from vcsd.reproduce.paired_runs import paired
    >>> before = {(name, 1): 90.0 for name in "abcde"}
    >>> for losses in ((0.1, 0.1, 0.2, 0.1, 0.1), (5, 6, 5, 7, 6), (0, 9, 0, 1, 0)):
    ...     after = {(name, 1): 90.0 - loss for name, loss in zip("abcde", losses)}
    ...     print(keeps(paired(before, after)))
    kept
    lost
    undecided
    """
    if change is None or change.num_bases < FEWEST_BASES:
        return "undecided"
    near = equivalence_interval(change)
    assert near is not None
    if near[0] > -KEPT_MARGIN:
        return "kept"
    return "lost" if change.mean < 0 and change.is_clear else "undecided"
