"""Compare a full training step, phase by phase, with the same step on repeated padded batches.

    python benchmarks/full_step.py --out results/                    # about four minutes on an H200
    python benchmarks/full_step.py --out results/ --budget 16384 --checkpointing
    python benchmarks/full_step.py --out /tmp/b --tiny               # check that it runs: seconds on a CPU

32 prompts with 1,024 visual tokens, 8 rollouts each, every response forced to 300 tokens; float32 master weights,
bfloat16 compute; AdamW and the EMA teacher included; images start on the host. The package ("ours") samples from a
bfloat16 copy after one prefill per prompt, scores packed rows with shared prefixes, and computes the loss from hidden
states. The baselines repeat each prompt for each response in padded micro-batches, with the same three passes and

    full logits   float32 log-softmax over the vocabulary for student, original and control: the definition
    TRL's loss    TRL's chunked divergence from hidden states: one teacher view, without the contrast
    chunked loss  the plain-torch loss of this package from hidden states, on a few positions at a time

The baselines run on some of the prompts (`--baseline-prompts`) and are scaled up, because their time is linear in the
number of prompts. Weights are random, because speed does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers

from shapes import IMAGE, command_line, free_memory, random_model, random_prompt, random_responses, synchronize
from vcsd.batch import Batch
from vcsd.core import forward_kl, log_probs, shape_target
from vcsd.loss import distillation_loss
from vcsd.method import METHODS
from vcsd.models.family import family_of
from vcsd.models.features import Constant
from vcsd.models.inside import inside
from vcsd.models.packed.packing import Group
from vcsd.projection.project import Sizes
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.half_copy import HalfCopy
from vcsd.rollout.sampling import Sampling
from vcsd.step import Distiller, distill
from vcsd.teacher import Teacher
from vcsd.trainer.phases import Phases
from vcsd.types import Scores

NUM_TEXT = 40
METHOD = METHODS["vcsd"]
STEPS = 90
SCORING = ("teacher", "student", "backward")


class Run:
    """A student with its teacher, optimizer and bfloat16 copy, and the data of a step."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        size = "tiny" if options.tiny else "2b"
        self.model = random_model("qwen3_vl", size, torch.float32, self.device.type)
        family_of(self.model).prepare(self.model)
        start = time.perf_counter()
        self.teacher = Teacher(self.model)
        self.half = HalfCopy(self.model)
        self.copy_seconds = time.perf_counter() - start
        if options.checkpointing:
            self.model.gradient_checkpointing_enable()
        for model in (self.model, self.teacher.module):  # as accelerate does
            model.forward = torch.autocast(self.device.type, torch.bfloat16)(model.forward)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-6, weight_decay=0.0, fused=True)
        use_graph = self.device.type == "cuda" and not options.no_graph
        self.engine = TransformersEngine(self.half.module, use_graph=use_graph)
        self.engine.end_ids = [-2]  # never drawn, so every response has full length
        self.phases = Phases(self.device)
        prompts = [random_prompt(self.model, options.visual, NUM_TEXT, seed) for seed in range(options.prompts)]
        self.prompts = [replace(prompt, pixel_values=prompt.pixel_values.cpu()) for prompt in prompts]
        self.blacks = [replace(prompt, pixel_values=torch.zeros_like(prompt.pixel_values)) for prompt in self.prompts]

    def batch(self, responses: list[list[list[int]]]) -> Batch:
        def groups(prompts: list[Any], is_black: bool) -> list[Group]:
            return [
                Group(prompt, own, [Constant("black") if is_black else (prompt.example_id, 0)])
                for prompt, own in zip(prompts, responses, strict=True)
            ]

        originals = groups(self.prompts, False)
        return Batch(originals, originals, groups(self.blacks, True), ())

    def step(self, budget: int) -> dict[str, Any]:
        """Run one step; return seconds and peak memory of each phase."""
        self.phases.reset()
        self.optimizer.zero_grad(set_to_none=True)
        options = self.options
        with self.phases("rollout"):
            self.half.refresh()
            sampling = Sampling(max_new_tokens=options.new)
            drawn = self.engine.sample(self.prompts, sampling, num_rollouts=options.rollouts, seed=0).rollouts
        tokens = [list(rollout.token_ids) for rollout in drawn]
        assert all(len(response) == options.new for response in tokens), "a response ended early"
        batch = self.batch([tokens[i : i + options.rollouts] for i in range(0, len(tokens), options.rollouts)])
        self.model.train()
        ends = frozenset({self.model.config.text_config.vocab_size - 1})
        distiller = Distiller(self.model, self.teacher.module, METHOD, ends, phase=self.phases)
        loss, statistics = distill(distiller, batch, budget, lambda part: part.backward())
        self.model.eval()
        with self.phases("optimizer"):
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        with self.phases("teacher update"):
            self.teacher.update()
        return {
            "loss": loss.item(),
            "rows": len(statistics),
            "seconds": dict(self.phases.seconds),
            "peak_gib": {name: peak / 2**30 for name, peak in self.phases.peak_bytes.items()},
            "total_seconds": sum(self.phases.seconds.values()),
        }


