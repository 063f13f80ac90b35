"""Compare the loss with the five matrix products that it needs.

    python benchmarks/loss_head.py --out results/                       # the whole grid on one GPU, about six minutes
    python benchmarks/loss_head.py --quick                              # D 2048 and 4096, V 151936, N 4096
    python benchmarks/loss_head.py --quick --teacher-rows 512 1024 --block 2048 4096 --num-warps 4 8
    python benchmarks/loss_head.py --cpu --out results/                 # chunked against the naive computation

The floor is the time of exactly five products in bfloat16: student, original and control logits, gradient of the
hidden states, gradient of the head. Heads are float32 master weights, as in the trainer; every time except the floor
includes their casts to bfloat16, once per step. Added memory is the peak of a call minus what was allocated before it,
minus the gradients it returns; the cast heads are allocated before. `support` is the mean size of a support in tokens.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vcsd.loss import Objective, cast_head, distillation_loss
from vcsd.types import Head, Scores

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30
WIDTHS, VOCABULARIES, POSITIONS = (2048, 2560, 4096), (151_936, 248_320), (1024, 4096, 16_384, 65_536)
IMPLS = ("triton", "chunked", "reference", "trl", "liger")
DIVERGENCES = ("forward_kl", "reverse_kl", "jensen_shannon")


@dataclass
class Row:
    """One measurement: times in milliseconds, memory in GiB."""

    width: int
    vocabulary: int
    positions: int
    impl: str
    divergence: str
    time_ms: float | None = None
    floor_ms: float | None = None
    ratio: float | None = None
    added_gib: float | None = None
    support: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None


# GPU.


@dataclass
class Inputs:
    """Tensors of one shape, with logits of a given standard deviation."""

    hidden: torch.Tensor
    original: torch.Tensor
    control: torch.Tensor
    student: torch.Tensor
    teacher: torch.Tensor
    weights: torch.Tensor

    @classmethod
    def draw(cls, width: int, vocabulary: int, positions: int, logit_std: float) -> Inputs:
        def normal(rows: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
            return torch.empty(rows, width, device="cuda", dtype=dtype).normal_().mul_(scale)

        torch.manual_seed(0)
        original = normal(positions, torch.bfloat16)
        student = normal(vocabulary, torch.float32, logit_std / math.sqrt(width))
        return cls(
            hidden=original.add(normal(positions, torch.bfloat16), alpha=0.3).requires_grad_(),
            original=original,
            control=original.add(normal(positions, torch.bfloat16), alpha=0.5),
            student=student.requires_grad_(),
            teacher=student.detach().clone(),
            weights=torch.full((positions,), 1 / positions, device="cuda"),
        )

    def clear(self) -> None:
        self.hidden.grad = self.student.grad = None


def floor_call(inputs: Inputs) -> Callable[[], Any]:
    """Five products; the logits share one buffer, which also serves as their gradient."""
    hidden, weight = inputs.hidden.detach(), inputs.student.detach().bfloat16()
    teacher = inputs.teacher.bfloat16()
    logits = hidden.new_empty(len(hidden), len(weight))
    grad_hidden, grad_weight = torch.empty_like(hidden), torch.empty_like(weight)

    def call() -> None:
        torch.mm(inputs.original, teacher.T, out=logits)
        torch.mm(inputs.control, teacher.T, out=logits)
        torch.mm(hidden, weight.T, out=logits)
        torch.mm(logits, weight, out=grad_hidden)
        torch.mm(logits.T, hidden, out=grad_weight)

    return call


def vcsd_call(inputs: Inputs, impl: str, divergence: str, *, cast: bool = True) -> Callable[[], Any]:
    """One step: cast both heads, loss, backward."""

    def heads() -> tuple[Head, Head]:
        return cast_head(Head(inputs.student), torch.bfloat16), cast_head(Head(inputs.teacher), torch.bfloat16)

    ready = None if cast else heads()
    objective = Objective(divergence=divergence, end_token_ids=(151_645,))

    def call() -> Any:
        inputs.clear()
        student, teacher = ready or heads()
        original, control = Scores(inputs.original, teacher), Scores(inputs.control, teacher)
        loss, stats = distillation_loss(
            Scores(inputs.hidden, student), original, control, objective, inputs.weights, impl=impl
        )
        loss.backward()
        return stats

    return call


def peer_call(inputs: Inputs, impl: str, *, cast: bool = True) -> Callable[[], Any]:
    """TRL's forward KL or Liger's JSD. Both do less: one teacher and no shaping."""

    def heads() -> tuple[torch.Tensor, torch.Tensor]:
        return inputs.student.bfloat16(), inputs.teacher.bfloat16()

    ready = None if cast else heads()
    loss_of = liger_loss(inputs) if impl == "liger" else trl_loss(inputs)

    def call() -> None:
        inputs.clear()
        loss_of(*(ready or heads())).backward()

    return call


def liger_loss(inputs: Inputs) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    from liger_kernel.transformers.fused_linear_jsd import LigerFusedLinearJSD

    jsd = LigerFusedLinearJSD(jsd_beta=0.5, temperature=2.0)
    return lambda weight, teacher: jsd(inputs.hidden, weight, inputs.original, teacher, None)


def trl_loss(inputs: Inputs) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

    def loss(weight: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        found, _ = ChunkedDivergenceFunction.apply(
            inputs.hidden, weight, None, inputs.original, teacher, None, 0.0, 2.0
        )
        return found.mul(inputs.weights).sum()

    return loss


def seconds_per_call(call: Callable[[], Any], budget_s: float) -> float:
    """Median time of single calls on a warm device: at least three, unless they take seconds."""
    times: list[float] = []
    while not times or (len(times) < 3 and sum(times) < 4 * budget_s) or (sum(times) < budget_s and len(times) < 20):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def added_bytes(call: Callable[[], Any], inputs: Inputs) -> tuple[int, Any]:
    """Peak of one call minus the memory before it and the gradients it returns; and the result of the call."""
    inputs.clear()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    returned = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    gradients = sum(x.grad.nbytes for x in (inputs.hidden, inputs.student) if x.grad is not None)
    inputs.clear()
    return peak - before - gradients, returned


def measure(inputs: Inputs, row: Row, budget_s: float) -> None:
    """Fill a row, or record the failure."""
    try:
        is_peer = row.impl in ("trl", "liger")
        make = partial(peer_call, inputs, row.impl) if is_peer else partial(vcsd_call, inputs, row.impl, row.divergence)
        make(cast=False)()  # the first call with a shape compiles
        added, stats = added_bytes(make(cast=False), inputs)
        row.added_gib = added / GIB
        row.support = float(stats.support_size.float().mean()) if stats is not None else None
        row.time_ms = 1e3 * seconds_per_call(make(), budget_s)
        if row.floor_ms is not None:
            row.ratio = row.time_ms / row.floor_ms
    except Exception as problem:  # one configuration must not end the run
        row.failure = (
            f"{type(problem).__name__}: {str(problem).splitlines()[0][:120]}" if str(problem) else repr(problem)
        )
    inputs.clear()
    gc.collect()
    torch.cuda.empty_cache()


def apply_settings(settings: dict[str, Any]) -> None:
    """Set the constants of the Triton path."""
    from vcsd.loss import row_kernel as kernel

    for name, value in settings.items():
        assert hasattr(kernel, name), name
        setattr(kernel, name, value)


def tunings(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every combination of the settings from the command line."""
    given = {
        "CHUNK_ROWS": args.chunk_rows,
        "TEACHER_ROWS": args.teacher_rows,
        "BLOCK": args.block,
        "NUM_WARPS": args.num_warps,
    }
    given = {name: values for name, values in given.items() if values}
    return [dict(zip(given, values, strict=True)) for values in itertools.product(*given.values())]


