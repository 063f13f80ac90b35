"""Numbers in README and docs equal those in the result files that they came from.

Each row of CLAIMS is (page, pattern, file, read): every number that the pattern's groups capture on the page must
equal, up to the digits printed there, the number that `read` finds in the file. A number edited in one place fails.
Numbers without a file are marked on the page: "no file kept".
"""

import json
import math
import re
from functools import cache, partial
from pathlib import Path
from statistics import mean, stdev

import pytest

from vcsd.evaluation.reading import read_answer
from vcsd.evaluation.scoring.student_t import quantile

ROOT = Path(__file__).parents[2]
NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e-?\d+)?"
MEASURED = "benchmarks/results/"
LORA = MEASURED + "lora_world.txt"
WORLD = "docs/results/"
SUITES = ["correspondence", "mixed", "attributes", "arithmetic", "small", "smaller", "hallucination"]


@cache
def text_of(file):
    return (ROOT / file).read_text(encoding="utf-8")


@cache
def json_of(file):
    return json.loads(text_of(file))


def prose_of(page):
    """A page, or two joined by "+", or after "#" a section, with each paragraph on one line, whatever the wrapping."""
    files, _, heading = page.partition("#")
    text = "\n".join(map(text_of, files.split("+")))
    if heading:
        text = re.split(rf"^#+ {re.escape(heading)}\n", text, flags=re.MULTILINE)[1].partition("\n#")[0]
    return re.sub(r"(?<=[^|\n])\n *(?=[^|\n])", " ", text)


def numbers(text):
    return re.findall(NUMBER, text)


def unit_of(number):
    """The value of a number's last digit: 0.1 for "12.2"."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def is_rounding_of(printed, value):
    """Whether a printed number is a stored one rounded; one that is stored as text may be rounded itself.

    >>> is_rounding_of("12.2", 12.2385), is_rounding_of("13", 12.2385), is_rounding_of("87.6", "87.65")
    (True, False, True)
    """
    printed = printed.replace(",", "")
    slack = 0.5 * unit_of(value) if isinstance(value, str) else 0.0
    return abs(float(printed) - float(value)) <= (0.5 + 1e-6) * unit_of(printed) + slack


def row(label, cells=r"(.*)"):
    """A pattern for the table row with this first cell, or these first cells."""
    return rf"^\| {re.escape(label)} \|{cells}\|$"


# How to read the result files. A number that the file holds rounded is returned as text, all others as floats.


def full_step(data):
    seconds, peak = data["ours"]["seconds"], data["ours"]["peak_gib"]
    rows = {name: [seconds[name], peak[name]] for name in ("rollout", "teacher", "student", "backward")}
    rows["update"] = [seconds["optimizer"] + seconds["teacher update"], peak["optimizer"]]
    total = data["ours"]["total_seconds"]
    rows["step"] = [total, 90.0, 90 * total / 60]
    scoring = sum(seconds[name] for name in ("teacher", "student", "backward"))
    rows["vcsd"] = [scoring, 1.0]
    rows |= {
        name: [data[name]["seconds"], data[name]["seconds"] / scoring] for name in data if "measured" in str(data[name])
    }
    return rows


def loss_ratio(data, width, vocabulary, positions, impl, divergence="-"):
    key = (width, vocabulary, positions, impl, divergence)
    names = ("width", "vocabulary", "positions", "impl", "divergence")
    (case,) = [case for case in data["rows"] if tuple(case[name] for name in names) == key]
    return case


def loss_row(width, vocabulary, positions):
    def read(data):
        case = lambda *impl: loss_ratio(data, width, vocabulary, positions, *impl)  # noqa: E731
        ours = [case("triton", name) for name in ("forward_kl", "reverse_kl", "jensen_shannon")]
        others = [case("reference", "forward_kl"), case("trl"), case("liger")]
        measured = [value for other in others if not other["failure"] for value in (other["ratio"], other["added_gib"])]
        return [case("floor")["time_ms"], *(case["ratio"] for case in ours), ours[0]["added_gib"], *measured]

    return read


def loss_range(impl, *divergences, widths=(2048, 2560, 4096), least=4096, field="ratio"):
    def read(data):
        cases = [case for case in data["rows"] if case["impl"] == impl and case["divergence"] in divergences]
        values = [case[field] for case in cases if case["width"] in widths and case["positions"] >= least]
        return [min(values), max(values)]

    return read


def scoring(case, *fields):
    def read(data):
        measured = data[case]
        sums = {side: measured[side]["teacher_s"] + measured[side]["student_s"] for side in ("shared", "repeated")}
        values = {
            "groups": float(measured["groups_in_row"]),
            "step": sums["shared"],
            "repeated": sums["repeated"],
            "ratio": measured["ratio_step"],
            "formula": measured["ratio_analytic"],
            "rate": 100 * measured["rate_step"],
            "gib": measured["shared"]["peak_gib"],
            "gib repeated": measured["repeated"]["peak_gib"],
        }
        return [values[field] for field in fields]

    return read


def printed_case(case):
    """Step, ratio and rate of a case in a file of which only the printed table is left."""

    def read(text):
        cells = re.search(row(f"qwen3_vl bf16 {case}"), text, flags=re.MULTILINE)[1].split("|")
        return [cells[1].strip(), cells[3].strip(), str(100 * float(cells[7]))]

    return read


EXACT = [
    f"{side} {kind}"
    for side in ("shared float32", "shared bfloat16", "repeated bfloat16")
    for kind in ("hidden", "gradient")
]


def decoding(family, engine, num_tokens):
    def read(data):
        ours, theirs = data[f"{family} autocast"][engine], data[f"{family} autocast"]["generate"]
        return [
            ours["prefill_s"],
            ours["decode_s"][num_tokens],
            ours["ms_per_step"][num_tokens],
            theirs["prefill_s"],
            theirs["decode_s"][num_tokens],
            ours["ratio"][num_tokens],
        ]

    return read


def found(pattern):
    """The numbers that a pattern captures in a text file."""
    return lambda text: [
        group for match in re.findall(pattern, text) for group in ([match] if isinstance(match, str) else match)
    ]


def lora_gap(text):
    """Mean, standard deviation and 95% interval of the differences between runs with the same seed."""
    gaps = [float(gap) for gap in re.findall(r"minus whole weights: ([-+][\d.]+)", text)]
    middle, half = mean(gaps), quantile(0.95, len(gaps) - 1) * stdev(gaps) / math.sqrt(len(gaps))
    return [middle, stdev(gaps), middle - half, middle + half]


def profile(family):
    def read(text):
        kinds = re.findall(
            rf'^{family}.*"matrix products": ([\d.]+), .*?: ([\d.]+), .*?: ([\d.]+), .*?: ([\d.]+)', text, re.M
        )
        products, elementwise, attention, kernels = (sum(map(float, values)) for values in zip(*kinds, strict=True))
        times = re.findall(rf"^{family}, .*: ([\d.]+) s, ([\d.]+) ms", text, re.M)
        seconds, milliseconds = (sum(map(float, values)) for values in zip(*times, strict=True))
        return [products, attention, kernels, elementwise, milliseconds, 1000 * seconds]

    return read


def demo(suite):
    def read(data):
        rows, differences = data["table"]["rows"], data["table"]["differences"]
        get = lambda name: rows[name]["acc"] if suite is None else rows[name]["suites"][suite]  # noqa: E731
        gaps = [differences[pair]["acc" if suite is None else "benchmarks"] for pair in ("vcsd - base", "vcsd - opsd")]
        gaps = gaps if suite is None else [gap[suite] for gap in gaps]
        intervals = [
            value for gap in gaps for value in (gap["difference"], gap["interval"]["low"], gap["interval"]["high"])
        ]
        return [get("base"), get("opsd"), get("vcsd"), *intervals]

    return read


def card_row(*path):
    def read(data):
        measured = data["measured"]
        for name in path:
            measured = measured[name]
        return [str(measured[suite]) for suite in (*SUITES, "mean")]

    return read


def results_row(group, name):
    """The numbers after a variant's name in the first table of a group: suites, then Acc, each with its deviation."""
    return lambda text: numbers(
        re.search(row(name), text.partition(f"\n## {group}\n")[2], flags=re.MULTILINE)[1].replace("**", "")
    )


def accuracy(group, *names):
    """Acc of variants, without their deviations."""
    return lambda text: [results_row(group, name)(text)[2 * len(SUITES)] for name in names]


def main_row(group):
    """Acc of base, OPSD and VCSD, and what VCSD has above both: difference, error, p, change in unread answers."""

    def read(text):
        vcsd = results_row(group, "VCSD")(text)[2 * len(SUITES) + 2 :]
        return [*accuracy(group, "base", "OPSD", "VCSD")(text), *vcsd[:8]]

    return read


def over_base(group, name):
    """Points of a variant above its base, and their standard error."""
    return lambda text: results_row(group, name)(text)[2 * len(SUITES) + 2 : 2 * len(SUITES) + 4]


def mutual_information(text, control):
    """The correlation with the contrast, and the share of positions with the same choice in percent."""
    values = numbers(re.search(row(control), text, flags=re.MULTILINE)[1])
    return [values[0], str(100 * float(values[6]))]


def guard_range(text):
    """The first and last step of a stop, and the fewest and most points lost until then."""
    stops = [int(step) for step in re.findall(r"stopped at step (\d+)", text)]
    lost = [float(points) for points in re.findall(r"([\d.]+) points lost", text)]
    return [float(min(stops)), float(max(stops)), min(lost), max(lost)]


def labelled(text):
    """How many answers there are, how many are resolved, and how many that a human can read are not."""
    rows = [json.loads(line) for line in text.splitlines()]
    answers = [read_answer(row["text"], row["kind"], row["options"]).found for row in rows]
    missed = [row for row, answer in zip(rows, answers, strict=True) if answer is None and row["expected"] is not None]
    return [float(len(rows)), float(sum(answer is not None for answer in answers)), float(len(missed))]


