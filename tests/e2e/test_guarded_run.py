"""A run that really collapses: the guard stops it, and one flag continues from the last good step."""

import json
import sys

import pytest
from PIL import Image, ImageDraw

from vcsd.bases.shipped_bases import shipped_base
from vcsd.cli import app

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RECIPE = f"""\
model: {{path: {shipped_base("qwen3_vl")}}}
data: {{path: train.jsonl}}
method: {{name: vcsd, alpha: 4, beta: 0}}
rollout: {{num_per_prompt: 4, max_new_tokens: 8}}
trainer:
  {{output_dir: run, max_steps: 60, bf16: false, use_cpu: true, save_steps: 5, learning_rate: 0.01,
   lr_scheduler_type: constant_with_warmup, warmup_steps: 60}}
"""


def vcsd(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["vcsd", *words])
    try:
        app.main()
        code = 0
    except SystemExit as stop:
        code = stop.code
    shown = capsys.readouterr()
    return code or 0, " ".join((shown.out + shown.err).split())


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A recipe whose learning rate grows until the student speaks in tongues."""
    monkeypatch.chdir(tmp_path)
    rows = []
    for number in range(30):
        image = Image.new("RGB", (64, 64), "white")
        ImageDraw.Draw(image).ellipse((12, 12, 52, 52), fill=("red", "green", "blue")[number % 3])
        image.save(f"{number}.png")
        rows.append({"question": "What color is the circle?", "image": f"{number}.png"})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def steps(place):
    return [json.loads(line) for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]


def test_the_guard_stops_a_collapsing_run_and_it_continues_from_the_last_good_step(place, monkeypatch, capsys, caplog):
    code, shown = vcsd(monkeypatch, capsys, "train", "recipe.yaml", "prompts_per_step=16")
    assert code == 2, shown
    assert "The run is collapsing" in shown
    assert "vcsd train RECIPE --from-last-good resumes there" in shown
    last = steps(place)[-1]
    assert (last["guard"], last["step"] < 60) == ("stop", True)
    good = max(line["step"] for line in steps(place) if "guard" not in line)
    kept = good // 5 * 5
    end = kept + 2
    again = ("prompts_per_step=16", "guard=warn", f"trainer.max_steps={end}", "--from-last-good")
    code, shown = vcsd(monkeypatch, capsys, "train", "recipe.yaml", *again)
    assert code == 0, shown
    assert f"Finished {end} steps." in shown
    assert f"the run resumes from checkpoint-{kept}." in caplog.text
    assert [line["step"] for line in steps(place)] == list(range(1, end + 1))
    assert list((place / "run").glob("set-aside-checkpoint-*"))


def test_with_few_rollouts_the_guard_only_warns(place, monkeypatch, capsys, caplog):
    code, shown = vcsd(monkeypatch, capsys, "train", "recipe.yaml", "prompts_per_step=15", "trainer.max_steps=22")
    assert code == 0, shown
    assert "stop" in {line.get("guard") for line in steps(place)}
    assert "The run continues: its steps have 60 rollouts, a stop needs 64." in caplog.text
    assert len(steps(place)) == 22
