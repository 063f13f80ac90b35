"""The card of a base: how it was made and what it can do, as JSON and as a page."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, TypedDict

from vcsd.checkpoint.whole_file import write_whole
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vcsd.bases.curriculum import Curriculum
    from vcsd.types import JsonValue

CARD = "card.json"

_REPAIR = "Make the base again with `vcsd world pretrain`, or restore the card."


class BaseIdentity(TypedDict):
    """What determines a base: two bases with the same identity are equal. `parameters` is the world's digest."""

    family: str
    size: str
    seed: int
    parameters: str


class BaseScores(TypedDict, total=False):
    """What a base can do, in percent, measured on `questions` questions per suite of a split."""

    split: str
    questions: int
    sight: dict[str, float]
    greedy: dict[str, float]
    contrast: dict[str, float]
    hint: float
    training_prompts: float
    kinds: dict[str, float]
    kinds_contrast: dict[str, float]
    skewed: float
    skewed_contrast: float


class BaseCard(BaseIdentity):
    """The card of a base. `measured` is by stage of pre-training, or by split if it was measured later."""

    command: str
    seconds: float
    device: str
    versions: dict[str, str]
    notes: list[str]
    world: dict[str, JsonValue]
    measured: dict[str, BaseScores]


def write_card(
    folder: Path,
    plan: Curriculum,
    measured: dict[str, BaseScores],
    seconds: float,
    command: str,
    notes: Sequence[str] = (),
) -> None:
    """Write the card of a new base into its folder."""
    import torch
    import transformers

    card: BaseCard = {
        **plan.identity(),
        "command": command,
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "notes": list(notes),
        "world": dataclasses.asdict(plan.parameters),
        "measured": measured,
    }
    _write(folder, card)


def read_card(folder: Path) -> BaseCard:
    """Read the card of a base. Only its world is checked: `refuse_incomplete_card` checks the rest."""
    path = folder / CARD
    if not path.is_file():
        raise ConfigError([f"{folder} is not a base of the world: it has no {CARD}. `vcsd world pretrain` makes one."])
    try:
        card: BaseCard = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError([f"{path} is not JSON: {error}. {_REPAIR}"]) from None
    if not isinstance(card, dict) or not isinstance(card.get("world", {}), dict):
        raise ConfigError([f"{path} is not the card of a base: it needs an object with an object 'world'. {_REPAIR}"])
    return card


def refuse_incomplete_card(folder: Path) -> None:
    """Raise unless a base's card has all that its world and its page need. Call it before minutes of measuring."""
    from vcsd.world.parameters import Parameters

    card = read_card(folder)
    try:
        Parameters.from_json(card["world"])
        card["measured"].update({})
        list(_page(card))
    except KeyError as error:
        raise ConfigError([f"{folder / CARD} lacks {error}. {_REPAIR}"]) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError([f"{folder / CARD} is not the card of a base: {error}. {_REPAIR}"]) from None


def record(folder: Path, scores: BaseScores) -> None:
    """Add scores that were measured later to a base's card, under their split."""
    card = read_card(folder)
    card["measured"][scores["split"]] = scores
    card["notes"] = list(card.get("notes", ()))
    _write(folder, card)


def _write(folder: Path, card: BaseCard) -> None:
    """Write the page and, last, the card: it marks the base as finished."""
    write_whole(folder / "README.md", "\n".join(_page(card)))
    write_whole(folder / CARD, json.dumps(card, indent=1) + "\n")


def _page(card: BaseCard) -> Iterator[str]:
    world, measured = card["world"], card["measured"]
    yield f"# A tiny {card['family']} of the offline world, {card['size']}, seed {card['seed']}"
    yield (
        "\nIt sees, but trusts its prior. It is for experiments with Visual Contrastive Self-Distillation, not for "
        "use.\n"
    )
    yield f"- Data: drawn by `vcsd.world` with parameters {card['parameters']}. No real pictures, no people."
    yield (
        f"- Steps: {world['sight_steps']} with descriptions, {world['answer_steps']} with true answers, "
        f"{world['sway_steps']} with swayed answers; batches of {world['batch']}."
    )
    yield f"- Command: `{card['command']}`; {card['seconds']:.0f} s on {card['device']}."
    yield from (f"- {note}" for note in card.get("notes", ()))
    rows = {
        "after true answers, dev": measured.get("answer", {}).get("greedy"),
        "the base, greedy, dev": measured.get("sway", {}).get("greedy"),
        "the base, contrast decoding, dev": measured.get("sway", {}).get("contrast"),
        "the base, greedy, test": measured.get("test", {}).get("greedy"),
        "the base, contrast decoding, test": measured.get("test", {}).get("contrast"),
    }
    columns = next((list(row) for row in rows.values() if row), [])
    yield "\n| right answers, percent | " + " | ".join(columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for name, row in rows.items():
        if row:
            yield f"| {name} | " + " | ".join(f"{row[column]:.1f}" for column in columns) + " |"
    if scores := measured.get("test") or measured.get("sway"):
        seen = ", ".join(f"{share:.1f} in pictures of side {side}" for side, share in scores["sight"].items())
        yield f"\nThings named in the right cell: {seen}. Right with the answer as a hint: {scores['hint']:.1f}."
        yield (
            f"On scenes as skewed as the prior: {scores['skewed']:.1f}; "
            f"with contrast decoding: {scores['skewed_contrast']:.1f}."
        )
    yield ""
