"""Folders as a run leaves them, without training anything."""

import json
from pathlib import Path

from PIL import Image

CONFIG = {
    "model": {"path": "models/small"},
    "method": {"name": "vcsd", "alpha": 1.0},
    "trainer": {"max_steps": 20, "learning_rate": 1e-6},
}


def write_run(
    folder: Path, num_steps: int = 20, *, config=None, response="It is red.", evaluations=(), guard=None, contrast=None
) -> Path:
    """A run of `num_steps` steps; `guard` maps steps to the guard's action, `contrast` the tokens of each sample."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
    (folder / "environment.json").write_text(json.dumps({"hardware": "2 cores", "vcsd": "0.1.0"}))
    steps = [step_record(step, (guard or {}).get(step)) for step in range(1, num_steps + 1)]
    write_lines(folder / "metrics.jsonl", steps)
    samples = [sample(step, response) for step in range(1, num_steps + 1, max(1, num_steps // 5))]
    if contrast is not None:
        tokens = {"tokens": list(contrast), "contrast": list(contrast.values())}
        samples = [{**record, **tokens, "thumbnails": [red_thumbnail(folder)]} for record in samples]
    write_lines(folder / "samples.jsonl", samples)
    if evaluations:
        write_lines(folder / "evaluation.jsonl", [evaluation(step, entry) for step, entry in evaluations])
    return folder


def write_fallen(folder):
    """A run whose last evaluation is clearly below its first, as earlier releases wrote it, and below its best."""
    first, best, last = evaluation(0, 70.0), evaluation(10, 80.0), evaluation(20, 50.0)
    last["fell"] = {"BLINK": {"difference": -20.0, "interval": [-24.0, -16.0]}}
    last["fell_since_best"] = {"BLINK": {"since": 10, "difference": -30.0, "interval": [-34.0, -26.0]}}
    write_run(folder)
    write_lines(folder / "evaluation.jsonl", [first, best, last])
    return folder


def step_record(step, action=None):
    alarm = {} if action is None else {"guard": action, "findings": [f"length grew at {step}"]}
    return {
        "step": step,
        "is_taken": True,
        "loss": 1.0 / step,
        "realised_contrast": 0.01 * step,
        "truncated": 0.0,
        "teacher_distance": 0.001 * step,
        "seconds/rollout": 2.0,
        "seconds/teacher": 1.0,
        "peak_bytes/rollout": 3 * 2**30,
        **alarm,
        "examples": [f"row-{step}"],
    }


def sample(step, response):
    prompt = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What color is it?"}]}]
    return {
        **{"step": step, "example_id": f"row-{step}", "index": 0, "prompt": prompt},
        "images": [{"name": "in memory", "size": [8, 8]}],
        **{"answer": "red", "response": response, "num_tokens": 5, "stop": "end"},
    }


def red_thumbnail(folder):
    (folder / "thumbnails").mkdir(exist_ok=True)
    Image.new("RGB", (16, 16), "red").save(folder / "thumbnails" / "red.jpg")
    return "thumbnails/red.jpg"


def evaluation(step, entry):
    score = {"entry": entry, "interval": [entry - 2, entry + 2]}
    return {"step": step, "acc": entry, "interval": [entry - 2, entry + 2], "benchmarks": {"BLINK": score}}


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
