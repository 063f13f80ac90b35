"""Measure what a model keeps: sight, hints, text, answers under black, diversity and calibration.

Questions of every kind about balanced scenes of the smallest pictures, the same for every model of a world:

right, kinds        greedy answers that are right, over all kinds and by kind
sight               things that a description names correctly in their cell, by side of the picture
hint, text_only     right answers if the answer is shown as a hint: with the picture, and with a black one
black, black_same   answers under a black picture that are right, and that equal the answer with the picture
usual               by kind, right answers about scenes as skewed as the prior of the base's world
pass_at             one of k answers sampled at temperature 1 is right
distinct, entropy   different answers among the samples of a question, and their entropy in bits
unread              the share of responses from which no answer could be extracted, for each of the questions above
ece, confidence     `confidence.py`: the confidence of a greedy answer is the share of samples that agree with it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vcsd.bases.measure import last_answer, sight
from vcsd.evaluation.scoring.several_answers import entropy, pass_at
from vcsd.reproduce.abilities.confidence import calibration
from vcsd.views import VIEWS
from vcsd.world.questions.kinds import KINDS
from vcsd.world.questions.kinds import ask as ask_kind
from vcsd.world.questions.suites import as_example

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.bases.measure import Speaker
    from vcsd.reproduce.cell_result import Abilities, Diversity
    from vcsd.types import Example
    from vcsd.world.parameters import Parameters
    from vcsd.world.scenes import Split

ABILITIES_VERSION = 1
"""Changes whenever the questions or the rules do: results name it."""

NUM_PER_KIND = 32
"""Questions of each kind. Half of them are answered `NUM_SAMPLES` times."""

NUM_SAMPLES = 8
NUM_KEPT = 8
"""Greedy answers of each kind that a result keeps."""

_STREAM = 0x6162
_SIGHT_QUESTIONS = 100
_SIDE = 3


def ability_examples(num: int, split: Split, world: Parameters, *, is_skewed: bool = False) -> list[Example]:
    """Draw `num` questions of each kind, kind by kind. The same arguments give the same questions and pixels."""
    examples = []
    for k, kind in enumerate(KINDS.values()):
        rng = np.random.default_rng([_STREAM, k, is_skewed])
        asked = ask_kind(rng, kind, num, _SIDE, world, split=split, is_skewed=is_skewed)
        noise_seed = int(rng.integers(2**31))
        names = [f"ability-{kind.name}-{is_skewed}-{i:03}" for i in range(num)]
        examples += [as_example(kind, asked, i, world, noise_seed, name) for i, name in enumerate(names)]
    return examples


def measure_abilities(speaker: Speaker, num: int, split: Split, world: Parameters) -> Abilities:
    """Measure everything on `num` questions of each kind."""
    examples = ability_examples(num, split, world)
    skewed = ability_examples(num, split, world, is_skewed=True)
    hinted = [VIEWS["hint"](example) for example in examples]
    texts = speaker.answers(examples)
    greedy = [last_answer(text) for text in texts]
    is_right = _is_right(greedy, examples)
    black = _final(speaker, examples, "black")
    kept = {name: texts[k * num : k * num + min(num, NUM_KEPT)] for k, name in enumerate(KINDS)}
    sampled = [at for at in range(len(examples)) if at % num < max(1, num // 2)]
    samples = _samples(speaker, [examples[at] for at in sampled])
    hints, told, usual = _final(speaker, hinted), _final(speaker, hinted, "black"), _final(speaker, skewed)
    drawn = [answer for own in samples for answer in own]
    asked = {"right": greedy, "hint": hints, "text_only": told, "black": black, "usual": usual, "sampled": drawn}
    measured = calibration([greedy[at] for at in sampled], samples, [is_right[at] for at in sampled])
    return {
        "num_questions": len(examples),
        "right": _percent(is_right),
        "kinds": _shares(is_right, num),
        "sight": sight(speaker, min(_SIGHT_QUESTIONS, 4 * num), split, world),
        "hint": _percent(_is_right(hints, hinted)),
        "text_only": _percent(_is_right(told, hinted)),
        "black": _percent(_is_right(black, examples)),
        "black_same": _percent([one is not None and one == two for one, two in zip(black, greedy, strict=True)]),
        "usual": _shares(_is_right(usual, skewed), num),
        **_several([examples[at] for at in sampled], samples),
        "ece": measured.ece,
        "confidence_right": measured.confidence_right,
        "confidence_wrong": measured.confidence_wrong,
        "unread": {name: _percent([answer is None for answer in answers]) for name, answers in asked.items()},
        "answers": kept,
    }


def _samples(speaker: Speaker, examples: Sequence[Example]) -> list[list[str | None]]:
    """For each example, the final answers of several samples."""
    drawn = [speaker.answers(examples, temperature=1.0, seed=seed) for seed in range(NUM_SAMPLES)]
    return [[last_answer(text) for text in texts] for texts in zip(*drawn, strict=True)]


def _several(examples: Sequence[Example], samples: Sequence[Sequence[str | None]]) -> Diversity:
    """The measures pass@k, distinct and entropy of evaluation, from final answers."""
    rights = [sum(a == example.answer for a in own) for example, own in zip(examples, samples, strict=True)]
    read = [[answer for answer in own if answer is not None] for own in samples]
    ks = [2**power for power in range(NUM_SAMPLES.bit_length()) if 2**power <= NUM_SAMPLES]
    return {
        "pass_at": {str(k): round(100 * _mean([pass_at(k, NUM_SAMPLES, num) for num in rights]), 2) for k in ks},
        "distinct": round(_mean([len(set(own)) for own in read]), 4),
        "entropy": round(_mean([entropy(own) for own in read]), 4),
    }


def _final(speaker: Speaker, examples: Sequence[Example], view: str = "original") -> list[str | None]:
    """The final answers, each None if the text has none."""
    return [last_answer(text) for text in speaker.answers(examples, view=view)]


def _is_right(answers: Sequence[str | None], examples: Sequence[Example]) -> list[bool]:
    return [answer == example.answer for answer, example in zip(answers, examples, strict=True)]


def _shares(is_right: Sequence[bool], num: int) -> dict[str, float]:
    """The share of right answers of each kind, from `num` questions of each, kind by kind."""
    return {name: _percent(is_right[k * num : (k + 1) * num]) for k, name in enumerate(KINDS)}


def _percent(values: Sequence[bool]) -> float:
    return round(100 * _mean(values), 2)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
