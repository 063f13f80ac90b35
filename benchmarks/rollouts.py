"""Compare rollouts of `TransformersEngine` with `generate(num_return_sequences=8)`: prefill and decoding.

    python benchmarks/rollouts.py --out results/                              # a minute or two on an H200
    python benchmarks/rollouts.py --out results/ --families qwen3_vl --precisions bf16 --new 64
    python benchmarks/rollouts.py --out /tmp/b --tiny                         # check that it runs: seconds on a CPU

Both sides sample 8 rollouts for each of 32 prompts with 1,024 visual tokens, at temperature 1 and in one batch. Both
run to the full length, because random weights hardly ever produce an end token. Prefill is the time for one new token;
decoding is the rest. "autocast" means float32 weights under bfloat16 autocast on both sides.
"""

from __future__ import annotations

import argparse
import json
import traceback
from pathlib import Path
from typing import Any

import torch
import transformers

from shapes import IMAGE, Peak, command_line, free_memory, median_time, random_model, random_prompt
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling

NUM_ROLLOUTS, NUM_TEXT = 8, 40


def ours(model: Any, prompts: list[Any], num_new: int, dtype: torch.dtype | None, graph: bool) -> None:
    rows = len(prompts) * NUM_ROLLOUTS
    engine = TransformersEngine(model, compute_dtype=dtype, max_rows=rows, use_graph=graph)
    rollouts = engine.sample(prompts, Sampling(max_new_tokens=num_new), num_rollouts=NUM_ROLLOUTS, seed=0).rollouts
    drawn = sum(len(rollout.token_ids) for rollout in rollouts)
    assert drawn > 0.9 * len(rollouts) * num_new, "too many rollouts ended early for a fair comparison"


def by_generate(model: Any, prompts: list[Any], num_new: int, dtype: torch.dtype | None) -> None:
    device = model.device
    ids = torch.stack([prompt.input_ids for prompt in prompts]).to(device)
    settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "num_return_sequences": NUM_ROLLOUTS}
    with torch.no_grad(), torch.autocast(device.type, dtype, enabled=dtype is not None):
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=(ids == IMAGE).int(),
            pixel_values=torch.cat([prompt.pixel_values for prompt in prompts]),
            image_grid_thw=torch.cat([prompt.grid_thw for prompt in prompts]).to(device),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            suppress_tokens=[IMAGE, IMAGE + 1],
            **settings,
        )


def measure(run: Any, lengths: list[int], repeats: int) -> dict[str, Any]:
    """Seconds of prefill and of decoding each length, and peak memory."""
    run(2)  # warm up
    with Peak() as peak:
        prefill = median_time(lambda: run(1), repeats)
        totals = {length: median_time(lambda length=length: run(length), repeats) for length in lengths}
    decode = {length: total - prefill for length, total in totals.items()}
    return {"prefill_s": prefill, "total_s": totals, "decode_s": decode, "peak_gib": peak.gib}


def compare(family: str, precision: str, options: argparse.Namespace) -> dict[str, Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = "tiny" if options.tiny else "2b"
    weights = torch.bfloat16 if precision == "bf16" else torch.float32
    dtype = torch.bfloat16 if precision == "autocast" else None
    model = random_model(family, size, weights, device)
    prompts = [random_prompt(model, options.visual, NUM_TEXT, seed) for seed in range(options.prompts)]
    generated = measure(lambda new: by_generate(model, prompts, new, dtype), options.new, options.repeats)
    print(family, precision, "generate", json.dumps(generated), flush=True)  # in case the run is interrupted
    free_memory()
    sides = {}
    for name, graph in (("plain", False), ("graph", True)):
        try:
            run = lambda new, graph=graph: ours(model, prompts, new, dtype, graph)  # noqa: E731
            sides[name] = against(generated, measure(run, options.new, options.repeats))
            print(family, precision, name, json.dumps(sides[name]), flush=True)
        except Exception as error:  # a failed graph must not stop plain decoding
            sides[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
            print(family, precision, name, "FAILED", traceback.format_exc(), flush=True)
        free_memory()
    return {"generate": generated, **sides}


def against(generated: dict[str, Any], engine: dict[str, Any]) -> dict[str, Any]:
    ratios = {new: total / engine["total_s"][new] for new, total in generated["total_s"].items()}
    per_step = {new: 1000 * seconds / max(1, new - 1) for new, seconds in engine["decode_s"].items()}
    return {**engine, "ratio": ratios, "ms_per_step": per_step}


def as_markdown(results: dict[str, Any]) -> str:
    lines = ["# Rollouts against generate", "", f"`{results['about']}`", ""]
    heads = ["case", "new tokens", "prefill s", "decode s", "generate prefill s", "generate decode s", "ratio"]
    lines += ["| " + " | ".join(heads) + " |", "|" + len(heads) * "---|"]
    for name, r in flat(results).items():
        for new, ratio in r.get("ratio", {}).items():
            sides = [
                f"{r[side][key]:.2f}" if key == "prefill_s" else f"{r[side][key][new]:.2f}"
                for side in ("ours", "generate")
                for key in ("prefill_s", "decode_s")
            ]
            lines.append("| " + " | ".join([name, str(new), *sides, f"{ratio:.2f}"]) + " |")
        if "error" in r:
            lines.append(f"| {name} | {r['error']} |")
    return "\n".join([*lines, ""])


def flat(results: dict[str, Any]) -> dict[str, Any]:
    """One entry per case and kind of decoding."""
    rows: dict[str, Any] = {}
    for name, case in results.items():
        for way in ("plain", "graph") if name != "about" and "error" not in case else ():
            rows[f"{name} {way}"] = case[way] | {"ours": case[way], "generate": case["generate"]}
    return rows | {name: case for name, case in results.items() if "error" in case}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true", help="use tiny models and cases, to check that the script runs")
    parser.add_argument("--families", nargs="*", default=["qwen3_vl"])
    parser.add_argument("--precisions", nargs="*", default=["bf16", "autocast"])
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--visual", type=int, default=1024)
    parser.add_argument("--new", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    if options.tiny:
        options.prompts, options.visual, options.new = 4, 64, [4, 20]
        options.families = ["qwen3_vl", "qwen3_5"]
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
    for family in options.families:
        for precision in options.precisions:
            case = f"{family} {precision}"
            try:
                results[case] = compare(family, precision, options)
            except Exception as error:  # a failed case must not stop the others
                results[case] = {"error": f"{type(error).__name__}: {error}"[:500]}
                print(case, "FAILED", traceback.format_exc(), flush=True)
            free_memory()
            (options.out / "rollouts.json").write_text(json.dumps(results, indent=1))
            (options.out / "rollouts.md").write_text(as_markdown(results))
    print(json.dumps(results, indent=1))
    print(as_markdown(results))


if __name__ == "__main__":
    main()
