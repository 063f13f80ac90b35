"""What `vcsd replay` prints at its end: what was compared, how strictly, what was not, and the result."""

from __future__ import annotations

from math import isfinite
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vcsd.publish.replay import Repetition


def replay_lines(repetition: Repetition, folder: Path, *, has_seal: bool) -> Iterator[str]:
    """Yield the lines. `has_seal` is whether the file had to match a seal that was published elsewhere."""
    yield _compared(repetition)
    if missing := _not_compared(repetition):
        yield missing
    if not repetition.is_bitwise:
        yield from _distances(repetition)
    if repetition.differences:
        yield "NOT repeated:"
        yield from (f"  {difference}" for difference in repetition.differences[:10])
        return
    is_whole = repetition.is_bitwise and repetition.has_all_steps
    what = "The capsule was repeated." if is_whole else "What was compared was repeated, and no more than that."
    yield f"{what} The run is in {folder}."
    if not is_whole and not has_seal:
        yield (
            "Anyone can change a capsule, name another machine in it, and seal it again. Pass --seal with the seal "
            "that its authors published, to exclude a file that was changed since."
        )


def _compared(repetition: Repetition) -> str:
    num_steps = repetition.num_steps
    if repetition.is_bitwise:
        why = f" ({repetition.why_not_bitwise})" if repetition.why_not_bitwise else ""
        evaluations, weights = repetition.num_evaluations, repetition.num_weights
        return f"Compared {num_steps} steps bit for bit{why}, {evaluations} evaluations and {weights} files of weights."
    why = repetition.why_not_bitwise or "--tolerance"
    return (
        f"Compared {num_steps} steps within {repetition.tolerance:g} of each loss and gradient norm, and their rows "
        f"exactly ({why})."
    )


def _not_compared(repetition: Repetition) -> str:
    """Return what was not compared; an empty string if everything was."""
    if not repetition.is_bitwise:
        scores = f", {repetition.num_evaluations} evaluations" if repetition.num_evaluations else ""
        return (
            f"NOT compared: the weights{scores} and all other metrics. They are compared only bit for bit: on the "
            "machine and versions that the capsule names, or with --tolerance 0."
        )
    if repetition.has_all_steps or repetition.differences:
        return ""
    return "NOT compared: the weights, which a capsule has for its last step only."


def _distances(repetition: Repetition) -> Iterator[str]:
    """Report how close losses and gradient norms were: an outlier may be invented even if it is within the limit."""
    for name, distances in repetition.distances.items():
        known = [distance for distance in distances if isfinite(distance)]
        if known:
            step = distances.index(max(known)) + 1
            most, half = 100 * max(known), 100 * median(known)
            yield f"  {name}: {most:.2g}% apart at most (step {step}), half of the steps by {half:.2g}% or less."
