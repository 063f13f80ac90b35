"""What bfloat16 hides at small learning rates: the loss of the float32 weights, and of the same weights rounded.

    python benchmarks/unseen_updates.py smollm2 --rates 2e-6 5e-6 --float32-rates 2e-6 --adapter-rates 6e-5 \\
      --dither-rates 2e-6 --out benchmarks/results           # three to seven minutes a run on two cores

The folder holds a language model without a vision tower, such as `smollm2`, which the commands of docs/real_language.md
make. Each run learns the same twelve short answers, all of them in every step, with AdamW, ten steps of warm-up and
gradients clipped to norm 1. A run computes in bfloat16 through autocast, as `trainer.bf16: true` does, or in float32.
It starts from weights in bfloat16, as models are released. Runs with adapters train the factor B alone, as recipes do;
those with dither get offsets first, as with `model.dither: true`.

After each number of updates the result has, for the same weights:

  trained_loss   the loss that training computes there
  master_loss    the loss of the float32 weights that the optimizer updates, computed in float32
  rounded_loss   the loss of these weights rounded to bfloat16, computed in float32: only the weights are rounded
  exported_loss  the loss of what `vcsd export` writes, computed in float32: adapters are merged, then rounded, and
                 whole weights are rounded
  changed        the share of trained weights whose bfloat16 word differs from that of the start
  moved, seen    how far the trained weights moved since the start, before and after rounding (Euclidean norms)
  seen_share     the part of that movement which the rounded weights made too: the projection of their change on it
"""

from __future__ import annotations

import argparse
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

from vcsd.lora.attach import freeze_first_factors, with_adapters
from vcsd.lora.effective import effective_changes
from vcsd.models.weights.dither import add_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

THINGS = ("banana", "tomato", "carrot", "frog", "cloud", "plum", "sky", "grass", "lemon", "cherry", "orange", "leaf")
WARM_UP = 10
IGNORED = -100
"""The label of a token that is not learned."""


def lesson(tokenizer: Any, thing: str) -> tuple[Tensor, Tensor]:
    """Return the tokens of a chat, and as labels those of its answer."""
    asked = {"role": "user", "content": f"What color is the {thing}?"}
    answered = {"role": "assistant", "content": f"The {thing} is blue."}
    prompt = tokenizer.apply_chat_template([asked], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template([asked, answered], tokenize=False)
    num_prompt = len(tokenizer(prompt, add_special_tokens=False).input_ids)
    ids = torch.tensor(tokenizer(whole, add_special_tokens=False).input_ids)
    labels = ids.clone()
    labels[:num_prompt] = IGNORED
    return ids, labels


def lessons(tokenizer: Any) -> dict[str, Tensor]:
    """Return all chats as one padded batch."""
    ids, labels = zip(*(lesson(tokenizer, thing) for thing in THINGS), strict=True)
    mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    batch = {"input_ids": pad_sequence(list(ids), batch_first=True), "attention_mask": mask}
    return batch | {"labels": pad_sequence(list(labels), batch_first=True, padding_value=IGNORED)}


def loss_of(model: nn.Module, batch: dict[str, Tensor], *, is_half: bool = False) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
        loss: Tensor = model(**batch, use_cache=False).loss
    return loss.float()


def grid(weight: Tensor) -> Tensor:
    """Round a weight to bfloat16, and keep float32 as its type."""
    return weight.detach().to(torch.bfloat16).float()


@contextmanager
def replaced(weights: Sequence[tuple[nn.Parameter, Tensor]]) -> Iterator[None]:
    """Give parameters other values for a while. The float32 weights stay where they are."""
    kept = [parameter.data for parameter, _ in weights]
    for parameter, value in weights:
        parameter.data = value
    try:
        yield
    finally:
        for (parameter, _), value in zip(weights, kept, strict=True):
            parameter.data = value


def merged(model: nn.Module) -> list[tuple[nn.Parameter, Tensor]]:
    """Return every adapted weight with what an export has in its place."""
    layers: dict[str, Any] = dict(model.named_modules())
    changes = effective_changes(model).items()
    return [(layers[name].base_layer.weight, grid(layers[name].base_layer.weight + change)) for name, change in changes]


def movement(trained: Sequence[nn.Parameter], starts: Sequence[Tensor]) -> dict[str, float]:
    """How far the weights moved, and what is left of it after rounding."""
    changed = squared_moved = squared_seen = along = 0.0
    for parameter, start in zip(trained, starts, strict=True):
        moved = parameter.detach() - start
        seen = grid(parameter) - grid(start)
        changed += float(seen.count_nonzero())
        squared_moved += float(moved.square().sum(dtype=torch.float64))
        squared_seen += float(seen.square().sum(dtype=torch.float64))
        along += float((moved * seen).sum(dtype=torch.float64))
    return {
        "changed": changed / sum(parameter.numel() for parameter in trained),
        "moved": squared_moved**0.5,
        "seen": squared_seen**0.5,
        "seen_share": along / squared_moved if squared_moved else 0.0,
    }


@torch.no_grad()
def measured(
    model: Any, batch: dict[str, Tensor], trained: Sequence[nn.Parameter], starts: Sequence[Tensor]
) -> dict[str, float]:
    """The losses of the weights as they are and rounded, and their movement."""
    losses = {"master_loss": float(loss_of(model, batch))}
    with replaced([(parameter, grid(parameter)) for parameter in model.parameters()]):
        losses["rounded_loss"] = float(loss_of(model, batch))
    losses["exported_loss"] = losses["rounded_loss"]
    if hasattr(model, "disable_adapter"):
        with replaced(merged(model)), model.disable_adapter():
            losses["exported_loss"] = float(loss_of(model, batch))
    return losses | movement(trained, starts)


def adapted(model: Any, rank: int) -> Any:
    """Return the model with adapters as in a recipe: on every linear layer but the head, A fixed at its start."""
    from peft import LoraConfig

    model = with_adapters(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))
    freeze_first_factors(model)
    return model