def counted(*path):
    """A row of the labelled answers: counts, precision and its interval, undecided, and what of that was readable."""
    keys = ("answers", "decided", "right", "precision", "low", "high", "undecided", "missed", "readable")
    return lambda data: [pick(*path, key)(data)[0] for key in keys]


def real_model(name):
    return lambda text: numbers(re.search(rf"^{re.escape(name)}  +(\d.*)$", text, flags=re.MULTILINE)[1])


CASES = ["1024 300", "1024 100", "256 300", "256 100", "4080 300", "4080 100", "4080 1000"]
LONG_CASES = ["1024 1000", "256 1000"]
FLA_FILES = {
    "": ["256 300", "1024 300", "1024 100"],
    "_rest": ["256 100", "4080 300", "4080 100", "4080 1000"],
    "_1000": LONG_CASES,
}


def label(case):
    """ "1024 300" as the tables write it: "1,024 x 300"."""
    visual, response = map(int, case.split())
    return f"{visual:,} x {response:,}"


def delta(text, shape):
    """Forward in torch and by kernels, then forward and backward."""
    line = next(line for line in text.splitlines() if line.startswith(shape) and "autocast" in line)
    torch_times, kernel_times = (
        re.search(rf"{name} ({NUMBER}), ({NUMBER})", line).groups() for name in ("ours", "kernels")
    )
    return [torch_times[0], kernel_times[0], torch_times[1], kernel_times[1]]


LOSS, SHARING, SCORING, READER_PAGE, REPRODUCE = (
    "+".join(f"docs/{name}.md" for name in names.split("+"))
    for names in (
        "loss_head",
        "prefix_sharing",
        "scoring",
        "reader+reader_history",
        "evidence+reproduce+results_history",
    )
)
LOSS_FILE, REAL, DEMO = (MEASURED + name for name in ("loss_head.json", "real_answers.txt", "demo.json"))
UNSEEN, DITHERED = (MEASURED + name for name in ("unseen_updates.json", "dither_vcsd.json"))
GRAPHS, PLAIN, BEFORE = (MEASURED + f"rollouts_autocast{name}.json" for name in ("", "_plain", "_before"))
FAMILIES = {"Qwen3-VL": "qwen3_vl", "Qwen3.5": "qwen3_5"}
SMALLEST, NEVER_BLACK = "Qwen3-VL 3.2M", "Qwen3-VL 3.2M, black_share=0"
N = rf"({NUMBER})"
LORA_GAP = rf"run by run \| {N} ± {N}, 95% interval {N} to {N}"


def pick(*path):
    """One number of a JSON file."""

    def read(data):
        for key in path:
            data = data[key]
        return [data]

    return read


def sharing(suffix):
    return f"{MEASURED}prefix_sharing_{suffix}.json"


# What each page claims: pattern, file, how to read it.


def readme():
    yield rf"it answers {N}% correctly; {N}% after OPSD, .*?; {N}% after VCSD", DEMO, lambda data: demo(None)(data)[:3]
    yield rf"takes {N} seconds", MEASURED + "full_step.json", pick("ours", "total_seconds")
    yield rf"takes {N} to {N} times as long", LOSS_FILE, loss_range("triton", "forward_kl")
    yield rf"{N} times faster than a repeated", sharing("qwen3_vl"), scoring("qwen3_vl autocast 1024 300", "ratio")


def changelog():
    yield rf"takes {N} s for Qwen3.5", sharing("qwen3_5"), scoring("qwen3_5 autocast 1024 300", "step")
    yield rf"for Qwen3.5 and {N} s for", sharing("qwen3_vl"), scoring("qwen3_vl autocast 1024 300", "step")
    yield rf"a token in {N} ms \(Qwen3-VL.*?and {N} ms", GRAPHS, graphed
    yield rf"Qwen3-VL, {N} before.*?Qwen3.5, {N} before", BEFORE, graphed


def training():
    phases = {
        "rollout, CUDA graphs, from the bfloat16 copy": "rollout",
        "teacher, two views": "teacher",
        "student": "student",
        "backward": "backward",
        "optimizer, teacher update": "update",
        "**step**": "step",
        "vcsd": "vcsd",
        "repeated padded batch, full logits": "full logits",
        "repeated padded batch, TRL's chunked loss (one teacher view, no contrast)": "TRL's loss",
        "repeated padded batch, vcsd's chunked loss": "chunked loss",
    }
    for name, phase in phases.items():
        file = "full_step_trl.json" if phase == "TRL's loss" else "full_step.json"
        yield row(name), MEASURED + file, lambda data, phase=phase: full_step(data)[phase]
    yield rf"in which vcsd took {N} s", MEASURED + "full_step_trl.json", lambda data: full_step(data)["vcsd"][:1]
    yield rf"several times the {N} seconds", MEASURED + "full_step.json", lambda data: full_step(data)["rollout"][:1]


def kind_of(run):
    """A run's precision, with "dither" if it has that, or "LoRA"."""
    return "LoRA" if run["rank"] else run["computes_in"] + ", dither" * run["dither"]


def unseen(kind, rate, num, *fields):
    """Fields of a run of `unseen_updates.py` after so many updates; kind is as in `kind_of`."""

    def read(data):
        runs = {(kind_of(run), run["rate"]): run["rows"] for run in data["runs"]}
        found = runs[kind, float(rate)][num]
        assert found["updates"] == num
        return [(100 if field in ("changed", "seen_share") else 1) * found[field] for field in fields]

    return read


def unseen_row(kind, rate, num, *fields):
    return rf"^\| {kind} \| {rate} \| {num} \|(.*)\|$", UNSEEN, unseen(kind, rate, num, *fields)


def hidden_by_bfloat16():
    losses = ("changed", "trained_loss", "master_loss", "rounded_loss")
    kinds = ("bfloat16", "2e-6"), ("bfloat16", "5e-6"), ("float32", "2e-6")
    for kind, rate in (*kinds, ("bfloat16, dither", "2e-6")):
        for num in (10, 20, 30):
            yield unseen_row(kind, rate, num, *losses)
    yield rf"loss in training starts at {N}", UNSEEN, unseen("bfloat16", "2e-6", 0, "trained_loss")
    yield rf"takes it from {N} to", UNSEEN, unseen("bfloat16", "5e-6", 16, "trained_loss")
    yield rf"takes it from [\d.]+ to {N},", UNSEEN, unseen("bfloat16", "5e-6", 17, "trained_loss")
    yield rf"lowest after {N} updates, {N},", UNSEEN, lowest_master_loss
    yield rf"and {N} after 29\.", UNSEEN, unseen("bfloat16", "5e-6", 29, "master_loss")
    after_30 = unseen("float32", "2e-6", 30, "trained_loss", "rounded_loss")
    yield rf"at 2e-6 its loss is {N}, and {N} in bfloat16", UNSEEN, after_30


def dithered_vcsd():
    for rate in ("2e-6", "5e-6", "2e-5"):
        for has_dither, word in ((False, "no"), (True, "yes")):
            read = partial(accuracies_by_step, rate, has_dither)
            yield rf"^\| {rate} \| {word} \|(.*)\|$", DITHERED, read
    yield rf"base answers {N}% correctly", DITHERED, lambda data: accuracies_by_step("2e-6", False, data, ["0"])[:1]
    gains = [partial(mean_gain, "2e-6", has_dither) for has_dither in (True, False)]
    yield rf"gain of 90 steps\*\*: {N} points instead of {N}", DITHERED, lambda data: [gain(data) for gain in gains]
    others = partial(mean_gain, without="attributes")
    yield (
        rf"without that suite, they are {N} and {N}",
        DITHERED,
        lambda data: [others("2e-6", has_dither, data) for has_dither in (True, False)],
    )
    loss = [partial(mean_gain, "2e-5", has_dither) for has_dither in (False, True)]
    yield rf"it ends {N} points lower", DITHERED, lambda data: [loss[0](data) - loss[1](data)]


def accuracies_by_step(rate, has_dither, data, steps=("30", "60", "90"), without=None):
    runs = [run["evaluations"] for run in data["runs"] if (run["rate"], run["has_dither"]) == (rate, has_dither)]
    return [mean(v for name, v in run[step].items() if name != without) for step in steps for run in runs]


def mean_gain(rate, has_dither, data, without=None):
    before, after = (accuracies_by_step(rate, has_dither, data, [step], without) for step in ("0", "90"))
    return mean(after) - mean(before)


def lowest_master_loss(data):
    (rows,) = [run["rows"] for run in data["runs"] if (kind_of(run), run["rate"]) == ("bfloat16", 5e-6)]
    lowest = min(rows, key=lambda row: row["master_loss"])
    return [lowest["updates"], lowest["master_loss"]]


def hidden_of_adapters():
    for num in (5, 10, 20, 30):
        yield unseen_row("LoRA", "6e-5", num, "trained_loss", "master_loss", "rounded_loss", "exported_loss")


