"""Compare scoring with a shared prefix to a repeated batch: time, memory, exactness and reproducibility.

    python benchmarks/prefix_sharing.py --out results/                        # everything, some minutes on an H200
    python benchmarks/prefix_sharing.py --out results/ --families qwen3_vl --cases 1024x300 --precisions autocast
    python benchmarks/prefix_sharing.py --out results/ --families qwen3_5 --without-fla
    python benchmarks/prefix_sharing.py --out results/ --cases 1024x300 --no-fusion
    python benchmarks/prefix_sharing.py --out /tmp/b --tiny                   # check that it runs: seconds on a CPU

A step is one student forward and backward with gradient checkpointing, and two teacher forwards, over the same groups
of 8 responses. The shared side packs groups into one row up to the token budget. The repeated side runs the same groups
in padded micro-batches of at most that many tokens; one of them is timed and scaled by their number. The loss is
`vcsd.loss` if it can be imported, else a product with random numbers (`loss` in the results says which). The optimizer
is not part of the step. Only the shared side fuses norms, rotary embeddings, the short convolution and the delta rule;
--no-fusion shows how much of the ratio comes from that. Only the repeated side uses flash-linear-attention, if it is
installed. "autocast" means float32 weights under bfloat16 autocast, casts included.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if "--without-fla" in sys.argv:
    sys.modules["fla"] = None  # type: ignore[assignment]  # before transformers looks for it

import torch
import transformers

from shapes import (
    IMAGE,
    Peak,
    command_line,
    config_of,
    free_memory,
    matrix_rate,
    median_time,
    random_model,
    random_prompt,
    random_responses,
    repeated_flops,
)
from vcsd.models.family import family_of
from vcsd.models.packed.packing import Group
from vcsd.models.qwen import fused
from vcsd.models.score import hidden_states
from vcsd.models.shapes import shared_flops, work_of
from vcsd.types import Scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from vcsd.models.shapes import Operations

NUM_RESPONSES, NUM_TEXT = 8, 40
PASSES = {"student": 4, "teacher": 2}
"""The cost of each part in forwards: forward, recomputation and a backward of two; and two forwards."""

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Deterministic products need it. Unset during timing, because torch parses it in every product."""


@dataclass(frozen=True)
class Case:
    family: str
    precision: str
    num_visual: int
    num_response: int


