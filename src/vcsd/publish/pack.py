"""Pack a run: read its folder, and leave out what belongs to the machine."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from vcsd.checkpoint.check import check_checkpoint
from vcsd.checkpoint.folder import latest_checkpoint
from vcsd.checkpoint.whole_file import read_object
from vcsd.errors import ConfigError, refuse_missing_folder
from vcsd.evaluation.live_lines import FILE as EVALUATIONS
from vcsd.evaluation.scoring.compare import load_results
from vcsd.models.hub import hub_id
from vcsd.monitor.lines import read_lines
from vcsd.monitor.machine import ENVIRONMENT, sessions_of
from vcsd.publish.capsule import FORMAT, Capsule
from vcsd.publish.model_card import without_folders
from vcsd.publish.scored_models import name_models
from vcsd.trainer.resumable import PROVENANCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.monitor.machine import Session

_OF_THE_MACHINE = ("seconds", "peak_bytes")
"""The first parts of the names of metrics that depend on the machine."""


def pack(run: Path, scores: Sequence[Path] = (), *, base: Path | None = None) -> Capsule:
    """Return the capsule of a run up to its latest checkpoint.

    `scores` are result folders of `vcsd eval` for models of this run; others are refused. `base` is the folder of the
    run's base, if it was moved.
    """
    refuse_missing_folder(run)
    checkpoint = latest_checkpoint(run)
    if checkpoint is None:
        advice = "Pass a folder that trainer.output_dir named, of a run that has saved."
        raise ConfigError([f"{run} holds no checkpoint, so there is nothing to compare a repetition with. {advice}"])
    manifest = check_checkpoint(checkpoint, needs=(PROVENANCE,))
    last = manifest["step"]
    steps = [repeatable(line) for line in read_lines(run / "metrics.jsonl") if _step(line, run) <= last]
    if [line["step"] for line in steps] != list(range(1, last + 1)):
        raise ConfigError([f"{run / 'metrics.jsonl'} lacks steps before the checkpoint of step {last}."])
    return Capsule(
        format=FORMAT,
        recipe=_recipe(run),
        environment={**_object(run / ENVIRONMENT), "sessions": _sessions(run, last)},
        content=checkpoint_content(checkpoint),
        steps=steps,
        evaluations=[repeatable(line) for line in read_lines(run / EVALUATIONS) if _step(line, run) <= last],
        last_step=last,
        weights={name: entry["sha256"] for name, entry in manifest["files"].items() if name.endswith(".safetensors")},
        scorecards=_scorecards(run, scores, base),
    )


def _scorecards(run: Path, scores: Sequence[Path], moved: Path | None) -> list[dict[str, Any]]:
    """Read results, one scorecard for each seed, and name the model of each. Servers and folders are left out."""
    cards = [(path, card) for path in dict.fromkeys(scores) for card in load_results(path)]
    model = _object(run / "config.json").get("model")
    base = str(model.get("path")) if isinstance(model, dict) else ""
    names = name_models(cards, run, base, moved=moved)
    return [_public(card, name) for (_, card), name in zip(cards, names, strict=True)]


def _public(card: Scorecard, name: str) -> dict[str, Any]:
    made_with = cast("dict[str, Any]", without_folders(dict(card.made_with)))
    for key in ("asker", "judge"):
        if isinstance(asked := made_with.get(key), dict):
            made_with[key] = {part: value for part, value in asked.items() if part not in {"server", "servers"}}
    decoded = ", with contrast decoding" if "contrast" in (made_with.get("asker") or {}) else ""
    return {"measured_on": name + decoded, **json.loads(card.to_json()), "made_with": made_with}


def _sessions(run: Path, last: int) -> list[Session]:
    """The machines that made the steps up to the last one."""
    try:
        return [session for session in sessions_of(run) if session["after_step"] < last]
    except ValueError as error:
        raise ConfigError([f"{error}. Restore the file, or remove it if the run was never resumed."]) from None


def _recipe(run: Path) -> dict[str, Any]:
    """The recipe with only the last name of a model's folder: `models/mine` would look like a hub id."""
    recipe = cast("dict[str, Any]", without_folders(_object(run / "config.json")))
    model = recipe.get("model")
    if isinstance(model, dict) and hub_id(str(model.get("path"))) is None:
        recipe["model"] = {**model, "path": PurePath(str(model.get("path"))).name}
    return recipe


def repeatable(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of metrics without those that depend on the machine.

    >>> repeatable({"step": 1, "loss": 0.5, "seconds/rollout": 3.1, "peak_bytes/student": 7})
    {'step': 1, 'loss': 0.5}
    """
    return {name: value for name, value in line.items() if name.partition("/")[0] not in _OF_THE_MACHINE}


def _step(line: Mapping[str, Any], run: Path) -> int:
    step = line.get("step")
    if not isinstance(step, int):
        raise ConfigError([f"the metrics or evaluations of {run} have a line without a step. Restore the files."])
    return step


def checkpoint_content(checkpoint: Path) -> dict[str, Any]:
    """Return the hashes of the weights, data and other inputs of a checkpoint's run."""
    content: dict[str, Any] = _object(checkpoint / PROVENANCE)["content"]
    return content


def _object(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run."""
    content = read_object(path)
    if not content:
        raise ConfigError([f"{path} is missing or not as a run writes it. Only runs of vcsd train can be packed."])
    return content