def loss_on_gpu():
    sizes = [(2048, 151936, 1024), (2048, 151936, 16384), (2560, 151936, 4096), (2560, 248320, 65536)]
    for width in (2048, 4096):
        sizes += [(width, vocabulary, num) for vocabulary in (151936, 248320) for num in (4096, 65536)]
    for width, vocabulary, num in sizes:
        yield row(f"{width}, {vocabulary:,} | {num:,}"), LOSS_FILE, loss_row(width, vocabulary, num)
    narrow, wide = (loss_range("triton", "forward_kl", widths=(width,)) for width in (2048, 4096))
    others = loss_range("triton", "reverse_kl", "jensen_shannon")
    memory = loss_range("triton", "forward_kl", least=0, field="added_gib")
    yield row("forward KL at most 1.3x at D = 2048, N >= 4,096"), LOSS_FILE, narrow
    yield row("forward KL at most 1.2x at D = 4096, N >= 4,096"), LOSS_FILE, wide
    yield row("reverse KL and Jensen-Shannon at most 1.6x", r" ([\d.]+ to [\d.]+) .*"), LOSS_FILE, others
    yield row("at most 2 GiB beyond the gradients at any N"), LOSS_FILE, lambda data: memory(data)[1:]
    yield rf"forward KL takes {N} to {N} times the floor", LOSS_FILE, loss_range("trl", "-")
    yield rf"many: {N} to {N} times the floor", LOSS_FILE, loss_range("liger", "-")
    yield rf"this one it takes {N} to {N} times the floor", LOSS_FILE, loss_range("chunked", "forward_kl")
    peaks = rf"the ratio was {N} at D = 2048, N = 4,096, {N} at N = 16,384, and {N} and {N} at D"
    yield peaks, MEASURED + "loss_head_peaked.md", found(r"triton \| forward_kl \| [\d.]+ \| ([\d.]+)")


def loss_on_cpu():
    keys = ("cpu_seconds", "wall_seconds", "added_gib")
    for place, name in enumerate(("naive (`reference`)", "`chunked`")):
        yield row(name), MEASURED + "loss_head_cpu.json", lambda data, i=place: [data["rows"][i][key] for key in keys]
    ratios = ("time_ratio", "wall_ratio", "memory_ratio")
    yield row("ratio"), MEASURED + "loss_head_cpu.json", lambda data: [data[key] for key in ratios]


def sharing_table(family, num_columns, fields, files):
    """The rows of a table of scoring: under autocast, and in pure bfloat16 in the last column."""
    front, last = rf"((?:[^|]*\|){{{num_columns}}})[^|]*", rf"(?:[^|]*\|){{{num_columns}}}([^|]*)"
    for suffix, case in [(suffix, case) for suffix, cases in files.items() for case in cases]:
        if suffix != "_bf16":
            yield row(label(case), front), sharing(family + suffix), scoring(f"{family} autocast {case}", *fields)
        if suffix:
            yield row(label(case), last), sharing(family + suffix), scoring(f"{family} bf16 {case}", *SHORT)


def printed_bfloat16():
    """The column of which only a printed table is left."""
    for case in CASES:
        last = row(label(case), r"(?:[^|]*\|){7}([^|]*)")
        yield last, MEASURED + "prefix_sharing_qwen3_vl_bf16.md", printed_case(case)


def against_fla():
    for suffix, case in [(suffix, case) for suffix, cases in FLA_FILES.items() for case in cases]:
        yield row(label(case)), sharing("qwen3_5_fla" + suffix), scoring(f"qwen3_5 autocast {case}", *FIELDS)
    yield rf"Every case reaches {N}% of the formula", sharing("qwen3_5_fla_rest"), least_share
    for suffix, pattern in {
        "": rf"were {N},",
        "_rest": rf"were \d+, {N} and",
        "_1000": rf"were \d+, \d+ and {N} TF",
    }.items():
        yield pattern, sharing("qwen3_5_fla" + suffix), pick("about", "matrix_tflops")


def least_share(data):
    """The smallest speed-up relative to the formula, in percent."""
    shares = [case["ratio_step"] / case["ratio_analytic"] for case in data.values() if "ratio_step" in case]
    return [100 * min(shares)]


def exact_on_gpu():
    files = {"Qwen3-VL": "qwen3_vl", "Qwen3.5": "qwen3_5", "Qwen3.5, repeated by fla": "qwen3_5_fla"}
    for name, file in files.items():
        key = f"exactness {file.removesuffix('_fla')}"
        yield row(name), sharing(file), lambda data, key=key: [data[key][kind] for kind in EXACT]
    for name, family in FAMILIES.items():
        path = (f"reproducibility {family} autocast", "plain", "relative_gap")
        gap = lambda data, path=path: [100 * pick(*path)(data)[0]]  # noqa: E731
        yield rf"{N}% \({name}\)", sharing(family), gap


def limits():
    for name, family in FAMILIES.items():
        yield row(name), MEASURED + "scoring_profile.txt", profile(family)
    rates = rf"{N} TFLOP/s forward and {N} backward at 4 x 4,096 patches, {N} and {N} at 2"
    flash = found(r"(?:^|\n)(?:4 x 4096|2 x 16320): .*?\((\d+) and (\d+) TFLOP")
    yield rates, MEASURED + "tower_attention.txt", flash
    yield rf"1,024 x 300 took {N} s", sharing("qwen3_5_plain"), scoring("qwen3_5 autocast 1024 300", "step")
    last_two = r"[^|]*\|(.*)"
    shapes = {"delta rule, 4 prompts of 1,100 tokens": "(4, 1100", "delta rule, 32 responses of 300": "(32, 300"}
    for name, shape in shapes.items():
        yield row(name, last_two), MEASURED + "delta_rule.txt", lambda text, shape=shape: delta(text, shape)
    lines = {
        "convolution": "convolution, student",
        "gated norm": "gated norm, student",
        "delta rule, one token of 256 rollouts": "step, 256",
    }
    for name, line in lines.items():
        times = found(line + r".*: chain ([\d.]+) ms, kernel ([\d.]+)")
        yield row(name, last_two), MEASURED + "delta_net.txt", times


def rollouts():
    for name, family in FAMILIES.items():
        for num in ("64", "256"):
            yield row(f"{name}, plain | {num}"), PLAIN, decoding(family, "plain", num)
            yield row(f"{name}, CUDA graphs | {num}"), GRAPHS, decoding(family, "graph", num)
        attention = found(rf"{name}-2B.*chain ([\d.]+) ms, kernels ([\d.]+)")
        yield row(name), MEASURED + "decode_attention.txt", attention
    memory = rf"uses {N} and {N} GiB in addition to the weights, vcsd {N} and {N}"
    keys = [(f"{family} autocast", engine) for engine in ("generate", "graph") for family in FAMILIES.values()]
    yield memory, GRAPHS, lambda data: [data[case][engine]["peak_gib"] for case, engine in keys]
    yield rf"with graphs took {N} ms for Qwen3-VL, .*? and {N} ms for Qwen3.5", BEFORE, graphed
    yield rf"of Qwen3-VL took {N} ms", GRAPHS, pick("qwen3_vl autocast", "plain", "ms_per_step", "256")
    for num, pattern in {"64": rf"{N} and [\d.]+", "256": rf"[\d.]+ and {N}"}.items():
        older = rf"Qwen3-VL: {pattern} times faster than `generate` without graphs, {pattern}"
        yield older, f"{MEASURED}rollouts_{num}.json", lambda data, num=num: older_ratios(data, num)


def graphed(data):
    return [data[f"{family} autocast"]["graph"]["ms_per_step"]["256"] for family in FAMILIES.values()]


def older_ratios(data, num):
    return [data["qwen3_vl bf16"][engine]["ratio"][num] for engine in ("plain", "graph")]


def reader():
    counts = rf"holds {N} answers .*? It resolves {N} of them, all correctly, and leaves {N} unresolved"
    yield counts, "tests/golden/final_answers.jsonl", labelled
    names = {
        "BLINK, GPT-4o": "GPT4o",
        "BLINK, GPT-4 Turbo": "GPT4Turbo",
        "BLINK, Claude 3 Opus": "OPUS",
        "BLINK, Gemini Pro Vision": "GeminiProVision",
        "MathVista, Bard": "bard",
        "MathVista, Claude 2": "claude",
        "MathVista, Qwen2.5-VL-7B": "qwen",
    }
    for name, file_name in names.items():
        yield row(name), REAL, real_model(file_name)
    yield from new_answers(7, num_draws=2)
    yield from new_answers(8, num_draws=1)
    yield from new_answers(9, num_draws=1)
    yield from new_answers(10, num_draws=1)
    yield from fresh_answers()
    names = ("_reader_6", "_reader_5", "_reader_4", "_reader_3", "_reader_2")
    sixth, fifth, unseen, before, first = (MEASURED + f"labelled_answers{name}.json" for name in names)
    by_kind = ("parts", "later", "by kind")
    for name, kind in {"all": "all", "options": "option", "integers": "integer", "floats": "float"}.items():
        yield row(name), unseen, counted(*by_kind, kind)
    yield row("all, version 5, developed on them"), fifth, counted(*by_kind, "all")
    yield row("all, version 3"), before, counted(*by_kind, "all")
    yield from other_benchmarks(sixth, fifth, unseen)
    yield from harder_answers("harder", fifth)
    yield from harder_answers("harder 6", sixth)
    yield (
        row("the authors, on the same harder answers"),
        sixth,
        counted(*HARDER, "where the authors extracted", "authors", "all"),
    )
    yield row("all, the authors"), sixth, counted("parts", "later", "where the authors extracted", "authors", "all")
    yield row("earlier held-out half, version 3"), before, counted("parts", "held out", "by kind", "all")
    yield row("earlier held-out half, version 2"), first, counted("halves", "held out", "by kind", "all")
    yield rf"rank correlation of only {N} ", REAL, found(r"answer in words: ([\d.]+)")
    correlations = {
        "all 17 models": r"answer in words: ([\d.]+)",
        "all 17, on the answers that are read": r"answers that are read: ([\d.]+)",
        "all 17, with the authors' guesses where nothing is read": r"nothing is read, and theirs: ([\d.]+)",
        "what `final` lacks of the authors' score, and the share unread": r"share unread: ([\d.]+)",
    }
    for name, pattern in correlations.items():
        yield row(name), REAL, found(pattern)
    yield row("the 7 models with less than 15% unread (only 2 have less than 10%)"), REAL, found(r"% unread: ([\d.]+)")


