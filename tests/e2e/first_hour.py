"""A stranger's first hour: from a built wheel, in an empty folder, to an evaluated model. No step needs the checkout.

    python tests/e2e/first_hour.py        # or: make first-hour

Builds a wheel, installs it in a fresh environment that borrows only the dependencies of this one, and runs what a new
user would: init, dry-run, plans for other cards, training on 30 images in each accepted format, interrupt, resume,
export, loading with plain transformers, evaluating an own TSV, comparing. The model is the tiny base that ships with
the package.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
WAIT = 300
"""Seconds for one command; a busy machine is slow, a hanging one fails."""

DATA = """
import base64, csv, io, json
from pathlib import Path
import datasets
from PIL import Image, ImageDraw

colors = ("red", "green", "blue")
Path("pictures").mkdir()
rows, options = [], ["red", "green", "blue"]
for number in range(30):
    color = colors[number % 3]
    image = Image.new("RGB", (64, 64), "white")
    ImageDraw.Draw(image).ellipse((12, 12, 52, 52), fill=color)
    image.save(f"pictures/{number}.png")
    rows.append((number, f"pictures/{number}.png", "What color is the circle?", color))


def coded(path):
    return base64.b64encode(Path(path).read_bytes()).decode()


def write(name, lines):
    Path(name).write_text("\\n".join(map(json.dumps, lines)) + "\\n")


write("ours.jsonl", [{"id": n, "question": q, "image": i, "answer": a} for n, i, q, a in rows])
write("trl.jsonl", [{"messages": [
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": q}]},
    {"role": "assistant", "content": [{"type": "text", "text": a}]}], "images": [i]} for _, i, q, a in rows])
write("inside.jsonl", [{"prompt": [{"role": "user", "content": [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64," + coded(i)}},
    {"type": "text", "text": q}]}]} for _, i, q, _ in rows])
Path("sharegpt.json").write_text(json.dumps([{"image": i, "conversations": [
    {"from": "human", "value": "<image>\\n" + q}, {"from": "gpt", "value": a}]} for _, i, q, a in rows]))
with open("plain.csv", "w", newline="") as file:
    csv.writer(file).writerows([("question", "image"), *((q, i) for _, i, q, _ in rows)])
with open("mine.tsv", "w") as file:
    file.write("index\\timage\\tquestion\\tA\\tB\\tC\\tanswer\\n")
    for n, i, q, a in rows:
        file.write("\\t".join([str(n), coded(i), q, *options, "ABC"[options.index(a)]]) + "\\n")
dataset = datasets.Dataset.from_list([{"prompt": q, "image": i} for _, i, q, _ in rows])
dataset = dataset.cast_column("image", datasets.Image())
dataset.save_to_disk("saved")
dataset.to_parquet("rows.parquet")
"""

TRAIN_EACH = """
import base64, io, sys
from pathlib import Path
import datasets
from PIL import Image
from transformers import TrainingArguments
from vcsd import VCSDTrainer
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings

base, saved = sys.argv[1], datasets.load_from_disk("saved")
rows = [{"prompt": "What color is the circle?", "image": Image.open(f"pictures/{n}.png")} for n in range(30)]
given = {name: name for name in ("ours.jsonl", "trl.jsonl", "inside.jsonl", "sharegpt.json", "plain.csv", "mine.tsv",
                                 "rows.parquet", "saved")}
given |= {"list": rows, "dataset": saved, "iterable": saved.to_iterable_dataset()}
for name, data in given.items():
    arguments = TrainingArguments(f"runs/each/{name}", max_steps=1, save_strategy="no", report_to="none", use_cpu=True)
    trainer = VCSDTrainer(base, arguments, train_dataset=data, method="vcsd", prompts_per_step=4,
                          rollout=RolloutSettings(Sampling(max_new_tokens=4), 2))
    trainer.train()
    assert trainer.num_steps_taken == 1, name
    assert trainer.stream.skips.num_skipped == 0, name
    assert Path(f"runs/each/{name}/metrics.jsonl").read_text().count("\\n") == 1, name
    print("trained on", name, flush=True)
"""

PLAIN = """
import sys
import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

model = AutoModelForImageTextToText.from_pretrained("runs/first/student")
tokens = AutoTokenizer.from_pretrained("runs/first/student")("What color", return_tensors="pt")
print(model.generate(**tokens, max_new_tokens=3, do_sample=False).shape)
assert "vcsd" not in sys.modules
"""

SETTINGS = (
    *("prompts_per_step=4", "rollout.num_per_prompt=2", "rollout.max_new_tokens=4", "trainer.save_steps=2"),
    "trainer.output_dir=runs/first",
)


class Machine:
    """A fresh environment with the wheel, and an empty folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))},
            **{"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
        }
        wheels = folder / "wheels"
        _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT], folder)
        (wheel,) = wheels.glob("vcsd-*.whl")
        venv.create(folder / "venv", with_pip=False)
        self.bin = folder / "venv" / "bin"
        (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel], folder)
        # The dependencies are borrowed: a path in a .pth file is searched last, and its own .pth files are not read.
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def vcsd(self, *words: str, code: int = 0) -> str:
        """Run the command, check its exit code and return what it showed."""
        return self.python("-m", "vcsd", *words, code=code)

    def python(self, *words: str, code: int = 0) -> str:
        """Run Python in the empty folder."""
        return _run([self.bin / "python", *words], self.work, self.environment, code)

    def interrupted(self, *words: str, after: Path) -> int:
        """Start a command, interrupt it once a file has two lines, and return its exit code."""
        # A shell lets what it starts in the background ignore interrupts; with a handler here, the command does not.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            [self.bin / "python", "-m", "vcsd", *words], cwd=self.work, env=self.environment, start_new_session=True
        )
        deadline = time.monotonic() + WAIT
        while process.poll() is None and time.monotonic() < deadline:
            if after.is_file() and after.read_bytes().count(b"\n") >= 2:
                process.send_signal(signal.SIGINT)
                return process.wait(timeout=WAIT)
            time.sleep(0.05)
        process.kill()
        raise SystemExit(f"{words} ended before it was interrupted, or hung: exit code {process.poll()}")


