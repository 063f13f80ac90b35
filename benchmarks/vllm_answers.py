"""Compare the answers of vLLM with those of transformers, on the shipped world model.

    .vllm/bin/python benchmarks/vllm_answers.py statistics --out benchmarks/results/vllm_statistics.json
    .vllm/bin/python benchmarks/vllm_answers.py contrast --out benchmarks/results/vllm_contrast.json

`statistics`: both engines draw 8 rollouts of each of 250 prompts, as a step of training would. They use different
random numbers, so length, entropy and accuracy must agree within sampling error. Entropy is the mean of -log p of a
whole response, in nats. Rollouts of a prompt are averaged and compared prompt by prompt; the error is that of the mean
difference. Transformers with another seed shows what chance does.

`contrast`: both engines answer the prompts greedily, plainly and by contrast decoding: whether their tokens are equal,
and how much processor time they take.

Needs vLLM: `make .vllm/.installed` builds an environment for a CPU. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from shapes import command_line
from vcsd.bases.measure import last_answer
from vcsd.bases.shipped_bases import shipped_base
from vcsd.method import METHODS
from vcsd.models.encode import encode
from vcsd.models.hub import load_model
from vcsd.models.processor import load_processor
from vcsd.rollout.contrast_engine import ContrastEngine, pair
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.fixed.proven_answers import ProvenAnswers
from vcsd.rollout.sampling import Sampling
from vcsd.views import VIEWS
from vcsd.world.questions.examples import training_examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.rollout.engine import Sampled
    from vcsd.types import Example

MAX_NEW_TOKENS = 40
"""As in the world's recipes."""

VCSD = METHODS["vcsd"]


class World:
    """The shipped base in float32, and prompts of its world."""

    def __init__(self, num_prompts: int) -> None:
        self.folder = shipped_base("qwen3_vl")
        self.processor = load_processor(self.folder)
        self.model = load_model(self.folder, torch.float32).eval()
        self.examples: list[Example] = training_examples(num_prompts)
        self.prompts = [encode(self.processor, VIEWS["original"](example)) for example in self.examples]
        self.tokenizer = self.processor.tokenizer

    def by_vllm(self, *, contrast: bool = False) -> ProvenAnswers:
        method = VCSD if contrast else None
        return ProvenAnswers(self.model, self.folder, torch.float32, tokenizer=self.tokenizer, contrast=method)


def measured(world: World, sampled: Sampled, num_rollouts: int) -> dict[str, Any]:
    """Per-prompt means of what the rollouts are like."""
    assert sampled.log_probs is not None
    answers = {example.id: example.answer for example in world.examples}
    columns: dict[str, list[float]] = {"length": [], "entropy": [], "right": [], "ended": []}
    for rollout, log_p in zip(sampled.rollouts, sampled.log_probs, strict=True):
        text = world.tokenizer.decode(list(rollout.token_ids), skip_special_tokens=True)
        columns["length"].append(len(rollout.token_ids))
        columns["entropy"].append(-log_p.double().sum().item())
        columns["right"].append(float(last_answer(text) == answers[rollout.example_id]))
        columns["ended"].append(float(rollout.stop == "end"))
    return {name: torch.tensor(values).double().view(-1, num_rollouts).mean(1) for name, values in columns.items()}


def compared(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both means, their difference, and its standard error over prompts."""
    found = {}
    for name, first in one.items():
        change = other[name] - first
        error = change.std().item() / math.sqrt(len(change))
        row = {"first": first.mean().item(), "second": other[name].mean().item(), "difference": change.mean().item()}
        found[name] = {**row, "standard_error": error, "z": change.mean().item() / error if error else 0.0}
    return found


def statistics(options: argparse.Namespace) -> dict[str, Any]:
    """Sample the same prompts with both engines, and with transformers once more."""
    world = World(options.prompts)
    own = TransformersEngine(world.model, tokenizer=world.tokenizer)
    sampling, results, seconds = Sampling(max_new_tokens=MAX_NEW_TOKENS), {}, {}
    vllm = world.by_vllm()
    vllm.sample(world.prompts[:2], sampling, num_rollouts=1, seed=9)  # sends the weights
    for name, engine, seed in (("transformers", own, 0), ("transformers again", own, 1), ("vllm", vllm, 0)):
        start = time.process_time()
        options_of = {"num_rollouts": options.rollouts, "seed": seed, "with_log_probs": True}
        sampled = engine.sample(world.prompts, sampling, **options_of)  # type: ignore[attr-defined]
        seconds[name] = time.process_time() - start
        results[name] = measured(world, sampled, options.rollouts)
    return {
        "answers": options.prompts * options.rollouts,
        "prompts": options.prompts,
        "vllm": compared(results["transformers"], results["vllm"]),
        "chance": compared(results["transformers"], results["transformers again"]),
        "cpu_seconds": seconds,
    }


def contrast(options: argparse.Namespace) -> dict[str, Any]:
    """Answer the same prompts greedily with both engines, plainly and by contrast decoding."""
    world = World(options.prompts)
    pairs = [pair(example, VCSD, world.processor) for example in world.examples]
    vllm = world.by_vllm(contrast=True)
    greedy = Sampling(max_new_tokens=MAX_NEW_TOKENS, temperature=0.0)
    vllm.sample(world.prompts[:2], greedy, num_rollouts=1, seed=0)  # sends the weights
    transformers = {
        "plain": TransformersEngine(world.model, tokenizer=world.tokenizer),
        "contrast": ContrastEngine(world.model, method=VCSD, tokenizer=world.tokenizer),
    }
    found: dict[str, Any] = {"prompts": options.prompts}
    drawn: dict[str, Any] = {}
    for way, asked in (("plain", world.prompts), ("contrast", pairs)):
        before, seconds = drawn.get("vllm"), {}
        for name, engine in (("transformers", transformers[way]), ("vllm", vllm)):
            start = time.process_time()
            sampled = engine.sample(asked, greedy, num_rollouts=1, seed=0)  # type: ignore[attr-defined]
            seconds[name] = time.process_time() - start
            drawn[name] = [rollout.token_ids for rollout in sampled.rollouts]
        same = [a == b for a, b in zip(drawn["transformers"], drawn["vllm"], strict=True)]
        tokens = sum(len(ids) for ids in drawn["vllm"])
        found[way] = {"equal_answers": sum(same), "tokens": tokens, "cpu_seconds": seconds}
        if before is not None:
            found["changed_by_contrast"] = sum(a != b for a, b in zip(before, drawn["vllm"], strict=True))
    found["out_of_step"] = vllm.engine.num_out_of_step  # type: ignore[union-attr]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["statistics", "contrast"])
    parser.add_argument("--prompts", type=int, default=250)
    parser.add_argument("--rollouts", type=int, default=8, help="of each prompt, for statistics")
    parser.add_argument("--out", type=Path, help="file for the JSON")
    options = parser.parse_args(arguments)
    part = {"statistics": statistics, "contrast": contrast}[options.part]
    result = {"command": command_line(), **part(options)}
    text = json.dumps(result, indent=1)
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
