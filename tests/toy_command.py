"""The vcsd command in this process, and a folder with a tiny model, data and a recipe for it."""

import json
import sys

import pytest

from tiny_examples import picture
from tiny_models import build_model
from tiny_processor import write_processor_files
from vcsd.cli import app


def vcsd(*arguments):
    """Run the command, and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["vcsd", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            app.main()
    return stop.value.code


def write_run_files(folder, recipe, num_rows):
    """Write a tiny model, a table of questions with pictures, and a recipe that names their folder as {folder}."""
    build_model().save_pretrained(folder / "model")
    write_processor_files(folder / "model")
    rows = []
    for index in range(num_rows):
        picture(64, 64).save(folder / f"{index}.png")
        rows.append({"id": f"row-{index}", "question": f"how many, {index}?", "image": f"{index}.png"})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.yaml").write_text(recipe.format(folder=folder))
