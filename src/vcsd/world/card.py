"""The card of a base: what it was taught, by which command, and what it can do; as JSON and as a page."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from vcsd.world.parameters import Parameters

CARD = "card.json"

_MEND = "Make the base again with `vcsd world pretrain`, or put the card back as it was."


def write_card(
    folder: Path,
    identity: Mapping[str, Any],
    parameters: Parameters,
    measured: Mapping[str, Any],
    seconds: float,
    command: str,
) -> None:
    """Write the card of a fresh base into its folder."""
    import torch
    import transformers

    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    card = {
        **identity,
        "command": command,
        "seconds": round(seconds, 1),
        "device": where,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "notes": [],
        "world": dataclasses.asdict(parameters),
        "measured": dict(measured),
    }
    _write(folder, card)


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a base."""
    path = folder / CARD
    if not path.is_file():
        raise ConfigError([f"{folder} is not a base of the world: it has no {CARD}. `vcsd world pretrain` makes one."])
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError([f"{path} is not JSON: {error}. {_MEND}"]) from None
    if not isinstance(card, dict) or not isinstance(card.get("world", {}), dict):
        raise ConfigError([f"{path} is not the card of a base: an object with an object 'world' is needed. {_MEND}"])
    return card


def refuse_half_card(folder: Path) -> None:
    """Raise unless a world and a page can be made of a base's card: better now than after minutes of measuring."""
    from vcsd.world.parameters import Parameters

    card = read_card(folder)
    try:
        world: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in card["world"].items()}
        Parameters(**world)
        card["measured"].update({})
        list(_page(card))
    except KeyError as error:
        raise ConfigError([f"{folder / CARD} lacks {error}. {_MEND}"]) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError([f"{folder / CARD} is not the card of a base: {error}. {_MEND}"]) from None


def record(folder: Path, found: Mapping[str, Any], notes: tuple[str, ...] = ()) -> None:
    """Add what was measured later to a base's card, by its split, and notes."""
    card = read_card(folder)
    card["measured"][found["split"]] = dict(found)
    card["notes"] = [*card.get("notes", ()), *notes]
    _write(folder, card)


def _write(folder: Path, card: Mapping[str, Any]) -> None:
    (folder / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text("\n".join(_page(card)), encoding="utf-8")


def _page(card: Mapping[str, Any]) -> Iterator[str]:
    world, measured = card["world"], card["measured"]
    yield f"# A tiny {card['family']} of the world, {card['size']}, seed {card['seed']}"
    yield "\nIt sees, and it trusts its prior: made to try Visual Contrastive Self-Distillation on, not to be used.\n"
    yield f"- Data: drawn by `vcsd.world`, parameters {card['parameters']}. No real pictures, no people."
    yield (
        f"- Steps: {world['sight_steps']} of descriptions, {world['answer_steps']} of true answers, "
        f"{world['sway_steps']} of swayed answers; batches of {world['batch']}."
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
    for found in (measured.get("test") or measured.get("sway"),):
        if found:
            seen = ", ".join(f"{share:.1f} in pictures of side {side}" for side, share in found["sight"].items())
            yield f"\nThings named in the right cell: {seen}. Right with the answer as a hint: {found['hint']:.1f}."
            yield (
                f"On scenes as skewed as the prior: {found['skewed']:.1f}, "
                f"by contrast decoding {found['skewed_contrast']:.1f}."
            )
    yield ""