def _run(words: list[object], folder: Path, environment: dict[str, str] | None = None, code: int = 0) -> str:
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True, timeout=WAIT, check=False
    )
    if done.returncode != code:
        raise SystemExit(f"{words}: exit code {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def first_hour(machine: Machine) -> None:
    """Take every step, and check what each leaves behind."""
    tell = _stopwatch()
    where = "import vcsd, vcsd.bases.shipped_bases as b; print(vcsd.__file__); print(b.shipped_base('qwen3_vl'))"
    package, base = machine.python("-c", where).split()
    assert str(ROOT) not in package, f"the checkout is imported: {package}"
    machine.python("-c", DATA)
    tell("installed, 30 images in eight files")
    plan(machine, base)
    tell("init, dry-run, plans for other cards")
    shown = machine.python("-c", TRAIN_EACH, base)
    assert shown.count("trained on") == 11, shown
    tell("trained on every format")
    last = train_twice(machine)
    tell(f"interrupted, resumed, finished after step {last}")
    export(machine, last)
    tell("exported, loaded with plain transformers")
    evaluate(machine, base)
    tell("evaluated an own TSV, compared, exported with the scores")


def plan(machine: Machine, base: str) -> None:
    """List the recipes, write one, and look at what it needs here and on other machines."""
    listed = machine.vcsd("recipes")
    assert "paper/qwen3_vl_2b" in listed
    assert "A100 80 GB" in listed
    assert "about 2 hours" in listed
    machine.vcsd("init", "--model", base, "--data", "trl.jsonl", "--device", "cpu", "--out", "recipe.yaml")
    assert "What color is the circle?" in " ".join(_screen(machine, "recipe.yaml", *SETTINGS).split())
    fitting = _screen(machine, "recipe.yaml", *SETTINGS, "trainer.bf16=true", "--card", "24GB")
    assert "RTX 4090: fits (projected)" in fitting
    too_large = _screen(machine, "paper/qwen3_vl_8b", "--card", "a100-80")
    assert "does not fit" in too_large
    assert "lora.rank=32 trainer.learning_rate=6e-5" in too_large


def train_twice(machine: Machine) -> int:
    """Train, interrupt, and resume; return the last step."""
    metrics = machine.work / "runs" / "first" / "metrics.jsonl"
    assert machine.interrupted("train", "recipe.yaml", *SETTINGS, "trainer.max_steps=200", after=metrics) == 130
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    last = steps[-1] + 2
    assert f"Finished {last} steps" in machine.vcsd("train", "recipe.yaml", *SETTINGS, f"trainer.max_steps={last}")
    again = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert again == list(range(1, last + 1)), again
    return last


def export(machine: Machine, last: int) -> None:
    """Export the student, read its card, and load it without vcsd."""
    machine.vcsd("export", "runs/first")
    card = (machine.work / "runs/first/student/README.md").read_text()
    assert f"the student after {last} steps" in card
    assert str(machine.work) not in card
    weights = machine.work / "runs/first/student/model.safetensors"
    assert weights.stat().st_mode & 0o044, "others cannot read the exported weights"
    assert "torch.Size" in machine.python("-c", PLAIN)


def evaluate(machine: Machine, base: str) -> None:
    """Ask base and student the questions of an own TSV, compare them, and put the scores on the student's card."""
    asked = ("--tsv", "mine.tsv", "--limit", "6", "--sampling", "greedy,max_new_tokens=4")
    assert "mine" in machine.vcsd("eval", base, *asked, "--out", "runs/eval/base")
    assert "mine" in machine.vcsd("eval", "runs/first", *asked, "--out", "runs/eval/trained")
    assert "report.html" in machine.vcsd("eval", "--compare", "runs/eval/base", "runs/eval/trained")
    assert (machine.work / "runs/eval/trained-against-base/report.html").is_file()
    machine.vcsd("export", "runs/first", "--out", "release", "--scores", "runs/eval/trained")
    assert "| mine | " in (machine.work / "release" / "README.md").read_text()
    offline = machine.vcsd("export", "runs/first", "--out", "other", "--push", "me/mine", code=2)
    assert "HF_HUB_OFFLINE is set" in offline


def _screen(machine: Machine, *words: str) -> str:
    """Return what a dry run shows, which fits a terminal of 80 x 24."""
    shown = machine.vcsd("train", *words, "--dry-run")
    assert len(shown.splitlines()) <= 24, shown
    assert max(map(len, shown.splitlines())) <= 80, shown
    return shown


def _stopwatch():
    start = time.monotonic()

    def tell(what: str) -> None:
        sys.stdout.write(f"{time.monotonic() - start:6.0f} s  {what}\n")
        sys.stdout.flush()

    return tell


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        first_hour(Machine(Path(folder)))
