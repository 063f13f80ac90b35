"""Checkpoints of adapters and folders of runs, changed by a forger who also writes new hashes."""

import hashlib
import io
import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from attacker import dumped, mutated, mutated_bytes, rng_of, value
from tiny_lora import lora_trainer, write_base
from toy_runs import write_run
from vcsd.checkpoint.export import export
from vcsd.checkpoint.folder import MANIFEST
from vcsd.inspect.run_dashboard import watch_run
from vcsd.inspect.run_folder import read_run
from vcsd.inspect.run_report import write_run_report

NUM_ADAPTERS, NUM_RUNS = 400, 600
SAVES = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1, "warmup_steps": 0, "lr_scheduler_type": "constant"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    write_base(base)
    trainer = lora_trainer(tmp_path_factory.mktemp("run"), base, arguments=SAVES)
    trainer.train()
    return Path(trainer.args.output_dir) / "checkpoint-1"


def test_a_forged_adapter_is_refused_or_exported_with_finite_weights(tally, checkpoint, tmp_path):
    """An adapter that is exported holds finite pairs of factors; any other is refused, and nothing is left."""
    for number in range(NUM_ADAPTERS):
        rng = rng_of("adapters", number)
        folder = tmp_path / "checkpoint-1"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(checkpoint, folder)
        victim = folder / rng.choice(("adapter_config.json", "base.json", "student.safetensors", MANIFEST))
        if victim.suffix == ".json" and rng.random() < 0.8:
            victim.write_text(dumped(mutated(rng, json.loads(victim.read_text()), rate=rng.choice((0.01, 0.05, 0.2)))))
        else:
            victim.write_bytes(mutated_bytes(rng, victim.read_bytes()))
        if victim.name != MANIFEST:
            write_new_hash(folder, victim)
        with tally.case(victim.name), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PEFT's, about fields of other versions
            try:
                export(folder, tmp_path / "out", adapter=True)
                held = load_file(tmp_path / "out" / "adapter_model.safetensors")
                assert held
                assert all(torch.isfinite(tensor).all() for tensor in held.values())
                tally.note("exported")
            finally:
                shutil.rmtree(tmp_path / "out", ignore_errors=True)
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def write_new_hash(folder, path):
    manifest = json.loads((folder / MANIFEST).read_text())
    content = path.read_bytes()
    manifest["files"][path.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_a_report_of_a_hostile_run_has_no_scripts(tally, tmp_path):
    """A report of a run whose files were changed is a page, or a clear refusal."""
    for number in range(NUM_RUNS):
        rng = rng_of("runs", number)
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        write_run(folder, 4, evaluations=[(0, 50.0), (4, 60.0)], guard={3: "warn"})
        victim = rng.choice(sorted(folder.iterdir()))
        lines = victim.read_text().splitlines()
        trees = [mutated(rng, json.loads(line), rate=rng.choice((0.02, 0.1, 0.3))) for line in lines]
        content = "".join(dumped(tree) + "\n" for tree in trees)
        victim.write_text(content if rng.random() < 0.8 else content + dumped(value(rng)) + "\n")
        if rng.random() < 0.2:
            victim.write_bytes(mutated_bytes(rng, victim.read_bytes()))
        with tally.case((victim.name, content)):
            watch_run(folder, Console(file=io.StringIO()))
            page = write_run_report([read_run(folder)], tmp_path / "report.html").read_text()
            assert "<script" not in page
            assert "\u202e" not in page
            tally.note("a page")