def other_benchmarks(sixth, fifth, earlier):
    """The rows about the answers that version 5 was tested with."""
    kinds = {"all": "all", "options": "option", "integers": "integer", "floats": "float", "yes or no": "yes_no"}
    groups = {"by language": ("English", "Chinese"), "by draw": ("first", "second")}
    models = ("ScienceQA/LLaVA-CoT", "CMMU/GPT-4V", "MME-CoT/Qwen2.5-VL-3B", "MathVista/VEPO")
    part = ("parts", "version 5")
    for name, kind in kinds.items():
        yield row(f"version 5, {name}"), fifth, counted(*part, "by kind", kind)
    yield row("version 6, developed on them"), sixth, counted(*part, "by kind", "all")
    seventh = MEASURED + "labelled_answers_reader_7.json"
    yield row("version 7, developed on them"), seventh, counted(*part, "by kind", "all")
    yield row("version 4, all"), earlier, counted(*part, "by kind", "all")
    for table, names in groups.items():
        for name in names:
            label = f"version 5, {name} draw" if table == "by draw" else f"version 5, {name}"
            yield row(label), fifth, counted(*part, table, name)
    for name, who in {
        "version 5, where the authors extracted": "reader",
        "the authors, on the same answers": "authors",
    }.items():
        yield row(name), fifth, counted(*part, "where the authors extracted", who, "all")
    for name in models:
        yield row(name.replace("/", ", ")), fifth, counted(*part, "by model", name)


def new_answers(version, num_draws):
    """The rows about the answers that a version was measured with, and what other versions read of them."""
    kinds = {"all": "all", "options": "option", "integers": "integer", "floats": "float", "yes or no": "yes_no"}
    benchmarks = ("EMMA", "CMM-Math", "Probes", "M3CoT", "MathVista", "MM-IQ", "A-OKVQA")
    if version >= NEWEST:
        benchmarks = ("CMM-Math", "CharXiv", "Hallucination probes", "RealHiTBench", "GQA-counterfactual", "PuzzleVQA")
        benchmarks += ("ScienceQA", "TDBench", "BlindTest", *(("MathVista", "GeoQA") if version == NOW else ()))
    tables = {
        "by kind": {label: kind for label, kind in kinds.items() if version != WITHOUT_FLOATS or kind != "float"},
        "by language": {"English": "English", "Chinese": "Chinese"},
        "by draw": {"first draw": "first", "second draw": "second"} if num_draws > 1 else {},
        "by benchmark": {name: name for name in benchmarks},
    }
    file = MEASURED + ("labelled_answers.json" if version == NOW else f"labelled_answers_reader_{version}.json")
    part = ("parts", f"version {version}")
    for table, names in tables.items():
        for label, name in names.items():
            yield row(f"version {version}, {label}"), file, counted(*part, table, name)
    extracted = (*part, "where the authors extracted")
    yield row(f"version {version}, where the authors extracted"), file, counted(*extracted, "reader", "all")
    same = "the same new answers" if version == NEW else f"the same answers for version {version}"
    yield row(f"the authors, on {same}"), file, counted(*extracted, "authors", "all")
    others = {f"version {other}, on {same}": f"_reader_{other}" for other in range(6, version)}
    if version == NEW:
        others |= {f"version {other}, developed on them": f"_reader_{other}" for other in range(NEW + 1, NOW)}
        others |= {f"version {NOW}, developed on them": ""}
    else:
        later = {other: f"_reader_{other}" for other in range(version + 1, NOW)}
        later |= {NOW: ""} if version < NOW else {}
        same = f"developed on the answers for version {version}"
        others |= {f"version {other}, {same}": name for other, name in later.items()}
    for label, name in others.items():
        yield row(label), MEASURED + f"labelled_answers{name}.json", counted(*part, "by kind", "all")


def fresh_answers():
    """The rows about the answers of other models that version 10 was measured with when it was finished."""
    tables = {
        "by kind": {"all": "all", "options": "option", "integers": "integer", "floats": "float", "yes or no": "yes_no"},
        "by language": {"English": "English", "Chinese": "Chinese"},
        "by draw": {"first draw": "first", "second draw, longer answers": "second"},
        "by benchmark": {name: name for name in ("AECV-Bench", "M4U", "EventHallusion", "II-Bench", "IllusionVQA")},
    }
    file = MEASURED + "labelled_answers.json"
    for table, names in tables.items():
        for label, name in names.items():
            yield row(f"other models, {label}"), file, counted("parts", "fresh", table, name)
    for version in (9, 6):
        other = MEASURED + f"labelled_answers_reader_{version}.json"
        yield (
            row(f"version {version}, on the answers of other models"),
            other,
            counted("parts", "fresh", "by kind", "all"),
        )
    shares = rf"{N} of the {N} answers are of models .*? {N} of these are decided, {N} of them right"
    yield shares, file, of_new_models
    first, again = rf"Most of the {N} answers that were drawn first are short, so {N} of", ("first", "second")
    yield first, file, lambda data: [data["parts"]["fresh"]["by draw"][draw]["answers"] for draw in again]
    yield rf"long sentences, has {N} of them among its {N} answers", file, undecided_of("Mistral-Large-2512")


def of_new_models(data):
    """The answers of models that no earlier label names, all answers, and how many of the former are decided, right."""
    models = data["parts"]["fresh"]["by model"]
    counts = [row for name, row in models.items() if "AECV-Bench" in name or name.endswith(NEW_MODELS)]
    num, decided, right = (sum(row[key] for row in counts) for key in ("answers", "decided", "right"))
    return [num, models["all"]["answers"], decided, right]


def undecided_of(model):
    """How many answers of a model of AECV-Bench are undecided though readable, and how many there are."""
    return lambda data: [
        data["parts"]["fresh"]["by model"][f"AECV-Bench/{model}"][key] for key in ("missed", "answers")
    ]


NEW_MODELS = ("Video-LLaVA", "Yi-VL-6B", "o4-mini")
NEW, WITHOUT_FLOATS, NEWEST, NOW = 7, 8, 9, 10
"""The versions whose labels came first, have no floats, and are of the newest files; and the version in use."""


def unseen_share(part):
    """Precision, its interval, the number of answers, and the share undecided."""
    keys = ("precision", "low", "high", "answers", "undecided")
    return lambda data: [data["parts"][part]["by kind"]["all"][key] for key in keys]


HARDER = ("parts", "version 6")


def harder_answers(prefix, file):
    """The rows about the harder answers, labelled for version 6, as one version read them."""
    tables = {
        "by kind": {"all": "all", "options": "option", "integers": "integer", "floats": "float", "yes or no": "yes_no"},
        "by language": {"English": "English", "Chinese": "Chinese"},
        "by draw": {"first draw": "first", "second draw": "second"},
        "by benchmark": {name: name for name in ("VisOnlyQA", "LogicVista", "GAOKAO-MM", "MME-CoT", "CMMU")},
    }
    for table, names in tables.items():
        for label, name in names.items():
            yield row(f"{prefix}, {label}"), file, counted(*HARDER, table, name)
    extracted = (*HARDER, "where the authors extracted")
    yield row(f"{prefix}, where the authors extracted"), file, counted(*extracted, "reader", "all")


def bases():
    rows = {
        " after true answers, `dev`": ("answer", "greedy"),
        ", swayed": ("test", "greedy"),
        ", swayed, contrast decoding": ("test", "contrast"),
    }
    for name, family in FAMILIES.items():
        for words, path in rows.items():
            yield row(f"{name}{words}"), f"src/vcsd/bases/assets/{family}-small-1/card.json", card_row(*path)


def monitoring():
    stops = rf"stop at step {N} to {N}, having lost {N} points or less"
    yield stops, WORLD + "support.md", lambda text: [*guard_range(text)[:2], guard_range(text)[3]]
    below = rf"it misses {N} of the {N} runs that ended below"
    yield below, WORLD + "what_the_contrast_adds.md", missed_and_bad
    later = rf"On \[{N} more\]\(results/paper_dose\.md#the-guard-on-these-runs\) it misses {N} of {N}, five"
    yield later, WORLD + "paper_dose.md", lambda text: [*found(r"Of all (\d+) runs")(text), *missed_and_bad(text)]
    others = rf"On \[{N} others\]\(results/more_bases\.md#the-guard-on-these-runs\), none .*? it stops {N} OPSD runs\."
    yield others, WORLD + "more_bases.md", found(r"Of all (\d+) runs it stops (\d+)")
    for num in (50, 200, 500):
        yield rf"^\| {num}((?: \| {NUMBER}){{5}}) \|$", MEASURED + "loss_warnings.json", warned(num)
        yield rf"^\| {num}((?: \| {NUMBER}){{3}}) \|$", MEASURED + "loss_warnings.json", warned_falsely(num)
        for place in (5, 20):
            yield row(f"{num} questions, evaluation {place}"), MEASURED + "loss_warnings.json", warned_late(num, place)
    most = rf"At 50% and 90% it is at most {N}\."
    yield most, MEASURED + "loss_warnings.json", lambda result: [max(cell["either"] for cell in result["steady"])]


def warned(num):
    """The percentages of evaluations of so many questions that warn, for a first score of 70%, by the loss."""

    def read(result):
        cells = [cell for cell in result["cells"] if (cell["questions"], cell["score"]) == (num, 70)]
        return [cell["warned"] for cell in sorted(cells, key=lambda cell: cell["loss"])]

    return read


def warned_falsely(num):
    """The percentages of evaluations that warn without a loss, at a score of 70%, by their number."""

    def read(result):
        cells = [cell for cell in result["steady"] if (cell["questions"], cell["score"]) == (num, 70)]
        return [cell["either"] for cell in sorted(cells, key=lambda cell: cell["evaluations"])]

    return read