def run_shape(shape: tuple[int, int, int], args: argparse.Namespace) -> list[Row]:
    """Measure the floor, then every implementation on the same tensors."""
    width, vocabulary, positions = shape
    inputs = Inputs.draw(width, vocabulary, positions, args.logit_std)
    floor_ms = None
    try:
        five_products = floor_call(inputs)
        five_products()
        floor_ms = 1e3 * seconds_per_call(five_products, args.budget)
        del five_products
    except torch.OutOfMemoryError:
        print(f"The floor does not fit in memory at {shape}.")
    gc.collect()
    torch.cuda.empty_cache()
    rows = [Row(width, vocabulary, positions, "floor", "-", floor_ms, floor_ms, 1.0)]
    for impl in args.impls if positions in args.others_at else args.impls[:1]:
        settings_to_try = tunings(args) if impl == "triton" else [{}]
        for divergence, settings in itertools.product(divergences_of(impl, positions, args), settings_to_try):
            apply_settings(settings)
            row = Row(width, vocabulary, positions, impl, divergence, floor_ms=floor_ms, settings=settings)
            measure(inputs, row, args.budget)
            rows.append(row)
            print(table([row], header=False), flush=True)
    return rows


def divergences_of(impl: str, positions: int, args: argparse.Namespace) -> list[str]:
    """The divergences to measure at N positions; TRL and Liger have their own."""
    if impl not in ("triton", "chunked", "reference"):
        return ["-"]
    is_wide = positions in args.others_at and (impl == "triton" or args.all_divergences)
    return args.divergences if is_wide else args.divergences[:1]


