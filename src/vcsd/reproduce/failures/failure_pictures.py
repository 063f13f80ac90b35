"""The picture of the failures page: questions that a model answered correctly before training and not after.

The first such questions of the first base of each setting, in the order of the kinds: nobody chooses them.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from vcsd.bases.measure import last_answer
from vcsd.reproduce.abilities.measure_abilities import ability_examples
from vcsd.reproduce.failures.failure_settings import ORDINARY_SETTING, SETTINGS
from vcsd.types import message_texts
from vcsd.world.questions.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

    from vcsd.reproduce.cell_result import Abilities
    from vcsd.reproduce.failures.failure_runs import ReadOnce
    from vcsd.reproduce.failures.failure_settings import FailureSetting
    from vcsd.types import Example
    from vcsd.world.parameters import Parameters

COLUMNS = 3
_WIDTH = 50
_MOST_CHARACTERS = 130
_PICTURE, _LINE, _HEADING = 1.0, 0.13, 0.3  # inches


@dataclass(frozen=True, eq=False)
class Broken:
    """A question with the answers before and after."""

    example: Example
    before: str
    after: str

    @property
    def keeps_description(self) -> bool:
        """Whether what is said before the answer did not change.

        >>> Broken(None, "There are 2. The answer is B.", "There are 2. The answer is A.").keeps_description
        True
        >>> Broken(None, "There are 2. The answer is 2.", "There are 3. The answer is 3.").keeps_description
        False
        """
        before, after = (text.rpartition(str(last_answer(text)))[0] for text in (self.before, self.after))
        return before == after


def broken_answers(before: Abilities, after: Abilities, world: Parameters) -> Iterator[Broken]:
    """The kept answers that were right before and are wrong after, one of each kind first."""
    num = before["num_questions"] // len(KINDS)
    examples = ability_examples(num, "test", world)
    num_kept = min(len(texts) for texts in before["answers"].values())
    for index in range(num_kept):
        for k, kind in enumerate(KINDS):
            example = examples[k * num + index]
            texts = [result["answers"][kind][index] for result in (before, after)]
            if [last_answer(text) == example.answer for text in texts] == [True, False]:
                yield Broken(example, *texts)


def broken_by_base(runs: ReadOnce, setting: FailureSetting) -> Iterator[Iterator[Broken]]:
    """The questions that a setting broke, base by base, for the bases with both results."""
    before, after = runs.finished(setting)
    for run in before:
        if run in after:
            world = runs.runs.recorded[run[0]].world
            yield broken_answers(before[run]["abilities"], after[run]["abilities"], world)


def first_broken(runs: ReadOnce, setting: FailureSetting) -> list[Broken]:
    """The questions of a setting that the picture shows, from its first base with both results."""
    return list(islice(next(broken_by_base(runs, setting), iter(())), COLUMNS))


def draw_failures(runs: ReadOnce) -> Figure | None:
    """Draw one row per setting that broke something; None until the runs may be read, or if nothing broke."""
    from matplotlib.figure import Figure

    settings = (ORDINARY_SETTING, *SETTINGS)
    rows = {setting: first_broken(runs, setting) for setting in settings} if runs.may_be_read else {}
    rows = {setting: broken for setting, broken in rows.items() if broken}
    if not rows:
        return None
    texts = {setting: [_answers(case) for case in broken] for setting, broken in rows.items()}
    heights = [max(_PICTURE, *(_LINE * len(text.splitlines()) for text in own)) + _HEADING for own in texts.values()]
    figure = Figure(figsize=(4.2 * COLUMNS, sum(heights)), layout="constrained")
    bands = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
    for band, (setting, broken) in zip(bands, rows.items(), strict=True):
        band.suptitle(setting.name, fontsize=9, fontweight="bold", x=0.003, ha="left")
        cells = band.subplots(1, 2 * COLUMNS, width_ratios=(1, 2.8) * COLUMNS)
        for axis in cells:
            axis.set_axis_off()
        for picture, beside, case, text in zip(cells[::2], cells[1::2], broken, texts[setting], strict=False):
            picture.imshow(np.asarray(case.example.images[0]))
            picture.set_anchor("N")
            beside.text(0, 1, text, fontsize=7, va="top", transform=beside.transAxes).set_in_layout(False)
    return figure


def _answers(broken: Broken) -> str:
    """The question, the true answer, and both answers."""
    (question,) = message_texts(broken.example.prompt[-1])
    answers = {"before": broken.before, "after": broken.after}
    texts = [
        f"true: {broken.example.answer}",
        *(f"{when}: {shortened(_plain(text))}" for when, text in answers.items()),
    ]
    return "\n".join(textwrap.fill(text, _WIDTH) for text in (_plain(question), *texts))


def _plain(text: str) -> str:
    return " ".join(text.split())


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Cut a long answer at the front, where an ellipsis marks it: its end has the answer. Words stay whole.

    >>> shortened("The answer is A."), shortened("A blue triangle. The answer is A.", 25)
    ('The answer is A.', '… The answer is A.')
    """
    if len(text) <= most:
        return text
    cut, end = text[:-most], text[-most:]
    inside_a_word = not cut.endswith(" ") and not end.startswith(" ")
    return f"… {(end.partition(' ')[2] if inside_a_word else '') or end.lstrip()}"