def warned_late(num, place):
    """The percentages of evaluations at this place that warn after a peak, by the loss."""

    def read(result):
        cells = [cell for cell in result["peaks"] if (cell["questions"], cell["evaluations"]) == (num, place)]
        return [cell["warned"] for cell in sorted(cells, key=lambda cell: cell["loss"])]

    return read


def missed_and_bad(text):
    """The bad runs that the guard did not stop, and all bad runs."""
    (bad,) = re.findall(r"Of the (\d+) bad ones", text)
    return [float(sum(map(int, missed_by_the_guard(text)))), float(bad)]


def missed_by_the_guard(text):
    """The numbers of bad runs that the guard did not stop, variant by variant."""
    table = re.split(r"## The guard on (?:new|these) runs", text)[1].partition("## All runs")[0]
    return re.findall(r"^\| [\w., ]+ \| \d+ \| \d+ \| (\d+) \|", table, flags=re.MULTILINE)


def experiments():
    for suite in SUITES:
        yield row(suite), DEMO, demo(suite)
    yield row("**all seven**"), DEMO, demo(None)
    for group in (SMALLEST, "Qwen3-VL 10.6M", "Qwen3.5 3.0M", "Qwen3.5 10.4M"):
        yield row(group), WORLD + "main.md", main_row(group)
    pooled = rf"VCSD is {N} ± {N} points over the base and {N} ± {N} over OPSD"
    tally = found(r"\(claims\.md\) of the paper: (\d+) disagree, (\d+) undecided, (\d+) agree")
    yield rf"the offline world can test, {N} disagree, {N} are undecided and {N} agree", WORLD + "README.md", tally
    yield pooled, WORLD + "claims.md", found(r"all models together\. .*?\| ([-+][\d.]+) ± ([\d.]+)")
    original = found(r"in all answers: -([\d.]+) ± ([\d.]+)")
    yield rf"all answers together, the contrast on visual words loses {N} ± {N} nats", WORLD + "claims.md", original
    stable = found(r"\| step 300 minus step 90: ([-+][\d.]+) ± ([\d.]+) \(p = ([\d.]+)\), 95% ")
    yield rf"to step 300 they change by {N} ± {N} points \(p = {N}\)", WORLD + "claims.md", stable
    falls = rf"then fall, to {N} at step 300, where runs with it reach {N}"
    yield falls, WORLD + "support.md", accuracy(SMALLEST, "beta 0", "beta 0.1")
    stops = rf"stops them at step {N} to {N}, when they are {N} to {N} points"
    yield stops, WORLD + "support.md", guard_range
    yield rf"Decoding takes {N} to {N} times as long", WORLD + "decoding.md", lambda _: least_and_most_cost()
    yield rf"Qwen3-VL reaches {N} without", WORLD + "decoding.md", accuracy(SMALLEST, "contrast decoding")
    controls = rf"{N} against {N} to {N} for noise, blur and black"
    yield controls, WORLD + "control.md", accuracy(SMALLEST, "no image", "noise", "black")
    yield rf"work: {N} ± {N} points", WORLD + "black.md", over_base(NEVER_BLACK, "VCSD with black")
    yield rf"black, {N} ± {N} without", WORLD + "black.md", over_base(NEVER_BLACK, "VCSD with no image")
    yield rf"an image, {N} ± {N} with noise", WORLD + "black.md", over_base(NEVER_BLACK, "VCSD with noise")
    yield rf"not clearly\*\*: {N} against {N} ", WORLD + "anchor.md", accuracy(SMALLEST, "no anchor", "anchor 1")
    yield rf"above alpha 0\*\* \({N} and {N},", WORLD + "alpha.md", accuracy(SMALLEST, "alpha 2", "alpha 0")
    yield rf"still gains {N} ± {N} points", WORLD + "alpha.md", over_base(SMALLEST, "alpha 0")
    for name, pattern in {"OPSD": rf"OPSD ends at {N} and", "VCSD": rf"and VCSD at {N}\."}.items():
        yield pattern, WORLD + "main.md", lambda text, name=name: results_row("Qwen3.5 3.0M", name)(text)[6:7]
    claims = {
        rf"ends {N} ± {N} below alpha 1": r"accuracy is lower than with alpha 1\. .*?: ([-+][\d.]+) ± ([\d.]+) \(p",
        rf"Jensen-Shannon divergence\*\* \({N} ± {N}\)": r"above the Jensen-Shannon .*: ([-+][\d.]+) ± ([\d.]+) \(p",
        rf"Reverse KL stays {N} ± {N} behind": r"above reverse KL.*?: ([-+][\d.]+) ± ([\d.]+) \(p",
        rf"{N}% of rollouts leave": r"with the anchor, ([\d.]+) ± [\d.]+% without",
        rf"without the anchor and {N}% with it": r"\| ([\d.]+) ± [\d.]+% of rollouts .* with the anchor",
    }
    for pattern, words in claims.items():
        yield pattern, WORLD + "claims.md", found(words)
    for control, pattern in {
        "black": rf"\(r = {N}\).*?in {N}% of",
        "no image": rf"\(r = {N}, the same token in {N}%",
    }.items():
        yield pattern, WORLD + "pmi.md", lambda text, name=control: mutual_information(text, name)
    yield rf"took {N} s on one H200", WORLD + "main.md", found(r"Wall time: (\d+) s .* for 52 runs")
    yield from planned()
    yield from where_it_can_fail()


def at_the_papers_dose(signed):
    """What the page of the paper's dose says: eight claims, and what OPSD does there."""
    page = WORLD + "paper_dose.md"

    def claim(name, num):
        return found(rf"VCSD minus `{name}` \|[^|]*\| {signed} [^|]*\|" + rf" {signed} to {signed} \|" * (num > 1))

    yield rf"their {N} runs were read once", page, found(r"\*\*(\d+) of \1 runs")
    yield rf"; {N} claims of the paper have no runs", page, found(r"\*\*(\d+) claims of the paper are not judged")
    for name, words in {
        "contrast decoding": "contrast decoding, without training",
        "another picture": "another picture as the control",
        "sharpened 2": "sharpening",
        "OPSD beta 0.1": "OPSD with VCSD's support",
        "base": "its base",
        "alpha 0": r"alpha 0 \(no contrast\)",
        "OPSD": "matched OPSD",
    }.items():
        yield rf"^\| {words} \| {N} \| {N} to {N} \|", page, claim(name, 3)
    yield rf"at 0\.2, {N} at 0\.4, \S+ in the default world", page, claim("base", 1)
    yield rf"decoding gains \S+ points and VCSD {N}\.", page, claim("base", 1)
    for name, words in {
        "sharpened 2": "Sharpening alone gains",
        "contrast decoding": "paper's size, decoding gains",
        "OPSD": "OPSD changes that by",
    }.items():
        yield rf"{words} {N}", page, found(rf"`{name}` minus base \| {signed}")
    yield rf"The bases answer {N}% correctly", page, found(r"(?m)^\| base \|.*?([\d.]+) ± [\d.]+ \|  \|")
    yield (
        rf"the lead would be {N} \(95% {N} to {N}\)",
        page,
        found(rf"OPSD would be {signed} \(95% {signed} to {signed}"),
    )
    yield rf"{N} points from being called alike", page, found(r"another picture` \S+ to \S+ \(([\d.]+) beyond\)")
    yield rf"another base from {N} to {N}", page, found(r"`arithmetic` on \d+ \(([\d.]+) to ([\d.]+)\)")
    yield rf"on one base from {N} to {N}", page, found(r"`correspondence` on \d+ \(([\d.]+) to ([\d.]+)\)")
    yield rf"it misses {N} of the {N} runs that end more", page, found(r"It misses (\d+) of the (\d+) that end more")
    yield rf"one of them by {N} points without", page, largest_loss_without_a_warning
    yield rf"{N}% of its answers are so broken", page, found(r"(?m)^\| OPSD \|.*\| ([\d.]+) \([\d.]+ to [\d.]+\) \|$")


def largest_loss_without_a_warning(text):
    """Points that the worst run lost that the guard did not warn about."""
    return [max(float(before) - float(after) for before, after in re.findall(r"\(([\d.]+) to ([\d.]+), no w", text))]


