"""All kinds of questions by name, and a function that asks one kind about newly drawn scenes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vcsd.world.questions.about_colors import COLOR_KINDS
from vcsd.world.questions.about_numbers import NUMBER_KINDS
from vcsd.world.questions.about_places import PLACE_KINDS
from vcsd.world.questions.kind import AskedScenes
from vcsd.world.scenes import concatenate, draw_scenes

if TYPE_CHECKING:
    from vcsd.world.parameters import Parameters
    from vcsd.world.questions.kind import Kind
    from vcsd.world.scenes import Rng, Split

KINDS: dict[str, Kind] = {kind.name: kind for kind in (*COLOR_KINDS, *PLACE_KINDS, *NUMBER_KINDS)}
"""All kinds of questions."""


def ask(
    rng: Rng, kind: Kind, num: int, side: int, parameters: Parameters, *, split: Split, is_skewed: bool = False
) -> AskedScenes:
    """Ask questions of one kind about scenes of a split.

    Scenes are balanced, or skewed like the prior: things mostly have canonical colours, and answers are mostly yes.
    """
    canonical = parameters.canonical_share if is_skewed else 0.0
    yes = parameters.yes_share if is_skewed else 0.5
    parts: list[AskedScenes] = []
    num_asked = 0
    while num_asked < num:
        scenes = draw_scenes(rng, 2 * (num - num_asked) + 16, side, parameters, split=split, canonical_share=canonical)
        parts.append(kind.ask(rng, scenes, yes).kept(num - num_asked))
        num_asked += len(parts[-1].keep_N)
    return AskedScenes(
        concatenate([part.scenes for part in parts]),
        {name: np.concatenate([part.question[name] for part in parts]) for name in parts[0].question},
        {name: np.concatenate([part.facts[name] for part in parts]) for name in parts[0].facts},
        np.concatenate([part.keep_N for part in parts]),
    )