class Bench:
    """One model in one precision, and the two ways to score with it."""

    def __init__(self, family: str, precision: str, options: argparse.Namespace) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.size = "tiny" if options.tiny else "2b"
        self.options = options
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.model = random_model(family, self.size, dtype, self.device)
        self.autocast = precision == "autocast"
        family_of(self.model).prepare(self.model)
        self.prepared_attention = {
            name: getattr(self.model.config, name)._attn_implementation for name in ("text_config", "vision_config")
        }
        self.model.gradient_checkpointing_enable()
        self.loss_name, self.loss = _loss()

    def groups(self, case: Case, count: int) -> list[Group]:
        return [
            Group(
                random_prompt(self.model, case.num_visual, NUM_TEXT, seed),
                random_responses(self.model, NUM_RESPONSES, case.num_response, seed),
            )
            for seed in range(count)
        ]

    def full_row(self, case: Case) -> list[Group]:
        """As many groups as fit in the budget."""
        (probe,) = self.groups(case, 1)
        return self.groups(case, max(1, self.options.budget // (len(probe.prompt.input_ids) + sum(probe.lengths))))

    def precision(self) -> Any:
        return torch.autocast(self.device, torch.bfloat16) if self.autocast else contextlib.nullcontext()

    def student(self, hidden: Callable[[], Tensor], targets: tuple[Tensor, Tensor]) -> None:
        self.model.train()
        self.model.zero_grad(set_to_none=False)
        with self.precision():
            loss = self.loss(self.model, hidden(), *targets)
        loss.backward()

    def teacher(self, hidden: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        self.model.eval()
        with torch.no_grad(), self.precision():
            return hidden(), hidden()

    def measure(self, hidden: Callable[[], Tensor]) -> dict[str, Any]:
        """Seconds of the two parts of a step, and its memory in addition to weights and gradients."""
        targets = self.teacher(hidden)
        self.student(hidden, targets)  # warm up, and allocate the gradients
        repeats = self.options.repeats
        with Peak() as peak:
            teacher_s = median_time(lambda: self.teacher(hidden), repeats)
            student_s = median_time(lambda: self.student(hidden, targets), repeats)
        return {"teacher_s": teacher_s, "student_s": student_s, "peak_gib": peak.gib}

    def run(self, case: Case, rate: float) -> dict[str, Any]:
        groups = self.full_row(case)
        prompt, lengths, count = len(groups[0].prompt.input_ids), list(groups[0].lengths), len(groups)
        self.model.set_attn_implementation(self.prepared_attention)
        shared = self.measure(lambda: hidden_states(self.model, groups))
        rows = max(1, self.options.budget // (prompt + lengths[0]))
        batch = [(group.prompt, response) for group in groups for response in group.responses][:rows]
        self.model.set_attn_implementation({"text_config": "sdpa", "vision_config": "sdpa"})
        repeated = self.measure(lambda: repeated_hidden(self.model, batch))
        factor = count * NUM_RESPONSES / len(batch)
        repeated |= {key: repeated[key] * factor for key in ("teacher_s", "student_s")}
        work = work_of(config_of(case.family, self.size), case.num_visual)
        return {
            **{"groups_in_row": count, "tokens_in_row": count * (prompt + sum(lengths)), "loss": self.loss_name},
            **{"repeated_rows_timed": len(batch), "shared": shared, "repeated": repeated},
            **_summary(work, prompt, lengths, (shared, repeated), count, rate),
        }


def _summary(
    work: Operations,
    prompt: int,
    lengths: list[int],
    sides: tuple[dict[str, Any], dict[str, Any]],
    count: int,
    rate: float,
) -> dict[str, float]:
    shared, repeated = sides
    flops = count * shared_flops(work, prompt, lengths)
    step, naive = (side["student_s"] + side["teacher_s"] for side in (shared, repeated))
    return {
        "ratio_step": naive / step,
        "ratio_student": repeated["student_s"] / shared["student_s"],
        "ratio_teacher": repeated["teacher_s"] / shared["teacher_s"],
        "ratio_analytic": repeated_flops(work, prompt, lengths) / shared_flops(work, prompt, lengths),
        "rate_student": PASSES["student"] * flops / shared["student_s"] / rate,
        "rate_step": (sum(PASSES.values()) * flops + work.per_position * count * sum(lengths)) / step / rate,
    }


def repeated_hidden(model: Any, batch: list[tuple[Any, list[int]]]) -> Tensor:
    """The same hidden states from copies of the prompt. Lengths are equal here, so nothing is padded."""
    ids = torch.stack([torch.cat([prompt.input_ids, torch.tensor(response)]) for prompt, response in batch])
    length, prompt_length = ids.shape[1], len(batch[0][0].input_ids)
    ids = ids.to(model.device)
    hidden = model.base_model(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == IMAGE).int(),
        pixel_values=torch.cat([prompt.pixel_values for prompt, _ in batch]),
        image_grid_thw=torch.cat([prompt.grid_thw for prompt, _ in batch]).to(model.device),
        use_cache=False,
    ).last_hidden_state
    return hidden[:, prompt_length - 1 : length - 1].flatten(0, 1)


def _loss() -> tuple[str, Callable[..., Tensor]]:
    """The loss of this package if it can be imported, else a stand-in without cost."""
    try:
        from vcsd.loss import Objective, distillation_loss
    except ImportError:

        def stand_in(model: Any, hidden: Tensor, original: Tensor, control: Tensor) -> Tensor:
            return (hidden * torch.randn_like(hidden)).sum()

        return "stand-in", stand_in

    def fused_loss(model: Any, hidden: Tensor, original: Tensor, control: Tensor) -> Tensor:
        head = family_of(model).head(model)
        weights = torch.full((len(hidden),), 1 / len(hidden), device=hidden.device)
        student, *views = (Scores(x, head) for x in (hidden, original, control))
        loss, _ = distillation_loss(student, *views, Objective(), weights)
        return loss

    return "vcsd.loss", fused_loss


def exactness(family: str, device: str) -> dict[str, float]:
    """Relative L2 distance to the repeated batch in float32: both paths in bfloat16, the shared one in float32 too.

    TF32 is switched off, because only the repeated side convolves patches.
    """
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        return _distances(family, device)
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _distances(family: str, device: str) -> dict[str, float]:
    """Distances for a model of four layers with the head widths of the 2B model, in all precisions."""
    size = "small" if device == "cuda" else "tiny"
    model = random_model(family, size, torch.float32, device)
    groups = [
        Group(random_prompt(model, visual, 30, seed), random_responses(model, 8, length, seed))
        for seed, (visual, length) in enumerate([(64, 40), (100, 90), (36, 1)])
    ]

    def both(path: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        copy = random_model(family, size, torch.float32, device).to(dtype).train()
        if path == "shared":
            family_of(copy).prepare(copy)
            hidden = hidden_states(copy, groups)
        else:
            copy.set_attn_implementation("sdpa")
            hidden = torch.cat(
                [repeated_hidden(copy, [(g.prompt, response) for response in g.responses]) for g in groups]
            )
        weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0)).to(hidden)
        (hidden * weights).float().tanh().sum().backward()
        grads = [p.grad.float().flatten() for p in copy.parameters() if p.grad is not None]
        return hidden.detach().float(), torch.cat(grads)

    truth = both("repeated", torch.float32)
    result = {}
    for path, dtype in (("shared", torch.float32), ("shared", torch.bfloat16), ("repeated", torch.bfloat16)):
        for what, found, true in zip(("hidden", "gradient"), both(path, dtype), truth, strict=True):
            result[f"{path} {str(dtype).removeprefix('torch.')} {what}"] = ((found - true).norm() / true.norm()).item()
    return result


def reproducibility(family: str, precision: str, options: argparse.Namespace) -> dict[str, Any]:
    """Whether two backward passes give bitwise equal gradients, with and without deterministic algorithms."""
    bench = Bench(family, precision, options)
    bench.loss = lambda model, hidden, *_: (hidden.float() * torch.linspace(-1, 1, hidden.shape[-1]).to(hidden)).sum()
    case = Case(family, precision, *((256, 100) if not options.tiny else (16, 8)))
    groups = bench.groups(case, 2)

    def grads() -> list[Tensor]:
        bench.student(lambda: hidden_states(bench.model, groups), (torch.empty(0), torch.empty(0)))
        return [p.grad.clone() for p in bench.model.parameters() if p.grad is not None]

    result: dict[str, Any] = {}
    before = os.environ.get(WORKSPACE)
    os.environ[WORKSPACE] = before or ":4096:8"
    settings = {"plain": (False, False), "deterministic": (True, False), "deterministic, warn only": (True, True)}
    for name, (mode, warn_only) in settings.items():
        try:
            torch.use_deterministic_algorithms(mode, warn_only=warn_only)
            first, second = grads(), grads()
            is_equal = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
            gap = sum((a - b).double().square().sum() for a, b in zip(first, second, strict=True))
            size = sum(a.double().square().sum() for a in first)
            result[name] = {"bitwise_equal": is_equal, "relative_gap": float((gap / size) ** 0.5)}
            del first, second
        except RuntimeError as error:
            result[name] = {"error": str(error)[:300]}
        finally:
            torch.use_deterministic_algorithms(False)
    if before is None:
        del os.environ[WORKSPACE]
    return result


def attempt(name: str, run: Callable[[], Any], results: dict[str, Any], out: Path) -> None:
    """Run one part, record its result or error, and write all results so far."""
    try:
        results[name] = run()
        print(name, json.dumps(results[name]), flush=True)
    except Exception as error:  # a failed case must not stop the others
        results[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(name, "FAILED", traceback.format_exc(), flush=True)
    free_memory()
    (out / "prefix_sharing.json").write_text(json.dumps(results, indent=1))
    (out / "prefix_sharing.md").write_text(as_markdown(results))


def as_markdown(results: dict[str, Any]) -> str:
    lines = ["# Shared prefix against repeated batch", "", f"`{results['about']}`", ""]
    heads = ["case", "groups", "step s", "repeated s", "ratio", "analytic", "student", "teacher"]
    heads += ["of matrix rate", "GiB", "GiB repeated"]
    lines += ["| " + " | ".join(heads) + " |", "|" + len(heads) * "---|"]
    for name, r in results.items():
        if isinstance(r, dict) and "ratio_step" in r:
            step, naive = (r[side]["student_s"] + r[side]["teacher_s"] for side in ("shared", "repeated"))
            gib = [r[side]["peak_gib"] or 0 for side in ("shared", "repeated")]
            cells = [name, r["groups_in_row"], f"{step:.3f}", f"{naive:.3f}"]
            cells += [f"{r[key]:.2f}" for key in ("ratio_step", "ratio_analytic", "ratio_student", "ratio_teacher")]
            cells += [f"{r['rate_step']:.2f}", *(f"{g:.1f}" for g in gib)]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    others = {k: v for k, v in results.items() if not (isinstance(v, dict) and "ratio_step" in v)}
    return "\n".join([*lines, "", "```json", json.dumps(others, indent=1), "```", ""])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true", help="use tiny models and cases, to check that the script runs")
    parser.add_argument("--families", nargs="*", default=["qwen3_vl", "qwen3_5"])
    parser.add_argument("--precisions", nargs="*", default=["autocast", "bf16"])
    parser.add_argument("--cases", nargs="*", help="visual tokens x response length, such as 1024x300")
    parser.add_argument("--parts", nargs="*", default=["exactness", "reproducibility", "cases"])
    parser.add_argument("--budget", type=int, help="tokens per row, and per repeated micro-batch")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--no-fusion", action="store_true", help="use transformers' own norms and rotary embeddings")
    parser.add_argument("--without-fla", action="store_true", help="hide flash-linear-attention")
    options = parser.parse_args()
    grid = [f"{visual}x{response}" for visual in (1024, 256, 4080) for response in (300, 100, 1000)]
    options.cases = options.cases or (["16x8", "36x20"] if options.tiny else grid)
    options.budget = options.budget or (600 if options.tiny else 16384)
    return options


def has_fla() -> bool:
    try:
        import fla  # noqa: F401
    except ImportError:
        return False
    return True


def main() -> None:
    options = parse()
    gc.collect()
    gc.freeze()  # as in the trainer; single runs took 0.3 s longer without it
    fused.FUSE = not options.no_fusion
    options.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    about = {"torch": torch.__version__, "transformers": transformers.__version__, "fla": has_fla(), "device": device}
    about |= {"name": torch.cuda.get_device_name() if device == "cuda" else "cpu", "argv": command_line()}
    rate = matrix_rate(device)
    results: dict[str, Any] = {"about": {**about, "matrix_tflops": rate / 1e12, "num_responses": NUM_RESPONSES}}
    for family in options.families:
        if "exactness" in options.parts:
            attempt(f"exactness {family}", lambda family=family: exactness(family, device), results, options.out)
        for precision in options.precisions:
            if "reproducibility" in options.parts:
                again = lambda f=family, p=precision: reproducibility(f, p, options)  # noqa: E731
                attempt(f"reproducibility {family} {precision}", again, results, options.out)
            if "cases" in options.parts:
                bench = Bench(family, precision, options)
                for sizes in options.cases:
                    case = Case(family, precision, *map(int, sizes.split("x")))
                    name = " ".join(map(str, asdict(case).values()))
                    attempt(name, lambda bench=bench, case=case: bench.run(case, rate), results, options.out)
                del bench
                free_memory()
    print(as_markdown(results))


if __name__ == "__main__":
    main()