def where_it_can_fail():
    """What settings gain and lose; falls are printed without their sign."""
    page = WORLD + "where_it_fails.md"
    fall = r"-([\d.]+) \(95% -([\d.]+) to -([\d.]+)"

    def lost(words):
        def read(text):
            mean, low, high = re.search(rf"text only {fall}[^)]*\), {words}", text).groups()
            return [mean, high, low]

        return read

    def setting(name, num=3):
        ends = r" \| [-+][\d.]+ \| ([-+][\d.]+) to ([-+][\d.]+)" if num == 3 else ""
        return found(rf"(?m)^\| {name}: [^|]*\|[^|]*\|[^|]*\|[^|]*\| ([-+][\d.]+){ends}")

    yield rf"right answers fall by {N} points \(95% {N} to {N}\), on all five", page, lost("after ordinary training")
    wrong = found(r"(?s)## Ordinary.*?confidence when wrong \| ([\d.]+) \| ([\d.]+)")
    yield rf"confidence of wrong answers rises from {N}% to {N}%", page, wrong
    rise = found(r"(?s)## Ordinary.*?confidence when wrong \| (?:[^|]*\| ){4}([-+][\d.]+) to ([-+][\d.]+)")
    yield rf"confident, from [\d.]+% to [\d.]+% \(95% {N} to {N}; no verdict", page, rise
    pass_at_8 = found(r"(?s)## Ordinary.*?\| pass@8 \| [\d.]+ \| [\d.]+ \| ([-+][\d.]+)")
    yield rf"`pass@8` is undecided \({N}\)", page, pass_at_8
    yield rf"questions\*\* clearly: {N} \(95% {N} to {N}\)", page, setting("other questions")
    yield rf"not asked, {N} on the five that were", page, found(r"kinds about colours change by ([-+][\d.]+)")
    worst = found(r"\| 300 steps \| sight \| \S+ \| ([\d.]+) \| ([\d.]+) \| [^|]*\| -([\d.]+)")
    yield rf"\(sight {N} to {N}: [^)]*\), while its Acc falls by {N} points", page, worst
    sight = f"{WORLD}cells/8f234e2ba16a591f.json"
    yield (
        rf": {N}, {N} and {N} on pictures of 3, 4 and 5 cells",
        sight,
        lambda run: [*run["abilities"]["sight"].values()],
    )
    yield rf"blurred pictures gains {N} points", page, setting("cannot see", 1)
    yield rf"prompts that tell the answer gains {N}, almost", page, setting("needs no picture", 1)
    blurred = found(r"(?s)\| color \| [^|]*\| ([-+][\d.]+).*?\| shape_choice \| [^|]*\| ([-+][\d.]+)")
    yield rf"`color` rises by {N}, `shape_choice` by {N}", page, blurred
    yield rf"long answers VCSD gains {N} points \(95% {N} to {N}\)", page, setting("long answers")
    yield rf"about such pictures rise by {N} points", page, setting("prior mostly right", 1)
    usual = lost("in the setting `prior mostly right`")
    yield rf"text-only ability falls by {N} \(95% {N} to {N}, undecided after", page, usual


def more_bases(signed):
    """What six more bases of each family say about VCSD and OPSD."""
    page = WORLD + "more_bases.md"
    for family, words in {"Qwen3-VL": r"VCSD is", "Qwen3.5": r", and"}.items():
        row = rf"\| {re.escape(family)}: VCSD minus OPSD \| \d+ \| {signed} \| [-+\d.]+ \| {signed} to {signed} "
        yield rf"{words} {N} (?:points above OPSD )?on {re.escape(family)} \((?:95% )?{N} to {N}\)", page, found(row)
    columns = r": VCSD minus OPSD \| \d+ \| [-+\d.]+ \| [-+\d.]+ \| \S+ to \S+ \| [^|]+ \| ([\d.]+) "
    yield rf"shown a difference of at least {N} points on Qwen3-VL and {N} on Qwen3", page, found(columns)
    yield rf"it stops {N} OPSD runs that end above", page, found(r"It stops (\d+) that end above")
    for family in ("Qwen3.5", "Qwen3-VL"):
        bound = rf"\*\*{re.escape(family)}\*\*: if every .*? would be {signed} \(95% {signed} to {signed}\)"
        yield rf"{N} (?:points above it )?on {re.escape(family)} \((?:95% )?{N} to {N}\)[. ]", page, found(bound)


def made_twice():
    """What runs of the history that were made twice say about the reader, about machines and about the tolerance."""
    file = MEASURED + "earlier_results.json"
    yield rf"never had losses more than {N}% apart", file, lambda data: [100 * data["devices"]["one run"]["largest"]]
    yield rf"{N} of their {N} steps were within 1%", file, lambda data: within(data, "one run", "within 0.01")
    yield (
        rf"20 steps they were within {N}%",
        file,
        lambda data: [100 * data["devices"]["one run"]["largest of the first 20"]],
    )
    yield rf"two seeds of one base, {N}% of the steps", file, share_within
    yield rf"H200 differ by {N} points of Acc at most", file, lambda data: [max(moved_by(data))]
    yield rf"cores: Acc differed by {N} points at most", file, lambda data: [max(moved_by(data))]
    for variant, words in {"OPSD": "OPSD then has", "no anchor": "without the anchor have"}.items():
        means = lambda data, variant=variant: data["readers"][variant]["mean"]  # noqa: E731
        yield rf"{words} {N}, not {N}", file, lambda data, means=means: [means(data)["after"], means(data)["before"]]
    yield rf"\(one run {N}, not {N}\)", file, worst_read
    drift = MEASURED + "replay_drift.json"
    yield (
        rf"Over {N} steps in float32, .* move losses by less than {N}% and gradient norms by less than {N}%",
        drift,
        most_drift,
    )


def least_and_most_cost():
    """How many times as long contrast decoding took as plain decoding, over all runs that measured it."""
    results = [json_of(path.relative_to(ROOT).as_posix()) for path in (ROOT / WORLD / "cells").glob("*.json")]
    costs = [result["cost"]["ratio"] for result in results if "cost" in result]
    return [min(costs), max(costs)]


def within(data, which, name):
    return [data["devices"][which][name], data["devices"][which]["steps"]]


def share_within(data):
    num, total = within(data, "two seeds", "within 0.05")
    assert all(steps < 2 for steps in data["devices"]["two seeds"]["steps before the first above 0.05"])
    return [100 * num / total]


def moved_by(data):
    """Points of Acc between a run on a CPU and the same on a GPU, of the thirteen runs; seven have none."""
    moved = [abs(row["before"]["acc"] - row["after"]["acc"]) for row in data["devices"]["runs"]]
    assert (len(moved), moved.count(0)) == (13, 7)
    return moved


def worst_read(data):
    """The run that the first reader read worst, now and then; its result now is the one in the results folder."""
    runs = [run for variant in data["readers"].values() for run in variant["runs"]]
    assert len(runs) == 6
    assert all(run["same_training"] for run in runs)
    run = max(data["readers"]["OPSD"]["runs"], key=lambda run: run["before"]["unresolved"])
    assert json_of(f"{WORLD}cells/{run['key']}.json")["acc"] == run["after"]["acc"]
    return [run["after"]["acc"], run["before"]["acc"]]


def most_drift(data):
    """The number of steps, and the powers of ten of a percent below which rounding alone takes losses and norms."""
    cases = [case for family in data["families"].values() for case in family["rounding"].values()]
    assert all(len(case["loss"]) == data["steps"] for case in cases)
    percents = [100 * max(max(case[name]) for case in cases) for name in ("loss", "gradient_norm")]
    return [data["steps"], *(10.0 ** math.ceil(math.log10(percent)) for percent in percents)]


def planned():
    """What the planned runs say, on the pages of verdicts and of doses."""
    adds, doses = WORLD + "what_the_contrast_adds.md", WORLD + "doses.md"
    signed = r"([-+][\d.]+)"
    yield from at_the_papers_dose(signed)
    yield from more_bases(signed)
    yield from [*made_twice(), *by_dose(adds, doses, signed), *on_newer_bases()]
    yield (
        rf"VCSD changes by {N} points on three bases",
        doses,
        found(rf"(?m)^VCSD minus base is {signed}"),
    )
    yield rf"one of them by {N} points", doses, found(r"VCSD minus base is .*?\(bases -([\d.]+)")
    yield rf"all three, by {N} on average", doses, found(r"`OPSD` minus base: -([\d.]+)")
    unread = rf"leaves {N}%, {N}% and {N}% of the answers unread"
    yield unread, doses, found(r"Unread answers: ([\d.]+)%, ([\d.]+)%, ([\d.]+)%")
    yield rf"up to {N}% at \[other doses", doses, most_unread
    yield rf"{N} to {N}% on the five new bases", adds, found(r"(?m)^\| OPSD \|.*\| [\d.]+ \(([\d.]+) to ([\d.]+)\) \|$")
    decoding = rf"over contrast decoding \({N}, 95% {N} to {N}\)"
    yield decoding, adds, found(rf"`contrast decoding`: {signed} \(95% {signed} to {signed}")
    for name, words in {
        "OPSD beta 0.1": "VCSD's support",
        "OPSD, best dev step": "best dev step",
        "another picture": "as control",
    }.items():
        yield rf"{words} \({N}", adds, found(rf"VCSD minus `{name}`: {signed}")
    yield rf"as control \([-+\d.]+, 90% {N} to {N}\)", adds, found(rf"picture`: .*?90% interval {signed} to {signed}")
    support = rf"support is {N} points over OPSD, VCSD {N} over OPSD and {N} \(95% {N} to {N}\) .*? on {N} of {N} bases"
    ends = rf"{signed} \(95% {signed} to {signed}, .*?\)"
    yield support, adds, found(rf"minus OPSD is {signed}, .*? OPSD {signed} and .*?` {ends};.* on (\d) of (\d)")
    behind = rf"behind contrast decoding\*\*, by {N} points \(95% {N} to {N}"
    yield behind, adds, found(rf"`arithmetic`, VCSD minus .*? is {signed} \(95% {signed} to {signed}")
    yield (
        rf"VCSD is {N} points over the base, and the interval exc",
        adds,
        found(rf"- Sizes: VCSD minus base {signed} "),
    )
    yield rf"lead over OPSD \({N}\) no longer", adds, found(rf"- \*\*Sizes\*\*: VCSD minus OPSD {signed} ")
    yield rf"anchor of 3 \(p = {N}\)", adds, found(r"`sharpened 3` \(p = [\d.]+, now ([\d.]+)\)")
    yield rf"would show it within {N} points\)", adds, found(r"would show alike within ([\d.]+) points")
    yield rf"But one of them has {N} before training", doses, found(r"\(([\d.]+) before training\) cannot gain")
    guard = rf"none of the {N} VCSD runs on the five new bases .*?, and of all {N} training runs it stops {N}:"
    yield guard, adds, found(r"five bases: of (\d+), it stops none\. Of all (\d+) runs it stops (\d+)")
    yield rf"no warning in {N} of the {N} runs", adds, lambda text: found(r"the (\d+) bad .*? about (\d+);")(text)[::-1]
    yield rf"where {N}% of the lead is a loss", adds, found(r"That is (\d+)% of VCSD's lead")
    yield rf"on `arithmetic` \(p = {N}\)", adds, found(r"on `arithmetic` \(p = [\d.]+, now ([\d.]+)\)")
    yield rf"the worst {N} points below", adds, found(r"dose-0, ([\d.]+) points below")
    sharpened = rf"VCSD is {N} points over sharpening \(95% {N} to {N}, p = {N} after doubling\)"
    yield sharpened, adds, found(rf"`sharpened 2`: {signed} \(95% {signed} to {signed}, unread [-+\d.]+, p = ([\d.]+)")
    yield rf"closest final entropy, VCSD is {N} points", adds, found(rf"minus the matched run: {signed}")
    yield rf"reaches {N}% of the gain, from {N}% to {N}%", adds, share_of_sharpening
    yield rf"All {N} planned runs at \[other doses", doses, found(r"(\d+) of \1 planned runs")
    strongest = rf"At a dose of 0\.8, VCSD gains {N} and contrast decoding {N} points"
    yield strongest, doses, found(rf"(?m)^\| 0\.8 \| [\d.]+ \| {signed} .*?\| [^|]* \| {signed} \(")


