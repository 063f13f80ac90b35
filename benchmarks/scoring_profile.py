"""Show where the time of a scoring step goes: device time by operator, for one row.

    python benchmarks/scoring_profile.py --out results/ --families qwen3_5 --cases 1024x300
    python benchmarks/scoring_profile.py --out results/ --families qwen3_5 --without-fla
    python benchmarks/scoring_profile.py --out /tmp/p --tiny                  # check that it runs: seconds on a CPU
    python benchmarks/scoring_profile.py --read results/*.json.gz             # read traces again: kernels by kind

Uses the options, models, rows and loss of prefix_sharing.py, and the first case only. The wall time is that of a run
without the profiler; the difference to the time in kernels is time in which the device waits for launches. The trace of
every part is written next to the results; open it in a browser's trace viewer.
"""

from __future__ import annotations

import gc
import gzip
import json
import re
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

from prefix_sharing import Bench, Case, parse
from shapes import command_line, synchronize
from vcsd.models.score import hidden_states

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_OPERATORS = 25

KINDS = {
    "attention": "flash|fmha",
    "matrix products": "nvjet|gemm|cublas|cutlass|convolve",
    "kernels of our own": r"^_\w*kernel$",
}
"""Kinds of kernels by name; the first match counts. All others are element-wise operations, copies and sums."""


def kinds(trace: Path) -> dict[str, float]:
    """Device time by kind of kernel in milliseconds, from a trace."""
    with gzip.open(trace, "rt") as file:
        events = json.load(file)["traceEvents"]
    found: Counter[str] = Counter()
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            fits = (kind for kind, names in KINDS.items() if re.search(names, event["name"]))
            found[next(fits, "element by element, copies, sums")] += event["dur"] / 1e3
    return dict(found.most_common())


def operators(run: Callable[[], Any], trace: Path) -> dict[str, Any]:
    """Seconds of a run, milliseconds in kernels, and milliseconds and calls by operator."""
    synchronize()
    start = time.perf_counter()
    run()
    synchronize()
    wall = time.perf_counter() - start
    is_cuda = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
    with profile(activities=activities, acc_events=True) as seen:
        run()
        synchronize()
    seen.export_chrome_trace(str(trace))
    times = {
        event.key: ((event.self_device_time_total if is_cuda else event.self_cpu_time_total) / 1e3, event.count)
        for event in seen.key_averages()
        if event.device_type == torch.autograd.DeviceType.CPU
    }
    most = sorted(times.items(), key=lambda item: -item[1][0])[:NUM_OPERATORS]
    return {
        "wall_s": wall,
        "in_kernels_ms": sum(milliseconds for milliseconds, _ in times.values()),
        "kinds_ms": kinds(trace),
        "operators": {name: {"ms": milliseconds, "calls": calls} for name, (milliseconds, calls) in most},
    }


def main() -> None:
    if "--read" in sys.argv:
        for name in sys.argv[sys.argv.index("--read") + 1 :]:
            print(Path(name).name, json.dumps({kind: round(ms, 1) for kind, ms in kinds(Path(name)).items()}))
        return
    options = parse()
    gc.collect()
    gc.freeze()  # as in prefix_sharing.py
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    results: dict[str, Any] = {"about": {"torch": torch.__version__, "device": device, "argv": command_line()}}
    for family in options.families:
        bench = Bench(family, options.precisions[0], options)
        case = Case(family, options.precisions[0], *map(int, options.cases[0].split("x")))
        hidden = partial(hidden_states, bench.model, bench.full_row(case))
        targets = bench.teacher(hidden)
        bench.student(hidden, targets)
        results[family] = {}
        parts = {
            "two teacher forwards": partial(bench.teacher, hidden),
            "student": partial(bench.student, hidden, targets),
        }
        for part, run in parts.items():
            trace = options.out / f"{family}_{part.replace(' ', '_')}.json.gz"
            found = results[family][part] = operators(run, trace)
            (options.out / "scoring_profile.json").write_text(json.dumps(results, indent=1))
            print(f"{family}, {part}: {found['wall_s']:.3f} s, {found['in_kernels_ms']:.0f} ms in kernels")
            for name, own in found["operators"].items():
                print(f"{own['ms']:10.2f} ms {own['calls']:7d}  {name}", flush=True)


if __name__ == "__main__":
    main()
