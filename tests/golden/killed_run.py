"""A run that is killed with -9 again and again, in a process of its own, and goes on each time.

    python killed_run.py FOLDER NUM_STEPS NUM_KILLS NUM_INSIDE_A_SAVE SEED

Every attempt to train is a child process; this one kills it, at a random time or as soon as a save has begun, and
starts another. Prints what the killed run and an undisturbed one have come to, as JSON.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from tiny_step import losses_of, make_trainer
from vcsd.checkpoint import checkpoints_of, tensors
from vcsd.monitor.lines import read_lines
from vcsd.monitor.watch import Watch
from vcsd.teacher import fingerprint, named_tensors

SAVE_SECONDS = 0.1
leftovers: list[int] = []


def train(folder: Path, num_steps: int) -> None:
    """Train to the end from wherever the folder's checkpoints are, slowly enough to be hit anywhere."""
    torch.set_num_threads(1)
    original = tensors.sync

    def slow_sync(descriptor: int) -> None:
        time.sleep(SAVE_SECONDS / 10)
        original(descriptor)

    tensors.sync = slow_sync
    arguments = {"max_steps": num_steps, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 2}
    trainer = make_trainer(folder, arguments=arguments)
    with Watch(folder, trainer.processing_class.tokenizer, max_steps=num_steps) as watch:
        trainer.monitors = [watch]
        trainer.train("auto")
    result = {
        "losses": losses_of(trainer),
        "student": fingerprint(named_tensors(trainer.model)),
        "teacher": fingerprint(named_tensors(trainer.teacher.module)),
        "cursor": trainer.progress.cursor,
        "metrics": [[line["step"], line["loss"], line["examples"]] for line in read_lines(folder / "metrics.jsonl")],
    }
    (folder / "result.json").write_text(json.dumps(result))


def start(folder: Path, num_steps: int) -> int:
    """Begin an attempt in another process; its id. What the last one left is noted, to tell it from a new save."""
    leftovers[:] = [path.stat().st_ino for path in folder.glob(".partial-*")]
    child = os.fork()
    if child:
        return child
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    code = 1
    try:
        train(folder, num_steps)
        code = 0
    finally:
        os._exit(code)


def is_saving(folder: Path) -> bool:
    for path in folder.glob(".partial-*"):
        with contextlib.suppress(FileNotFoundError):  # renamed between two looks
            if path.stat().st_ino not in leftovers:
                return True
    return False


def kill(child: int, folder: Path, *, inside_a_save: bool, chance: random.Random) -> str:
    """Wait for the moment, then kill -9. Returns "save", "step" or "finished", by what was hit."""
    until = time.monotonic() + chance.uniform(0.2, 1.5)
    while not is_saving(folder) if inside_a_save else time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return "finished"
        time.sleep(0.001)
    if inside_a_save:
        time.sleep(chance.uniform(0, SAVE_SECONDS / 2))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "save" if is_saving(folder) else "step"


def main() -> None:
    folder, (num_steps, num_kills, num_inside, seed) = Path(sys.argv[1]), map(int, sys.argv[2:])
    chance = random.Random(seed)
    whole, parts = folder / "whole", folder / "parts"
    for each in (whole, parts):
        each.mkdir(parents=True)
    os.waitpid(start(whole, num_steps), 0)
    hits, found = [], []
    while len(hits) < num_kills or hits.count("save") < num_inside:
        inside_a_save = hits.count("save") < num_inside and len(hits) % 2 == 0
        hit = kill(start(parts, num_steps), parts, inside_a_save=inside_a_save, chance=chance)
        if hit == "finished":  # a run that is done cannot be killed
            break
        hits.append(hit)
        found.append(list(checkpoints_of(parts)))
    os.waitpid(start(parts, num_steps), 0)
    results = [json.loads((each / "result.json").read_text()) for each in (whole, parts)]
    sys.stdout.write(json.dumps({"hits": hits, "checkpoints": found, "whole": results[0], "parts": results[1]}))


if __name__ == "__main__":
    main()