def by_dose(adds, doses, signed):
    """What VCSD gains in the default world, with true captions, and at the weakest and strongest dose."""
    weak = {r"0": rf"larger the gain: {N} points at a dose of 0,", r"0\.2": rf"points at a dose of 0, {N} at 0\.2"}
    for dose, words in weak.items():
        yield words, doses, found(rf"(?m)^\| {dose} \| [\d.]+ \| {signed} ")
    yield rf"at 0\.4, {N} in the default world at 0\.6", adds, found(rf"- Sizes: VCSD minus base {signed} ")
    yield rf"world at 0\.6, and {N} at 0\.8", doses, found(rf"(?m)^\| 0\.8 \| [\d.]+ \| {signed} ")


def on_newer_bases():
    """What OPSD leaves unread on newer bases, and the base that follows hints least."""
    unread = found(r"(?m)^\| OPSD \|.* to ([\d.]+)\) \|$")
    yield rf"and up to {N}% at \[the paper's dose", WORLD + "paper_dose.md", unread
    yield rf"up to {N}% on \[more bases", WORLD + "more_bases.md", most_unread_by_base
    card = WORLD + "cards/qwen3_5-small-21.json"
    yield rf"except one at {N}%", card, lambda card: [card["measured"]["sway"]["hint"]]


def most_unread(text):
    """The largest share of OPSD's answers that went unread at a dose other than 0.6."""
    shares = re.findall(r"(?m)^\| (0|0\.[248]) \|.* to ([\d.]+)\) \|$", text)
    return [max((share for _, share in shares), key=float)]


def most_unread_by_base(text):
    """The largest share of OPSD's answers that went unread on a base."""
    return [max(re.findall(r"(?m)^\| qwen3\S+ \|(?: [-+\d.]+ \|){4} ([\d.]+) \|", text), key=float)]


def share_of_sharpening(text):
    mean, each = re.search(r"reaches (\d+)% of VCSD's gain \(.*?bases: (.*?)\)", text).groups()
    shares = [int(share) for share in re.findall(r"-?\d+", each)]
    return [mean, str(min(shares)), str(max(shares))]


def on_all_bases(pattern):
    """The numbers of the first table of statistics; those after it are on fewer bases."""
    return lambda text: found(pattern)(text.partition("## Every statistic, on the same bases")[0])


def calibration():
    page = WORLD + "precheck.md"
    signed = r"([-+][\d.]+)"
    yield rf"Over {N} bases, from", page, found(r"The calibration has (\d+) tiny bases")
    row = rf"\| gain of contrast decoding \| yes \| \d+ \| {signed} \| {signed} to {signed} "
    yield rf"training with {N} \(95%: {N} to {N}\)", page, on_all_bases(row)
    off = rf"the typical miss is ([\d.]+) points \(root mean square\) and the worst {signed}"
    yield rf"off by {N} points typically, and by {N} at worst", page, found(off)
    middles = rf"contrast decoding has a median of {signed} points and a mean of {signed} \({signed} without dose 0\.8"
    of_the_mean = rf"With the mean, .*? for (\d+) of the (\d+) other .*? miss was ([\d.]+) points, the worst {signed}"
    yield (
        rf"in the median of the bases: {N} points\. .*?The mean is {N} points, and {N} without",
        page,
        found(middles),
    )
    yield (
        rf"and {N} of the {N} other bases were predicted too high\. Its typical miss was {N} points, the worst {N}:",
        page,
        found(of_the_mean),
    )
    kl = rf"KL\(target .*? in the first step \| no \| (\d+) \| {signed} \| {signed} to {signed} \| ([\d.]+) \| ([\d.]+)"
    yield rf"known for all {N} bases with training", page, lambda text: on_all_bases(kl)(text)[:1]
    yield (
        rf"almost nothing: correlation {N} \(95%: {N} to {N}\), off by {N} points, where the mean is off by {N}\.",
        page,
        lambda text: on_all_bases(kl)(text)[1:],
    )
    small = r"(\d+) gained between 0 and (\d+) points.*?; (\d+) was at 100% .*?; (\d+) lost"
    yield (
        rf"Of these bases, {N} gained between 0 and {N} points, {N} was at 100% and could not gain, and {N} lost",
        page,
        found(small),
    )
    constant = (
        rf"it is off by ([\d.]+) points \(correlation {signed}\); always saying {signed}, .*? is off by ([\d.]+)\."
    )
    yield (
        rf"off by {N} points \(correlation {N}\), where always saying {N}, .*? is off by {N}\.",
        WORLD + "paper_dose.md",
        found(constant),
    )
    yield rf"of that dose in the calibration are off by {N}\. ", page, found(r"([\d.]+) at 0\.4 \(3 bases\)")
    hidden = r"typical miss of ([\d.]+) points is larger than the paper's gains \(([\d.]+) to ([\d.]+)\)"
    yield rf"typical miss of {N} points is larger than the paper's gains \({N} to {N}\)", page, found(hidden)
    doses = r"typical misses are" + r".*? ([\d.]+) at [\d.]+ \(3 bases\)" * 3
    doses += r", ([\d.]+) at 0\.6 \(11 bases\), ([\d.]+) at 0\.8 \(3 bases"
    yield rf"misses are {N}, {N}, {N} and {N} points at doses .*?, but {N} at a dose of 0\.8", page, found(doses)
    changed = (
        r"changed choices in the first step \| no \| (\d+) \| ([-+][\d.]+) .*? to [-+\d.]+ \| ([\d.]+) \| ([\d.]+)"
    )
    yield (
        rf"Changed choices are known for {N} bases: correlation {N}, off by {N} points, where their mean is off by {N}",
        page,
        on_all_bases(changed),
    )
    yield from statistics_on_later_bases(page, signed)
    large = rf"among the (\d+) bases that gain more than (\d+) points it is {signed} \(95% {signed} to {signed}\)"
    yield rf"among the {N} bases that gain more than {N} points it is {N} \(95% {N} to {N}\)", page, found(large)
    decoded = rf"VCSD minus `contrast decoding`: {signed} \(95% {signed} to {signed}, unread [-+\d.]+, Holm"
    yield (
        rf": {N} points for training on five new bases \(95% {N} to {N},",
        WORLD + "what_the_contrast_adds.md",
        found(decoded),
    )
    free = r"\| contrast in the first step \| no \|.*? to [-+\d.]+ \| ([\d.]+) \| ([\d.]+) \|"
    yield (
        rf"is off by {N} points typically, where the mean gain of the other bases is off by {N}",
        page,
        on_all_bases(free),
    )


def statistics_on_later_bases(page, signed):
    """Changed choices on bases that were read later, within a dose, and beside contrast decoding on the same bases."""
    cell = rf"{signed} \((\d+); {signed} to {signed}\)"
    row = rf"(?m)^\| changed choices in the first step \| {cell} \| {cell} \| {cell} \|.*\| {cell} \|$"

    def later(text):
        _, paper_dose, power, within = (found(row)(text)[place : place + 4] for place in (0, 4, 8, 12))
        return [*paper_dose[:2], *power[:2], within[1], within[0], *within[2:]]

    yield (
        rf"showed the weakness: {N} over {N} bases at dose 0\.4 and {N} over {N} at dose 0\.6, .*?"
        rf"over all {N} bases, it is {N} \(95%: {N} to {N}\)",
        page,
        later,
    )
    same = rf"The (\d+) bases with every statistic .*?decoding \| yes \| \d+ \| {signed} .*?choices .*? \| {signed} "
    yield (
        rf"On \[the same {N} bases\].*?contrast decoding is at {N} and changed choices at {N}",
        page,
        found(f"(?s){same}"),
    )


def precheck_in_the_faq():
    """The pre-check's misses, over its calibration and on bases that it has not seen, and settings that matter less."""

    def largest_change(text):
        names = ("alpha 0.5", "alpha 1.25", "alpha 1.5", "noise", "blur")
        changes = [re.search(rf"- {name} minus \S.*?: ([-+][\d.]+)", text)[1] for name in names]
        return [max(abs(float(change)) for change in changes)]

    yield rf"changed Acc by at most {N} points", WORLD + "claims.md", largest_change
    off = r"the (\d+) bases of the calibration, .*? miss is ([\d.]+) points .*? and the worst ([-+][\d.]+)"
    yield rf"Over {N} bases it is off by {N} points typically, and by {N} at worst", WORLD + "precheck.md", found(off)
    unseen = (
        r"It was tested on \[(\d+) bases .*?off by ([\d.]+) points \(correlation .*?; always saying ([-+][\d.]+), "
        r".*? is off by ([\d.]+)\."
    )
    yield (
        rf"On {N} bases that it had not seen, .*? off by {N} points, where always saying {N} is off by {N}\.",
        WORLD + "precheck.md",
        found(unseen),
    )