def profile(shape: tuple[int, int, int], divergence: str, args: argparse.Namespace) -> None:
    """Print the kernels of one call, the longest first."""
    inputs = Inputs.draw(*shape, args.logit_std)
    call = vcsd_call(inputs, "triton", divergence)
    call()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recorded:
        call()
        torch.cuda.synchronize()
    print(shape, divergence)
    print(recorded.key_averages().table(sort_by="cuda_time_total", row_limit=14, max_name_column_width=70))


def run_gpu(args: argparse.Namespace) -> dict[str, Any]:
    rows: list[Row] = []
    for shape in itertools.product(args.widths, args.vocabularies, args.positions):
        try:
            rows += run_shape(shape, args)
            if args.profile:
                profile(shape, args.divergences[0], args)
        except Exception as problem:  # e.g. inputs that do not fit
            rows.append(Row(*shape, "all", "-", failure=repr(problem)[:160]))
        gc.collect()
        torch.cuda.empty_cache()
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "logit_std": args.logit_std}
        report = {**about, "rows": [asdict(row) for row in rows]}
        write(report, "loss_head", args.out)  # after every shape, so that an interrupted run keeps its results
    return report


def write(report: dict[str, Any], name: str, out: Path | None) -> None:
    """Write JSON, and for a GPU a Markdown table."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    if name == "loss_head":
        (out / f"{name}.md").write_text(table([Row(**row) for row in report["rows"]]) + "\n")


def table(rows: list[Row], *, header: bool = True) -> str:
    """The rows as a Markdown table."""
    lines = ["| D | V | N | impl | divergence | ms | x floor | added GiB | support | settings |", "|" + "---|" * 10]
    lines = lines if header else []
    for row in rows:
        cells: list[object] = [row.width, row.vocabulary, row.positions, row.impl, row.divergence]
        if row.failure:
            cells += [row.failure.replace("|", "/"), "", "", "", ""]
        else:
            cells += [
                _number(row.time_ms, 2),
                _number(row.ratio, 3),
                _number(row.added_gib, 2),
                _number(row.support, 1),
            ]
            cells.append(" ".join(f"{name}={value}" for name, value in row.settings.items()))
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def plot(rows: list[Row], path: Path) -> None:
    """Ratio to the floor over N, one panel per vocabulary and width."""
    from matplotlib import pyplot

    vocabularies, widths = sorted({row.vocabulary for row in rows}), sorted({row.width for row in rows})
    size = (3.2 * len(widths), 2.6 * len(vocabularies))
    figure, axes = pyplot.subplots(
        len(vocabularies), len(widths), figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for (vocabulary, width), axis in zip(itertools.product(vocabularies, widths), axes.flat, strict=True):
        here = [r for r in rows if (r.vocabulary, r.width) == (vocabulary, width) and r.ratio is not None]
        for impl in dict.fromkeys(row.impl for row in here if row.impl != "floor"):
            chosen = [r for r in here if r.impl == impl and r.divergence in ("forward_kl", "-")]
            chosen.sort(key=lambda r: r.positions)
            axis.plot([r.positions for r in chosen], [r.ratio for r in chosen], marker="o", markersize=4, label=impl)
        axis.axhline(1.0, color="0.6", linewidth=0.8)
        axis.set(xscale="log", yscale="log", title=f"V = {vocabulary:,}, D = {width:,}")
        axis.set_yticks([1, 1.2, 1.5, 2, 3, 5, 10], ["1", "1.2", "1.5", "2", "3", "5", "10"], minor=False)
        axis.minorticks_off()
    figure.supxlabel("response positions N")
    figure.supylabel("time / five matrix products")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.savefig(path, dpi=110)


# CPU: each measurement runs in its own process, because the peak of a process never falls.


def cpu_child(args: argparse.Namespace) -> None:
    """Measure one implementation in this process and print the result."""
    torch.manual_seed(0)
    width, vocabulary, positions = args.widths[0], args.vocabularies[0], args.positions[0]
    weight = torch.empty(vocabulary, width).normal_().mul_(args.logit_std / math.sqrt(width)).requires_grad_()
    original = torch.randn(positions, width)
    hidden = (original + 0.3 * torch.randn(positions, width)).requires_grad_()
    control = original + 0.5 * torch.randn(positions, width)
    weights = torch.full((positions,), 1 / positions)

    def call() -> None:
        hidden.grad = weight.grad = None
        teacher = Head(weight.detach())
        views = Scores(original, teacher), Scores(control, teacher)
        loss, _ = distillation_loss(Scores(hidden, Head(weight)), *views, Objective(), weights, impl=args.cpu_child)
        loss.backward()

    Path("/proc/self/clear_refs").write_text("5")  # reset the high-water mark to what is resident now
    before = memory_bytes("VmRSS")
    call()
    assert hidden.grad is not None
    assert weight.grad is not None
    added = memory_bytes("VmHWM") - before - hidden.grad.nbytes - weight.grad.nbytes
    walls, seconds = [], []
    for _ in range(3):
        started, busy = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - started)
        seconds.append(time.process_time() - busy)
    found = {"cpu_seconds": statistics.median(seconds), "wall_seconds": statistics.median(walls)}
    print(json.dumps({"impl": args.cpu_child, **found, "added_gib": added / GIB}))


def memory_bytes(name: str) -> int:
    """Read a value from /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def run_cpu(args: argparse.Namespace) -> dict[str, Any]:
    shape = {"widths": 1024, "vocabularies": 151_936, "positions": 512}
    for name in shape:
        if getattr(args, name) != getattr(parser().parse_args([]), name):
            shape[name] = getattr(args, name)[0]
    rows = []
    for impl in ("reference", "chunked"):
        command = [sys.executable, __file__, "--cpu-child", impl, "--logit-std", str(args.logit_std)]
        for name, value in shape.items():
            command += [f"--{name}", str(value)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    naive, chunked = rows
    return {
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        **shape,
        "rows": rows,
        # Processor time: on a shared machine, wall time includes the work of others.
        "time_ratio": chunked["cpu_seconds"] / naive["cpu_seconds"],
        "wall_ratio": chunked["wall_seconds"] / naive["wall_seconds"],
        "memory_ratio": chunked["added_gib"] / naive["added_gib"],
    }


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS), help="D")
    parser.add_argument("--vocabularies", type=int, nargs="+", default=list(VOCABULARIES), help="V")
    parser.add_argument("--positions", type=int, nargs="+", default=list(POSITIONS), help="N")
    parser.add_argument("--impls", nargs="+", default=list(IMPLS), choices=IMPLS)
    parser.add_argument("--divergences", nargs="+", default=list(DIVERGENCES), choices=DIVERGENCES)
    parser.add_argument(
        "--others-at",
        type=int,
        nargs="*",
        default=list(POSITIONS),
        help="values of N at which to measure more than the first implementation and divergence; fewer is faster",
    )
    parser.add_argument(
        "--all-divergences", action="store_true", help="measure all divergences of chunked and reference too"
    )
    parser.add_argument(
        "--quick", action="store_true", help="only D 2048 and 4096, V 151936, N 4096, forward KL with Triton"
    )
    parser.add_argument(
        "--chunk-rows", type=int, nargs="+", help="sizes of the student's tile to try, in rows (Triton)"
    )
    parser.add_argument(
        "--teacher-rows", type=int, nargs="+", help="smallest sizes of the teacher's tiles to try, in rows (Triton)"
    )
    parser.add_argument("--block", type=int, nargs="+", help="numbers of logits per block to try (Triton)")
    parser.add_argument("--num-warps", type=int, nargs="+", help="numbers of warps to try (Triton)")
    parser.add_argument("--logit-std", type=float, default=3.0, help="standard deviation of the logits")
    parser.add_argument("--budget", type=float, default=0.5, help="approximate seconds per measurement")
    parser.add_argument("--profile", action="store_true", help="print the time of each kernel in one Triton call")
    parser.add_argument("--cpu", action="store_true", help="compare chunked with the naive computation on the CPU")
    parser.add_argument("--cpu-child", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="folder for JSON, Markdown and plot")
    return parser


def main() -> None:
    args = parser().parse_args()
    if args.cpu_child:
        cpu_child(args)
        return
    for impl, module in (("trl", "trl"), ("liger", "liger_kernel")):
        if impl in args.impls and importlib.util.find_spec(module) is None:
            print(f"Skipping {impl}: not installed.")
            args.impls.remove(impl)
    if args.quick:
        args.widths, args.vocabularies, args.positions = [2048, 4096], [151_936], [4096]
        args.impls, args.divergences = ["triton"], ["forward_kl"]
    if args.cpu:
        report = run_cpu(args)
        print(json.dumps(report, indent=2))
        write(report, "loss_head_cpu", args.out)
        return
    rows = [Row(**row) for row in run_gpu(args)["rows"]]
    print(table(rows))
    if args.out:
        try:
            plot(rows, args.out / "loss_head.png")
        except ImportError:
            print("Skipping the plot: matplotlib is not installed.")


if __name__ == "__main__":
    main()
