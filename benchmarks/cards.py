"""Measure what training takes on cards of several sizes: seconds, peak memory of device and host, and the projection.

    PYTHONPATH=src:tests python benchmarks/cards.py --out results/                     # 20 minutes on an H200
    PYTHONPATH=src:tests python benchmarks/cards.py --out results/ --cases lora_2b full_2b
    PYTHONPATH=src:tests python benchmarks/cards.py --out /tmp/b --tiny                # check that it runs, on a CPU
    PYTHONPATH=src:tests python benchmarks/cards.py --out benchmarks/results --cases   # print the table again

Each case is a shipped recipe on random weights of the real shapes, trained by VCSDTrainer: 32 prompts with 1,024 visual
tokens, 8 responses each, all forced to 1,024 tokens. torch may not use more memory than the case's card has. A short
step comes first, in which Adam makes its moments and kernels are compiled; two full steps are then measured. Rows have
a fixed number of tokens, so that the projection of `vcsd train --dry-run` can be compared with the peak.

Each case runs in a process of its own. The tests' tiny tokenizer stands in for the released one.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import TrainingArguments

from shapes import random_model
from tiny_examples import picture
from tiny_processor import build_processor
from vcsd.config import load_recipe
from vcsd.projection.machines import CARDS, Machine
from vcsd.projection.needs import empty_model, job_of
from vcsd.projection.project import Projection, project
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings
from vcsd.student import base_dtype, trained
from vcsd.trainer import VCSDTrainer
from vcsd.types import Example

PROMPT_TOKENS, SIDE = 1064, 1024
SCORING = ("teacher", "student", "backward", "update")
"""The phases whose memory is projected. Rollouts take as many prompts at once as fit into what is free."""

SHORT = 32
"""Tokens of a response in the first step."""


@dataclass(frozen=True)
class Case:
    """A recipe, the memory that torch may use, and the tokens of a row."""

    recipe: str
    size: str
    gib: int
    token_budget: int
    changes: list[str] = field(default_factory=list)


CASES = {
    "lora_2b": Case("lora/qwen3_vl_2b_24gb", "2b", 22, 16_384),
    "lora_4b": Case("lora/qwen3_vl_4b_24gb", "4b", 22, 12_288),
    "lora_8b": Case("lora/qwen3_vl_8b_48gb", "8b", 46, 16_384),
    "full_2b": Case("paper/qwen3_vl_2b", "2b", 78, 32_768),
    "full_4b": Case("paper/qwen3_vl_4b", "4b", 139, 32_768),
    "offload_8b": Case("paper/qwen3_vl_8b", "8b", 139, 12_288, ["offload=true"]),
}


class FullLength(VCSDTrainer):
    """Draws responses that never end early, short ones in the first step, and keeps the figures of each step."""

    def _prepare_for_training(self, *given: Any) -> Any:
        prepared = super()._prepare_for_training(*given)
        self.engine.end_ids = [-2]
        self.full, self.measured = self.rollout, []
        return prepared

    def training_step(self, *given: Any) -> torch.Tensor:
        self._keep()
        length = SHORT if self.state.global_step == 0 else self.full.sampling.max_new_tokens
        self.rollout = replace(self.full, sampling=replace(self.full.sampling, max_new_tokens=length))
        self.started = time.perf_counter()
        loss = super().training_step(*given)
        lengths = {len(rollout.token_ids) for rollout in self.seen.batch.rollouts}
        assert lengths == {length}, f"responses of {lengths} tokens instead of {length}"
        return loss

    def _keep(self) -> None:
        """Keep what the step before took."""
        if self.state.global_step:
            peaks = {name: peak / 2**30 for name, peak in self.phases.peak_bytes.items()}
            seconds = time.perf_counter() - self.started
            self.measured.append({"seconds": seconds, "phases": dict(self.phases.seconds), "peak_gib": peaks})
            print(f"step {self.state.global_step}: {json.dumps(self.measured[-1])}", flush=True)


def examples(count: int, side: int) -> list[Example]:
    prompt = ({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "how many?"}]},)
    return [Example(f"large-{i}", (picture(side, side),), prompt, answer="7") for i in range(count)]


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train one case and return its figures next to the projected ones."""
    case, device = CASES[name], torch.device("cuda" if torch.cuda.is_available() else "cpu")
    recipe = load_recipe(case.recipe, [*case.changes, f"token_budget={case.token_budget}"])
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, case.gib * 2**30 / total))
    is_half, tiny = device.type == "cuda", options.tiny
    model = random_model("qwen3_vl", "tiny" if tiny else case.size, base_dtype(recipe, is_half=is_half), device.type)
    processor = build_processor(max_pixels=SIDE * SIDE)
    if tiny:
        processor.image_processor.patch_size = model.config.vision_config.patch_size
    for kind in ("image", "video"):
        setattr(model.config, f"{kind}_token_id", processor.tokenizer.convert_tokens_to_ids(f"<|{kind}_pad|>"))
    for kind in ("start", "end"):
        token = processor.tokenizer.convert_tokens_to_ids(f"<|vision_{kind}|>")
        setattr(model.config, f"vision_{kind}_token_id", token)
    prompts, length = (4, 8) if tiny else (recipe.prompts_per_step, recipe.rollout.max_new_tokens)
    with tempfile.TemporaryDirectory() as folder:
        trainer = FullLength(
            trained(model, recipe, seed=0),
            arguments(folder, recipe, is_half=is_half),
            train_dataset=examples(prompts, 64 if tiny else SIDE),
            processing_class=processor,
            method=recipe.method,
            rollout=RolloutSettings(Sampling(max_new_tokens=length), recipe.rollout.num_per_prompt, seed=0),
            prompts_per_step=prompts,
            token_budget=case.token_budget,
            offload=recipe.offload,
            monitors=(),
        )
        ready_gib = device_gib()
        trainer.train()
        trainer._keep()
    steps = trainer.measured[1:]
    return {
        "recipe": case.recipe,
        "changes": case.changes,
        "cap_gib": case.gib,
        "token_budget": trainer.progress.token_budget,
        "before_first_step_gib": ready_gib,
        "seconds": [step["seconds"] for step in steps],
        "phases": steps[-1]["phases"],
        "rollout_peak_gib": max(step["peak_gib"].get("rollout", 0.0) for step in steps),
        "peak_gib": max(step["peak_gib"].get(phase, 0.0) for step in steps for phase in SCORING),
        "peaks": steps[-1]["peak_gib"],
        "host_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def device_gib() -> float:
    return torch.cuda.memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


def arguments(folder: str, recipe: Any, *, is_half: bool) -> TrainingArguments:
    given = {name: recipe.trainer[name] for name in ("learning_rate", "weight_decay", "max_grad_norm", "optim")}
    given |= {"gradient_checkpointing": recipe.trainer["gradient_checkpointing"], "use_cpu": not is_half}
    given |= {"bf16": is_half or recipe.offload}
    given |= {"lr_scheduler_type": "constant", "save_strategy": "no", "report_to": [], "disable_tqdm": True}
    return TrainingArguments(folder, max_steps=3, logging_steps=1, log_level="error", **given)


def projected(name: str) -> Projection:
    """What a dry run says of the same step on an H200 with that much memory."""
    case = CASES[name]
    recipe = load_recipe(case.recipe, [*case.changes, f"token_budget={case.token_budget}"])
    job = replace(job_of(recipe, empty_model(recipe)[0], PROMPT_TOKENS), longest_prompt=PROMPT_TOKENS)
    return project(job, Machine(replace(CARDS["h200"], gib=float(case.gib))))


def as_markdown(results: dict[str, Any]) -> str:
    """A table: measured figures, and the projected ones with their distance."""
    heads = ("case", "memory allowed", "tokens per row", "step", "peak of rows", "peak of rollouts", "host")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, found in results.items():
        if name == "about":
            continue
        if "error" in found:
            lines.append(f"| {name} | {CASES[name].gib} GiB | {found['error']} |")
            continue
        said, seconds = projected(name), sum(found["seconds"]) / len(found["seconds"])
        rows = beside(found["peak_gib"], said.row_bytes / 2**30)
        rollouts = beside(found["rollout_peak_gib"], said.rollout_bytes / 2**30)
        step = f"{seconds:.0f} s ({said.step_seconds:.0f})"
        budget = f"{found['token_budget']:,}"
        cells = (name, f"{found['cap_gib']} GiB", budget, step, rows, rollouts, f"{found['host_gib']:.0f} GiB")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def beside(measured: float, said: float) -> str:
    """A measured size, with the projected one and its distance in brackets."""
    distance = said / measured - 1 if measured else 0.0
    return f"{measured:.1f} GiB ({said:.1f}, {distance:+.0%})"


def in_own_process(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one case in a process of its own, so that every case starts with an empty device."""
    command = [sys.executable, __file__, "--out", str(options.out), "--alone", name, *(["--tiny"] * options.tiny)]
    code = subprocess.run(command, check=False).returncode
    path = options.out / f"card_{name}.json"
    return json.loads(path.read_text()) if code == 0 else {"error": f"ended with code {code}"}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--tiny", action="store_true", help="use a tiny model and step, to check that the script runs")
    parser.add_argument("--alone", choices=CASES, help="run this case in this process")
    return parser.parse_args()


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.alone:
        try:
            found = measure(options.alone, options)
        except Exception as error:  # say why in the table
            traceback.print_exc()
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        (options.out / f"card_{options.alone}.json").write_text(json.dumps(found, indent=1))
        return
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    path = options.out / "cards.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    if options.cases:
        results["about"] = {**versions, "device": name}
    for case in options.cases:
        results[case] = in_own_process(case, options)
        path.write_text(json.dumps(results, indent=1))
        print(case, json.dumps(results[case]), flush=True)
    print(as_markdown(results))


if __name__ == "__main__":
    main()