FIELDS = ("step", "repeated", "ratio", "formula", "rate")
SHORT = ("step", "ratio", "rate")
CASE_FILES = {"": CASES, "_1000": LONG_CASES}


def vllm_contrast():
    """Contrast decoding by vLLM and by transformers."""

    def read(result):
        shaped, plain = result["contrast"], result["plain"]
        answers = [result["prompts"], shaped["equal_answers"], plain["equal_answers"], result["changed_by_contrast"]]
        return [*answers, *(way["cpu_seconds"][name] for name in ("vllm", "transformers") for way in (shaped, plain))]

    text = (
        rf"on {N} prompts of the world, all {N} greedy answers .* so have all {N} plain ones; the contrast changes {N} "
        rf"of them\. It took {N} s of processor time, plain answers {N} s; transformers took {N} and {N} s"
    )
    return [(text, f"{MEASURED}vllm_contrast.json", read)]


def vllm_statistics():
    """Rollouts of both engines: means, their difference, its error, and what chance does."""

    def row(name, scale):
        def read(result):
            found = result["vllm"][name]
            means = [found["first"], found["second"], found["difference"], found["standard_error"]]
            return [scale * value for value in (*means, result["chance"][name]["difference"])]

        return read

    names = [("tokens of a response", "length", 1), ("entropy of a response, nats", "entropy", 1)]
    names += [("correct answers, %", "right", 100)]
    file = f"{MEASURED}vllm_statistics.json"
    rows = [
        (rf"^\| {label} \| {N} \| {N} \| {N} \| {N} \| {N} \|", file, row(name, scale)) for label, name, scale in names
    ]
    return [*rows, (rf"prompts of the world, {N} in all", file, lambda result: [result["answers"]])]


def delta_sync():
    """The table of weight syncs, and what the last one of the first run took."""
    file = f"{MEASURED}delta_sync_world.json"

    def row(place):
        def read(result):
            steps = result["runs"][place]["steps"]
            shares = [100 * steps[step]["changed_share"] for step in (1, -1)]
            return [*shares, *(steps[step]["fewer_bytes"] for step in (1, -1))]

        return read

    rates = [("2e-6", "noise"), ("2e-6", "same"), ("1e-4", "noise"), ("1e-4", "same")]
    rows = [
        (rf"^\| {rate} \| {kind} \| {N}% \| {N}% \| {N} \| {N} \|", file, row(place))
        for place, (rate, kind) in enumerate(rates)
    ]
    last = [
        (
            rf"the last sync took {N} s instead of {N} s",
            file,
            lambda result: seconds_of(result["runs"][0]["steps"][-1]),
        ),
        (rf"the world model \({N} words\)", file, lambda result: [result["runs"][0]["num_words"]]),
    ]
    large = f"{MEASURED}delta_sync.json"

    def of_large(result):
        step = result["runs"][0]["steps"][-1]
        return [100 * step["changed_share"], step["step"], step["fewer_bytes"], step["whole_bytes"] / 1e9]

    on_gpu = [
        (
            rf"{N}% of the words had changed after step {N}, and {N} times fewer bytes were sent than all {N} GB",
            of_large,
        ),
        (
            rf"changes took {N} s; casting, hashing and copying everything took {N} s",
            lambda result: seconds_of(result["runs"][0]["steps"][-1]),
        ),
    ]
    return [*rows, *last, *((pattern, large, read) for pattern, read in on_gpu)]


def seconds_of(step):
    return [step["delta_seconds"], step["whole_seconds"]]


PAGES = {
    "README.md": readme(),
    "CHANGELOG.md": changelog(),
    "docs/training.md": training(),
    "docs/training.md#What bfloat16 hides at small learning rates": hidden_by_bfloat16(),
    "docs/training.md#Dither with VCSD": dithered_vcsd(),
    f"{LOSS}#The loss head": [(rf"take {N} to {N} times as", LOSS_FILE, loss_range("triton", "forward_kl"))],
    f"{LOSS}#Measured on the GPU": loss_on_gpu(),
    f"{LOSS}#Measured on the CPU": loss_on_cpu(),
    f"{SHARING}#Shared prefixes": [
        (rf"{N} times faster", sharing("qwen3_vl"), scoring("qwen3_vl autocast 1024 300", "ratio"))
    ],
    f"{SHARING}#Qwen3-VL": [
        *sharing_table("qwen3_vl", 7, ("groups", *FIELDS, "gib", "gib repeated"), CASE_FILES),
        *printed_bfloat16(),
        (rf"Every case reaches {N}% of the formula", sharing("qwen3_vl"), least_share),
    ],
    f"{SHARING}#Qwen3.5": sharing_table("qwen3_5", 5, FIELDS, {**CASE_FILES, "_bf16": CASES}),
    f"{SHARING}#Qwen3.5 against flash-linear-attention": against_fla(),
    f"{SHARING}#Exactness on a GPU": exact_on_gpu(),
    f"{SHARING}#What limits it": limits(),
    f"{SHARING}#Rollouts": rollouts(),
    SCORING: [(rf"Gold answers in words score {N},", REAL, found(r"gold words as predictions, exact: ([\d.]+)"))],
    READER_PAGE: reader(),
    "docs/which_mode.md": [
        (
            rf"version 7 in {N}% \({N} to {N}\) of {N} answers .*? They leave {N}% and",
            MEASURED + "labelled_answers_reader_7.json",
            unseen_share("version 7"),
        ),
        (
            rf"version 8 in {N}% \({N} to {N}\) of {N} more\. They leave [\d.]+% and {N}% undecided",
            MEASURED + "labelled_answers_reader_8.json",
            unseen_share("version 8"),
        ),
        (
            rf"version 9 in {N}% \({N} to {N}\) of {N} answers .*?, with {N}% undecided",
            MEASURED + "labelled_answers_reader_9.json",
            unseen_share("version 9"),
        ),
        (
            rf"Version 10, in use, is right in {N}% \({N} to {N}\) of {N} more .*?, with {N}% undecided",
            MEASURED + "labelled_answers.json",
            unseen_share("version 10"),
        ),
        (
            rf"and in {N}% \({N} to {N}\) of {N} answers to five other .*?, with {N}% undecided; of the numbers",
            MEASURED + "labelled_answers.json",
            unseen_share("fresh"),
        ),
        (
            rf"of the numbers among them {N}% are right, and {N}% undecided",
            MEASURED + "labelled_answers.json",
            lambda data: [
                data["parts"]["fresh"]["by benchmark"]["AECV-Bench"][key] for key in ("precision", "undecided")
            ],
        ),
        (
            rf"read worse \(version 6: {N}%\)",
            MEASURED + "labelled_answers_reader_6.json",
            pick("parts", "version 6", "by kind", "all", "precision"),
        ),
        (rf"rank correlation {N}\),", REAL, found(r"answer in words: ([\d.]+)")),
        (rf"marks {N} of {N} answers", REAL, found(r"script: (\d+) of (\d+) extr")),
    ],
    "docs/lora.md": [
        (rf"whole weights, 1e-4 \| {N} ± {N}", LORA, found(r"whole weights: Acc ([\d.]+) ± ([\d.]+)")),
        (rf"B, 3e-3 \| {N} ± {N}", LORA, found(r": Acc ([\d.]+) ± ([\d.]+), minus")),
        (LORA_GAP, LORA, found(r"minus whole weights ([\d.]+) ± ([\d.]+), 95% interval \+([\d.]+) to \+([\d.]+)")),
        (LORA_GAP, LORA, lora_gap),
    ],
    "docs/lora.md#What bfloat16 hides of an adapter": hidden_of_adapters(),
    "docs/inspect.md": calibration(),
    "docs/faq.md": precheck_in_the_faq(),
    "docs/monitoring.md": monitoring(),
    "docs/vllm.md#Evaluation": vllm_contrast(),
    "docs/vllm.md#The same distribution": vllm_statistics(),
    "docs/vllm.md#What changes between two syncs": delta_sync(),
    "docs/world.md": bases(),
    REPRODUCE: experiments(),
}
CLAIMS = [(page, pattern, file, read) for page, rows in PAGES.items() for pattern, file, read in rows]


@pytest.mark.parametrize(("page", "pattern", "file", "read"), CLAIMS)
def test_a_number_on_a_page_is_the_one_in_its_file(page, pattern, file, read):
    match = re.search(pattern, prose_of(page), flags=re.MULTILINE)
    assert match, f"{page} has no text like {pattern}; if you reworded it, change the pattern"
    printed = numbers(" ".join(match.groups()))
    expected = read(json_of(file) if file.endswith(".json") else text_of(file))
    assert len(printed) == len(expected), (printed, expected)
    wrong = [(one, other) for one, other in zip(printed, expected, strict=True) if not is_rounding_of(one, other)]
    assert wrong == [], f"{page} and {file} differ: {wrong}"


def test_files_that_pages_link_as_results_are_compared():
    compared = {file.removeprefix(MEASURED) for _, _, file, _ in CLAIMS if file.startswith(MEASURED)}
    compared |= {"cards.json", "rank_drift.json", "time_model.json"}  # by tests/unit/projection/test_scaling_page.py
    compared |= {"interval_coverage.json"}  # by tests/unit/evaluation/test_scoring_docs.py
    tables_of_json = {
        "prefix_sharing_qwen3_vl.md",
        "prefix_sharing_qwen3_5.md",
        "full_step.md",
        "loss_head.md",
        "loss_head.png",
    }
    assert {path.name for path in (ROOT / MEASURED).iterdir()} - compared == tables_of_json
