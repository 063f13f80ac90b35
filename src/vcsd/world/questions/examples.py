"""Training prompts: questions of all kinds, or of some, about scenes of the training split, as Examples.

VCSD never uses the answers; the hint view of OPSD shows them to its teacher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vcsd.world.parameters import PARAMETERS, Parameters
from vcsd.world.questions.kinds import KINDS, ask
from vcsd.world.questions.suites import as_example

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.types import Example

_STREAM = 0x7261
"""Separates these random numbers from those of suites and of pre-training."""


def training_examples(
    num: int,
    seed: int = 0,
    parameters: Parameters = PARAMETERS,
    *,
    only: Sequence[str] = tuple(KINDS),
    is_skewed: bool = False,
) -> list[Example]:
    """Draw prompts in random order, with equal shares of the kinds and the sides of pre-training.

    Scenes are balanced, or as skewed as the prior.
    """
    rng = np.random.default_rng([_STREAM, seed])
    chosen = [kind for kind in KINDS.values() if kind.name in only]
    kinds = rng.permutation(np.arange(num) % len(chosen))
    sides = rng.choice(parameters.sides, size=num, p=parameters.side_shares)
    examples: dict[int, Example] = {}
    for k, kind in enumerate(chosen):
        for side in parameters.sides:
            numbers = np.flatnonzero((kinds == k) & (sides == side))
            if not len(numbers):
                continue
            asked = ask(rng, kind, len(numbers), int(side), parameters, split="train", is_skewed=is_skewed)
            noise_seed = int(rng.integers(2**31))
            for i, number in enumerate(numbers.tolist()):
                name = f"world-{seed}-{number:05}-{kind.name}"
                examples[number] = as_example(kind, asked, i, parameters, noise_seed, name)
    return [examples[number] for number in range(num)]
