"""What to change in a recipe so that it fits a machine: overrides, found by projecting each, smallest change first.

The first changes keep the result, or nearly so, and cost time; then images get smaller or more GPUs are used; then
adapters are trained instead of all weights; last comes a smaller model. A change is proposed if it fits and contains no
smaller change that fits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vcsd.config.recipe import ADAPTER_LEARNING_RATE, build_recipe
from vcsd.models.shapes import SHAPES, known_shape
from vcsd.projection.needs import empty_model, job_of
from vcsd.projection.project import project

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vcsd.config.recipe import Recipe
    from vcsd.projection.machines import Machine
    from vcsd.projection.project import Projection

MOST = 4
"""The most changes that are proposed."""

_COUNTS = (2, 4, 8, 16)
_MEGAPIXEL = 2**20


@dataclass(frozen=True)
class Move:
    """One thing to change: overrides, or a number of GPUs, and what it costs."""

    overrides: tuple[str, ...]
    cost: str
    kind: str
    """What it changes. Of two moves of one kind, the one that comes first is smaller."""
    num_gpus: int | None = None


@dataclass(frozen=True)
class Change:
    """Moves with which a recipe fits, and the projection with them."""

    moves: tuple[Move, ...]
    projection: Projection
    host_bytes: int

    @property
    def overrides(self) -> list[str]:
        """What to add to the command."""
        return list(dict.fromkeys(override for move in self.moves for override in move.overrides))

    @property
    def kinds(self) -> set[str]:
        """What is changed."""
        return {move.kind for move in self.moves}

    @property
    def cost(self) -> str:
        """What the change costs, in words."""
        return "; ".join(move.cost for move in self.moves)


CHECKPOINTING = Move(("trainer.gradient_checkpointing=true",), "same result, slower", "checkpointing")
OFFLOAD = Move(("offload=true",), "teacher in bfloat16, slower", "offload")
SMALLER_IMAGES = Move((f"model.max_pixels={_MEGAPIXEL}",), "images of at most 1 megapixel", "images")
_PARTS = ("freeze_vision", "freeze_projector", "freeze_language")


def changes_that_fit(recipe: Recipe, machine: Machine, prompt_tokens: int | None = None) -> list[Change]:
    """Return the smallest changes with which a recipe fits, at most `MOST`; an empty list if none does."""
    fitting: list[Change] = []
    models: dict[str, Any] = {}
    for moves in candidates(recipe, machine):
        has_smaller = any(change.kinds <= {move.kind for move in moves} for change in fitting)
        if not has_smaller and (change := _tried(recipe, machine, moves, prompt_tokens, models)) is not None:
            fitting.append(change)
        if len(fitting) == MOST:
            break
    return fitting


def candidates(recipe: Recipe, machine: Machine) -> Iterator[tuple[Move, ...]]:
    """Yield what could be changed, from the smallest change to the largest."""
    safe = list(_same_result(recipe, machine))
    more = list(_more_gpus(recipe, machine))
    adapters = list(_adapters(recipe))
    images = [] if (recipe.model.max_pixels or 2 * _MEGAPIXEL) <= _MEGAPIXEL else [SMALLER_IMAGES]
    yield from ((move,) for move in safe)
    if len(safe) > 1:
        yield tuple(safe)
    yield from ((move,) for move in [*images, *more[:3]])
    without_offload = tuple(move for move in safe if move is not OFFLOAD)  # useless with adapters or FSDP2
    for adapter in adapters:
        yield (adapter,)
        yield (*without_offload, adapter)
        yield (*without_offload, *images, adapter)
    for move in more:
        yield (*without_offload, move)
        yield from ((*without_offload, *images, adapter, move) for adapter in adapters)
    for smaller in _smaller_models(recipe):
        yield (smaller,)
        yield from ((*without_offload, adapter, smaller) for adapter in adapters)


def _same_result(recipe: Recipe, machine: Machine) -> Iterator[Move]:
    """Yield moves that change time and memory, but the student at most by rounding."""
    if recipe.token_budget is not None:
        yield Move(("token_budget=null",), "rows as long as fit", "rows")
    if not recipe.trainer.get("gradient_checkpointing"):
        yield CHECKPOINTING
    can_offload = machine.num_gpus == 1 and recipe.lora.rank is None
    if can_offload and not recipe.offload and recipe.trainer.get("bf16"):
        yield OFFLOAD


def _more_gpus(recipe: Recipe, machine: Machine) -> Iterator[Move]:
    """Yield larger numbers of the same GPU. FSDP2 shards the weights, which rules out offloading."""
    off = ("offload=false",) if recipe.offload else ()
    for count in _COUNTS:
        if count > machine.num_gpus:
            yield Move((*off, "trainer.fsdp=true"), f"on {count} of these GPUs", "gpus", count)


def _adapters(recipe: Recipe) -> Iterator[Move]:
    """Yield LoRA, with the settings that conflict with it switched off."""
    if recipe.lora.rank is None:
        off = [f"model.{part}=false" for part in _PARTS if getattr(recipe.model, part)]
        off += ["offload=false"] * recipe.offload + ["model.dither=false"] * recipe.model.dither
        overrides = ("lora.rank=32", f"trainer.learning_rate={ADAPTER_LEARNING_RATE}", *off)
        yield Move(overrides, "LoRA, not all weights", "adapters")


def _smaller_models(recipe: Recipe) -> Iterator[Move]:
    """Yield the smaller models of the same family, from large to small."""
    shape = known_shape(recipe.model.path)
    if shape is None:
        return
    family = [other for other in SHAPES.values() if other.family == shape.family]
    for other in reversed(family[: family.index(shape)]):
        yield Move((f"model.path={other.hub_id}",), "a smaller model", kind="model")


def _tried(
    recipe: Recipe, machine: Machine, moves: Sequence[Move], prompt_tokens: int | None, models: dict[str, Any]
) -> Change | None:
    """Project a recipe with changes; None if it does not fit with them. `models` caches the models already built."""
    overrides = list(dict.fromkeys(override for move in moves for override in move.overrides))
    count = next((move.num_gpus for move in moves if move.num_gpus is not None), machine.num_gpus)
    changed = build_recipe(json.loads(recipe.to_json()), overrides)
    key = changed.model.model_dump_json(exclude={"max_pixels"}) + changed.lora.model_dump_json()
    if key not in models:
        models[key] = empty_model(changed)[0]
    job = job_of(changed, models[key], prompt_tokens)
    projection = project(job, replace(machine, num_gpus=count))
    return Change(tuple(moves), projection, job.sizes.host_bytes) if projection.fits else None
