"""A monitor that watches the words that decide: what the contrast does to colours, rows, numbers, yes and no.

It appends one line per step and suite to `keys.jsonl` in the run's folder:

    responses, right, said      sampled answers: how many, percent right, and how often each deciding word was given
    all                         means over all tokens of these answers, as in metrics.jsonl
    key                         the same means at the deciding word alone; `keys` counts these tokens
    flips                       share of deciding words at which the contrast changed the most likely token

Right answers need labels, so that `right` is for a diagnosis and not for training. Everything else is label-free: a
guard could use it.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from vcsd.emoji.questions import asked_for, find_key, read_key
from vcsd.monitor.lines import Lines
from vcsd.monitor.metrics import PER_TOKEN, Sums

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from vcsd.loss import Statistics
    from vcsd.monitor.observation import Observation
    from vcsd.types import Example

log = logging.getLogger(__name__)

KEYS = "keys.jsonl"


class IdsToText(Protocol):
    """Turns token ids into text."""

    def decode(self, token_ids: list[int], /, *, skip_special_tokens: bool) -> str: ...  # noqa: D102


class KeyMonitor:
    """Records what the contrast does to the deciding words, suite by suite."""

    def __init__(self, folder: Path, tokenizer: IdsToText) -> None:
        self._lines, self._tokenizer = Lines(folder / KEYS), tokenizer
        self._is_begun = False
        self._places: dict[tuple[str, tuple[int, ...]], int | None] = {}

    def observe(self, seen: Observation) -> Mapping[str, float]:
        """Record a step. Adds nothing to its metrics."""
        if not self._is_begun:
            self._lines.keep_until("step", seen.step - 1)
            self._is_begun = True
        for record in self._records(seen):
            self._lines.append(record)
        return {}

    def _records(self, seen: Observation) -> Iterator[dict[str, object]]:
        examples = {example.id: example for example in seen.examples}
        ends = list(accumulate(len(response) for _, response in seen.scored))
        columns = _columns(seen.statistics)
        if not ends:
            return
        if wrong := [len(column) for column in columns.values() if len(column) != ends[-1]]:
            log.warning(  # what is recorded of a step must not end the run
                "Step %d has %d statistics for %d tokens, so keys.jsonl has no line for it. Please report this.",
                *(seen.step, wrong[0], ends[-1]),
            )
            return
        suites: defaultdict[str, _Suite] = defaultdict(_Suite)
        for (name, response), end in zip(seen.scored, ends, strict=True):
            example = examples[name]
            suite = example.category or ""
            place = self._place(asked_for(suite), tuple(response))
            text = self._tokenizer.decode(list(response), skip_special_tokens=True)
            own = {key: column[end - len(response) : end] for key, column in columns.items()}
            suites[suite].add(example, read_key(asked_for(suite), text), own, place)
        for suite in sorted(suites):
            yield {"step": seen.step, "suite": suite, **suites[suite].record()}

    def _place(self, asks: str, response: tuple[int, ...]) -> int | None:
        """Find the deciding word; many responses are equal."""
        if (asks, response) not in self._places:
            self._places[asks, response] = key_position(asks, response, self._tokenizer)
        return self._places[asks, response]

    def state(self) -> Mapping[str, object]:
        """Return nothing: the file is all there is."""
        return {}

    def restore(self, state: object, step: int) -> None:
        """Remove the lines of later steps, which will be repeated."""
        self._lines.keep_until("step", step)
        self._is_begun = True


def key_position(asks: str, response: Sequence[int], tokenizer: IdsToText) -> int | None:
    """Return the position of the token with which the deciding word begins; None without such a word.

    Words are found in the text, because a word may have several tokens, and a token may begin with a space.
    """
    texts = [tokenizer.decode(list(response[: end + 1]), skip_special_tokens=True) for end in range(len(response))]
    found = find_key(asks, texts[-1]) if texts else None
    if found is None:
        return None
    return next((place for place, text in enumerate(texts) if len(text.lower()) > found.start()), None)


def _columns(statistics: Sequence[Statistics]) -> dict[str, list[float]]:
    """Return each statistic as one list over all positions; those that a method lacks are left out."""
    names = [name for name in PER_TOKEN if all(getattr(rows, name) is not None for rows in statistics)]
    return {name: [float(value) for rows in statistics for value in getattr(rows, name).tolist()] for name in names}


class _Suite:
    """The answers to one suite in one step."""

    def __init__(self) -> None:
        self.num = self.num_right = self.num_keys = 0
        self.said: Counter[str] = Counter()
        self.all, self.key = Sums(), Sums()

    def add(self, example: Example, said: str | None, columns: Mapping[str, list[float]], place: int | None) -> None:
        """Add an answer with its statistics, of which `place` is the deciding word's position."""
        self.num += 1
        self.num_right += said is not None and said == read_key(asked_for(example.category or ""), example.answer or "")
        self.said[said or "(none)"] += 1
        self.num_keys += place is not None
        for name, column in columns.items():
            self.all.add(name, total=sum(column), weight=len(column))
            if place is not None:
                self.key.add(name, total=column[place], weight=1)

    def record(self) -> dict[str, object]:
        """Return the entries of a line."""
        key = {name: round(mean, 5) for name, mean in self.key.means().items()}
        return {
            "responses": self.num,
            "right": round(100.0 * self.num_right / self.num, 2),
            "said": dict(self.said.most_common()),
            "keys": self.num_keys,
            "flips": key.get("argmax_changed"),
            "all": {name: round(mean, 5) for name, mean in self.all.means().items()},
            "key": key,
        }
