"""Vision features that are computed once and reused, and when they are still valid.

The features of an image are the same in every pass that uses the same vision weights:

    features = FeatureCache()
    with features.step(student, teacher):       # looks at the weights of both towers
        score(teacher, groups, features)        # images with a key are looked up; the rest are computed
        score(student, groups, features.for_student)

With a frozen tower, an original image is computed once per step for student and teacher. A constant image (black)
depends only on its grid: it is computed once per version of the weights, as long as the most recent ones fit into
`CONSTANT_BYTES`. While the tower trains, the student computes its own features and constant images last one step.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from vcsd.models.family import base_model
from vcsd.models.inside import reshard

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

CONSTANT_BYTES = 512 * 2**20
"""Features of constant images that are kept between steps: images of many sizes have many grids."""

Levels = tuple[Tensor, ...]
"""An image's features: those for the embeddings, then one tensor per deepstack layer."""


@dataclass(frozen=True)
class Constant:
    """The key of an image whose content depends on its grid alone."""

    name: str


class FeatureCache:
    """Vision features by image key and grid, valid for one step, or for one version of the weights if constant."""

    def __init__(self, agree: Callable[[bool], bool] = bool) -> None:
        """`agree` returns whether something that is true on this rank is true on all ranks that share the weights."""
        self._agree = agree
        self._version: Hashable = None
        self._of_step: dict[Hashable, Levels] = {}
        self._constant: dict[Hashable, Levels] = {}
        self._compared: tuple[Hashable, bool] | None = None
        self._serves_student = False
        self.output_class: Any = None
        self.num_computed = 0
        """Images that a tower has computed for this cache."""

    @property
    def for_student(self) -> FeatureCache | None:
        """This cache if the student may use it, with a frozen tower that has the teacher's weights; else None."""
        return self if self._serves_student else None

    @contextmanager
    def step(self, student: nn.Module, teacher: nn.Module) -> Iterator[None]:
        """Serve the passes of one step. Afterwards only constant images of a frozen tower are kept."""
        reshard(student, teacher)  # versions can be compared only while the weights are sharded
        is_frozen = not trains(tower_of(student))
        self._serves_student = is_frozen and self.has_one_tower(student, teacher)
        self.begin_step(_versions(student, teacher) if is_frozen else None)
        try:
            yield
        finally:
            self.end_step()

    def has_one_tower(self, student: nn.Module, teacher: nn.Module) -> bool:
        """Whether both towers have the same weights; compared once per version of them."""
        version = _versions(student, teacher)
        if self._compared is None or self._compared[0] != version:
            self._compared = version, self._agree(same_weights(tower_of(student), tower_of(teacher)))
        return self._compared[1]

    def begin_step(self, version: Hashable | None) -> None:
        """Drop the last step's images, and constant ones too if the version of the weights is new or None."""
        self._of_step.clear()
        if version is None or version != self._version:
            self._constant.clear()
        self._version = version

    def end_step(self) -> None:
        """Drop this step's images, and the oldest constant ones beyond `CONSTANT_BYTES`."""
        self._of_step.clear()
        if self._version is None:
            self._constant.clear()
        sizes = {name: sum(level.nbytes for level in levels) for name, levels in self._constant.items()}
        total = sum(sizes.values())
        for name, size in sizes.items():  # least recently used first
            if total <= CONSTANT_BYTES:
                break
            del self._constant[name]
            total -= size

    def outlives_step(self, key: Hashable) -> bool:
        """Whether an image with this key is kept for later steps."""
        return self._version is not None and isinstance(key, Constant)

    def store_of(self, key: Hashable) -> dict[Hashable, Levels]:
        """Where an image with this key is kept."""
        return self._constant if isinstance(key, Constant) else self._of_step


def tower_of(model: nn.Module) -> nn.Module | None:
    """The tower whose features can be cached; None in the fallback family."""
    tower: nn.Module | None = getattr(base_model(model).base_model, "visual", None)
    return tower


def trains(tower: nn.Module | None) -> bool:
    """Whether any of a tower's weights is trained."""
    return tower is not None and any(parameter.requires_grad for parameter in tower.parameters())


def _versions(student: nn.Module, teacher: nn.Module) -> Hashable:
    return version_of(tower_of(student)), version_of(tower_of(teacher))


def version_of(tower: nn.Module | None) -> Hashable:
    """A value that changes when a tower's weights are replaced or changed in place, unless through `.data`."""
    return () if tower is None else tuple((x.data_ptr(), x._version) for x in map(_local, tower.parameters()))


def same_weights(one: nn.Module | None, other: nn.Module | None) -> bool:
    """Whether two towers have equal weights. If they are sharded, this rank compares its own shards."""
    if one is None or other is None or one is other:
        return one is other
    mine, theirs = ([_local(x) for x in tower.parameters()] for tower in (one, other))
    has_equal_shapes = [x.shape for x in mine] == [x.shape for x in theirs]
    return has_equal_shapes and all(bool((x == y.to(x.device)).all()) for x, y in zip(mine, theirs, strict=True))


def _local(x: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    own: Tensor = getattr(x, "to_local", lambda: x)()
    return own.detach()
