"""Which model of a run a scorecard was measured on.

A scorecard records the identity of the model folder that was asked (`folder_identity`). A checkpoint is not a model
folder, so its models are exported again as `vcsd export` does, one after another, until every identity is found.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from vcsd.checkpoint.check import DamagedCheckpointError
from vcsd.checkpoint.export import DTYPES, WHAT, export
from vcsd.checkpoint.folder import checkpoints_of
from vcsd.checkpoint.saved import shards_of
from vcsd.errors import ConfigError
from vcsd.evaluation.asking.model_answerer import folder_identity
from vcsd.lora.base_record import BASE
from vcsd.models.hub import local_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vcsd.evaluation.scoring.scorecard import Scorecard

log = logging.getLogger(__name__)


def asked_weights(card: Scorecard) -> str | None:
    """Return the identity of the weights that were asked; None if a server did not report it."""
    asker = card.made_with.get("asker")
    if not isinstance(asker, dict):
        return None
    identity = asker.get("weights" if "server" in asker else "model")
    return identity if isinstance(identity, str) else None


def name_models(cards: Sequence[tuple[Path, Scorecard]], run: Path, base: str, *, moved: Path | None) -> list[str]:
    """Name the model of each scorecard: the base, or a student or teacher of the run.

    `base` is the path or hub id with which the run started, `moved` the folder where it is now, if it was moved.
    Raise a ConfigError for a scorecard of any other model.
    """
    asked = [(path, asked_weights(card)) for path, card in cards]
    wanted = {weights for _, weights in asked}
    if unknown := dict.fromkeys(path for path, weights in asked if weights is None):
        advice = "The server did not report them. Evaluate the model's folder, without --server."
        raise ConfigError(f"--scores {path} does not say which weights answered. {advice}" for path in unknown)
    names: dict[str | None, str] = {}
    models = _models(run, base, moved)
    while not names.keys() >= wanted and (model := next(models, None)):
        identity, name = model
        names.setdefault(identity, name)
    advice = f"or on an export by another version of transformers. Evaluate these: vcsd eval {run} --out FOLDER."
    if moved is None and local_folder(base) is None:
        advice += f" If it was measured on the base, {base}, which does not exist here: add --base FOLDER."
    if others := dict.fromkeys(path for path, weights in asked if weights not in names):
        models_of = f"the base, students and teachers of {run}"
        raise ConfigError(
            f"--scores {path} was measured on other weights than {models_of}, {advice}" for path in others
        )
    return [names[weights] for _, weights in asked]


def _models(run: Path, base: str, moved: Path | None) -> Iterator[tuple[str, str]]:
    """Yield the identities and names of a run's models, the most likely ones first."""
    exports = [
        (step, checkpoint, what, dtype)
        for step, checkpoint in reversed(checkpoints_of(run).items())
        for what, dtype in product(WHAT, DTYPES)
        if (weights := checkpoint / f"{what}.safetensors").is_file() or shards_of(weights).is_dir()
    ]
    yield from _exported(exports[:1], moved)
    if (folder := moved or local_folder(base)) is not None:
        yield folder_identity(folder), "the base"
    yield from _exported(exports[1:], moved)


def _exported(exports: Sequence[tuple[int, Path, str, str]], moved: Path | None) -> Iterator[tuple[str, str]]:
    """Export models one after the other. Skip damaged checkpoints: the latest one has been checked."""
    for step, checkpoint, what, dtype in exports:
        log.info("Comparing --scores with the %s after step %d in %s.", what, step, dtype)
        base = moved if (checkpoint / BASE).is_file() else None  # only adapters need it
        with TemporaryDirectory(prefix="vcsd-scored-") as place, suppress(DamagedCheckpointError):
            export(checkpoint, Path(place) / what, what=what, dtype=dtype, base=base)
            yield folder_identity(Path(place) / what), f"the {what} after step {step} in {dtype}"
