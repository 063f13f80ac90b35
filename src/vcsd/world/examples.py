"""Prompts to train on: questions of every kind about balanced scenes of the training split, as Examples.

VCSD never looks at the answers; the hint view of OPSD shows them to its teacher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vcsd.world.kinds import KINDS, ask
from vcsd.world.parameters import PARAMETERS, Parameters
from vcsd.world.suites import as_example

if TYPE_CHECKING:
    from vcsd.types import Example

_STREAM = 0x7261
"""Keeps these random numbers apart from those of suites and of pre-training."""


def training_examples(num: int, seed: int = 0, parameters: Parameters = PARAMETERS) -> list[Example]:
    """`num` prompts in random order; kinds in equal shares, sides in the shares of pre-training."""
    rng = np.random.default_rng([_STREAM, seed])
    kinds = rng.permutation(np.arange(num) % len(KINDS))
    sides = rng.choice(parameters.sides, size=num, p=parameters.side_shares)
    examples: dict[int, Example] = {}
    for k, kind in enumerate(KINDS.values()):
        for side in parameters.sides:
            places = np.flatnonzero((kinds == k) & (sides == side))
            if not len(places):
                continue
            asked = ask(rng, kind, len(places), int(side), parameters, split="train")
            noise_seed = int(rng.integers(2**31))
            for i, place in enumerate(places.tolist()):
                name = f"world-{seed}-{place:05}-{kind.name}"
                examples[place] = as_example(kind, asked, i, parameters, noise_seed, name)
    return [examples[place] for place in range(num)]
