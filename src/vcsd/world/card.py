"""The card of a base: what it was taught, by which command, and what it can do; as JSON and as a page."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vcsd.world.parameters import Parameters


CARD = "card.json"


def write_card(
    folder: Path,
    identity: Mapping[str, Any],
    parameters: Parameters,
    measured: Mapping[str, Any],
    seconds: float,
    command: str,
) -> None:
    """Write both files into the folder of a base."""
    import torch
    import transformers

    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    card = {
        **identity,
        "command": command,
        "seconds": round(seconds, 1),
        "device": where,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "world": dataclasses.asdict(parameters),
        "measured": dict(measured),
    }
    (folder / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_page(card), encoding="utf-8")


def _page(card: Mapping[str, Any]) -> str:
    world, final = card["world"], card["measured"].get("sway", {})
    lines = [
        f"# A tiny {card['family']} of the world, {card['size']}, seed {card['seed']}",
        "",
        "It sees, and it trusts its prior: made to try Visual Contrastive Self-Distillation on, not to be used.",
        "",
        f"- Data: drawn by `vcsd.world`, parameters {card['parameters']}. No real pictures, no people.",
        f"- Steps: {world['sight_steps']} of descriptions, {world['answer_steps']} of true answers, "
        f"{world['sway_steps']} of swayed answers; batches of {world['batch']}.",
        f"- Command: `{card['command']}`; {card['seconds']:.0f} s on {card['device']}.",
        "",
        "| measured on the split dev | " + " | ".join(final.get("greedy", {})) + " |",
        "|---|" + "---:|" * len(final.get("greedy", {})),
    ]
    rows = {
        "after true answers": card["measured"].get("answer", {}).get("greedy", {}),
        "the base, greedy": final.get("greedy", {}),
        "the base, contrast decoding": final.get("contrast", {}),
    }
    lines += [
        f"| {name} | " + " | ".join(f"{value:.1f}" for value in row.values()) + " |" for name, row in rows.items()
    ]
    lines += [
        "",
        f"Sight by side of the picture: {final.get('sight')}. With the answer as a hint: {final.get('hint')}. "
        f"On skewed scenes: {final.get('skewed')}.",
        "",
    ]
    return "\n".join(lines)