def fitting_step(run: Run, budget: int) -> dict[str, Any]:
    """Run a step after a warm-up step; halve the budget each time memory runs out."""
    while True:
        try:
            run.step(budget)
            free_memory()
            return {"budget": budget, **run.step(budget)}
        except torch.OutOfMemoryError:
            print(f"Out of memory with rows of {budget} tokens.", flush=True)
        run.optimizer.zero_grad(set_to_none=True)
        free_memory()
        budget //= 2


def padded_inputs(prompt: Any, responses: list[list[int]], device: torch.device) -> dict[str, Any]:
    """Each response after a copy of its prompt and image. Lengths are equal, so nothing is padded."""
    ids = torch.stack([torch.cat([prompt.input_ids, torch.tensor(response)]) for response in responses]).to(device)
    count = len(responses)
    return {
        **{"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False},
        "mm_token_type_ids": (ids == IMAGE).int(),
        "pixel_values": prompt.pixel_values.to(device).repeat(count, 1),
        "image_grid_thw": prompt.grid_thw.repeat(count, 1).to(device),
    }


def padded_hidden(model: Any, prompt: Any, responses: list[list[int]]) -> torch.Tensor:
    inputs = padded_inputs(prompt, responses, model.device)
    hidden = inside(model, lambda inner: inner.model(**inputs).last_hidden_state)
    return hidden[:, len(prompt.input_ids) - 1 : -1].flatten(0, 1)


def logits_of(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    weight = model.get_output_embeddings().weight
    return hidden.bfloat16() @ weight.bfloat16().T


def baseline_loss(run: Run, prompt: Any, black: Any, responses: list[list[int]], way: str) -> torch.Tensor:
    """The contribution of one micro-batch to the loss."""
    ends = [run.model.config.text_config.vocab_size - 1]
    total = len(run.prompts) * run.options.rollouts
    with torch.no_grad():
        original = padded_hidden(run.teacher.module, prompt, responses)
        control = padded_hidden(run.teacher.module, black, responses)
    student = padded_hidden(run.model, prompt, responses)
    weight = METHOD.loss_factor / (run.options.new * total)
    if way == "TRL's loss":
        return weight * trl_divergence(run, student, original)
    if way == "chunked loss":
        weights = torch.full((len(student),), weight, device=student.device)
        heads = [family_of(model).head(model) for model in (run.model, run.teacher.module)]
        with torch.autocast(run.device.type, torch.bfloat16):
            views = (Scores(hidden, heads[1]) for hidden in (original, control))
            loss, _ = distillation_loss(
                Scores(student, heads[0]), *views, METHOD.objective(ends), weights, impl="chunked"
            )
        return loss
    with torch.no_grad():
        log_p = [log_probs(logits_of(run.teacher.module, hidden), 2.0) for hidden in (original, control)]
        log_q = shape_target(*log_p, end_token_ids=ends)
        del log_p
    return weight * forward_kl(log_q, log_probs(logits_of(run.model, student), 2.0)).sum()


def trl_divergence(run: Run, student: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """TRL's forward KL to the teacher under the original view, summed; it has no contrast."""
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

    heads = [model.get_output_embeddings().weight.bfloat16() for model in (run.model, run.teacher.module)]
    hidden = [part.bfloat16() for part in (student, original)]
    loss, _ = ChunkedDivergenceFunction.apply(hidden[0], heads[0], None, hidden[1], heads[1], None, 0.0, 2.0)
    return loss.float().sum()


def baseline(run: Run, way: str) -> dict[str, Any]:
    """Measure scoring, loss and backward on repeated padded batches: seconds for all prompts, and peak memory."""
    options, count = run.options, run.options.baseline_prompts
    responses = [random_responses(run.model, options.rollouts, options.new, seed) for seed in range(count)]
    run.model.train()

    def one(index: int) -> None:
        for start in range(0, options.rollouts, options.micro):
            some = responses[index][start : start + options.micro]
            baseline_loss(run, run.prompts[index], run.blacks[index], some, way).backward()

    one(0)
    run.optimizer.zero_grad(set_to_none=True)
    free_memory()
    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    synchronize()
    start = time.perf_counter()
    for index in range(count):
        one(index)
    synchronize()
    seconds = (time.perf_counter() - start) * options.prompts / count
    peak = torch.cuda.max_memory_allocated() / 2**30 if run.device.type == "cuda" else None
    run.optimizer.zero_grad(set_to_none=True)
    run.model.eval()
    return {"seconds": seconds, "peak_gib": peak, "measured_prompts": count, "micro_batch": options.micro}


def as_markdown(results: dict[str, Any]) -> str:
    lines = ["# A full step", "", f"`{json.dumps(results['about'])}`", ""]
    ours = results.get("ours", {})
    if "seconds" in ours:
        lines += ["| phase | seconds | peak GiB |", "|---|---|---|"]
        for name, seconds in ours["seconds"].items():
            peak = ours["peak_gib"].get(name)
            lines.append(f"| {name} | {seconds:.2f} | {'-' if peak is None else f'{peak:.1f}'} |")
        hours = ours["total_seconds"] * STEPS / 3600
        lines += [f"| **step** | **{ours['total_seconds']:.2f}** | |", ""]
        lines += [f"Rows of {ours['budget']} tokens, {ours['rows']} of them. {STEPS} steps: {hours:.2f} hours.", ""]
    lines += ["| scoring, loss and backward | seconds | peak GiB | times ours |", "|---|---|---|---|"]
    for way, found in results.items():
        if way in ("about", "sizes"):
            continue
        if "error" in found:
            lines.append(f"| {way} | {found['error']} | | |")
            continue
        seconds = scoring_seconds(found)
        peaks = found["peak_gib"]
        peak = max((peaks[name] for name in SCORING if name in peaks), default=None) if way == "ours" else peaks
        ratio = f"{seconds / scoring_seconds(ours):.2f}" if "seconds" in ours else "-"
        lines.append(f"| {way} | {seconds:.2f} | {'-' if peak is None else f'{peak:.1f}'} | {ratio} |")
    return "\n".join([*lines, ""])


def scoring_seconds(found: dict[str, Any]) -> float:
    seconds = found["seconds"]
    return sum(seconds[name] for name in SCORING) if isinstance(seconds, dict) else seconds


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--tiny", action="store_true", help="use a tiny model and a tiny step, to check that the script runs"
    )
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--visual", type=int, default=1024)
    parser.add_argument("--new", type=int, default=300)
    parser.add_argument("--budget", type=int, default=16384)
    parser.add_argument("--checkpointing", action="store_true", help="use gradient checkpointing, in the baselines too")
    parser.add_argument("--baseline-prompts", type=int, default=4)
    parser.add_argument("--micro", type=int, default=4, help="responses per padded micro-batch")
    parser.add_argument("--ways", nargs="*", default=["full logits", "TRL's loss", "chunked loss"])
    parser.add_argument("--no-graph", action="store_true", help="decode without CUDA graphs")
    options = parser.parse_args()
    if options.tiny:
        options.prompts, options.rollouts, options.visual, options.new, options.budget = 3, 4, 64, 6, 200
        options.baseline_prompts, options.micro = 2, 2
    return options


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    about = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": name,
        "argv": command_line(),
    }
    results: dict[str, Any] = {"about": about}
    run = Run(options)
    sizes = Sizes.of(run.model, has_teacher=True, has_half_copy=True)
    results["sizes"] = {
        "parameters": sizes.num_parameters,
        "memory_gib": sizes.memory_bytes / 2**30,
        "checkpoint_gib": sizes.checkpoint_bytes / 2**30,
        "copy_seconds": run.copy_seconds,
    }
    jobs: dict[str, Any] = {"ours": lambda: fitting_step(run, options.budget)}
    jobs |= {way: lambda way=way: baseline(run, way) for way in options.ways}
    for job, work in jobs.items():
        try:
            results[job] = work()
        except Exception as error:  # a failed part must not stop the others
            results[job] = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(job, "FAILED", traceback.format_exc(), flush=True)
        run.optimizer.zero_grad(set_to_none=True)
        free_memory()
        (options.out / "full_step.json").write_text(json.dumps(results, indent=1))
        (options.out / "full_step.md").write_text(as_markdown(results))
        print(job, json.dumps(results[job]), flush=True)
    print(as_markdown(results))


if __name__ == "__main__":
    main()