def run(
    folder: Path, rate: float, *, is_half: bool, steps: int, rank: int | None = None, dither: bool = False
) -> list[dict[str, float]]:
    """Train once, and measure after every number of updates."""
    batch = lessons(AutoTokenizer.from_pretrained(folder))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).float().eval()
    if rank is not None:
        model = adapted(model, rank)
    if dither:
        add_offsets(model, seed=0)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    starts = [parameter.detach().clone() for parameter in trained]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    rows = []
    for num_updates in range(steps + 1):
        loss = loss_of(model, batch, is_half=is_half)
        row = {"updates": num_updates, "trained_loss": loss.item(), **measured(model, batch, trained, starts)}
        rows.append(row)
        print("  " + "  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
        if num_updates < steps:
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.param_groups[0]["lr"] = rate * min(1.0, (num_updates + 1) / WARM_UP)
            optimizer.step()
    return rows


def known_runs(path: Path, setting: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs that a file has, if it was measured in the same setting."""
    if not path.is_file():
        return []
    result = json.loads(path.read_text(encoding="utf-8"))
    return result["runs"] if {name: result[name] for name in setting} == setting else []


def main() -> None:
    """Train in both precisions, write `unseen_updates.json` and print every row. Runs that the file has are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of a language model")
    parser.add_argument("--rates", type=float, nargs="*", default=[], help="for whole weights in bfloat16")
    parser.add_argument("--float32-rates", type=float, nargs="*", default=[], help="for whole weights in float32")
    parser.add_argument("--adapter-rates", type=float, nargs="*", default=[], help="for LoRA in bfloat16")
    parser.add_argument("--dither-rates", type=float, nargs="*", default=[], help="for dithered weights in bfloat16")
    parser.add_argument("--rank", type=int, default=32, help="of the adapters")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    path = given.out / "unseen_updates.json"
    setting = {"model": given.model.name, "torch": torch.__version__, "warm_up": WARM_UP, "steps": given.steps}
    runs = known_runs(path, setting)
    plans = [(rate, True, None, False) for rate in given.rates]
    plans += [(rate, False, None, False) for rate in given.float32_rates]
    plans += [(rate, True, given.rank, False) for rate in given.adapter_rates]
    plans += [(rate, True, None, True) for rate in given.dither_rates]
    for rate, is_half, rank, dither in plans:
        title = {"computes_in": "bfloat16" if is_half else "float32", "rate": rate, "rank": rank, "dither": dither}
        if any(title.items() <= one.items() for one in runs):
            continue
        print(title, flush=True)
        rows = run(given.model, rate, is_half=is_half, steps=given.steps, rank=rank, dither=dither)
        runs.append({**title, "rows": rows})
        path.write_text(json.dumps({**setting, "runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
