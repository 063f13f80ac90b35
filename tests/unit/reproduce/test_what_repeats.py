"""What docs/reproduce.md says about repeating is so: which results start from shipped weights, and which are gone."""

import json
import re
from pathlib import Path

from vcsd.bases.shipped_bases import SHIPPED, shipped_base
from vcsd.reproduce.base_folders import Base

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"
SECTION = (ROOT / "docs" / "reproduce.md").read_text().partition("## What can be repeated")[2].partition("\n## ")[0]

BASES = tuple(json.loads((RESULTS / "power_runs.json").read_bytes())["bases"])
"""Those that the section is about."""


def cells(folder):
    return [json.loads(path.read_bytes()) for path in sorted((RESULTS / folder / "cells").glob("*.json"))]


def test_the_results_that_anyone_can_repeat_start_from_the_weights_in_the_repository():
    shipped = {Base(shipped_base(family)).digest: name for family, name in SHIPPED.items()}
    starts = [(result["identity"]["base"], result["base"]) for result in cells("")]
    ours = [base for digest, base in starts if digest in shipped]
    assert [base for _, base in starts if base in shipped.values()] == ours
    (counts,) = re.findall(r"(\d+) of the (\d+) results in `results/cells`", SECTION)
    assert [int(count) for count in counts] == [len(ours), len(starts)]


def test_bases_that_were_made_again_by_the_same_command_are_other_models():
    same = ("family", "size", "seed", "parameters", "command", "device", "versions", "world")
    for path in (RESULTS / "lost" / "cards").glob("*.json"):
        if not (RESULTS / "cards" / path.name).is_file():
            continue  # not made again yet
        lost, again = json.loads(path.read_bytes()), json.loads((RESULTS / "cards" / path.name).read_bytes())
        assert [lost[key] for key in same] == [again[key] for key in same], path.name
    was = {result["base"]: result for result in cells("lost") if result["base"] in BASES}
    now = {result["base"]: result for result in cells("") if result["base"] in was and result["variant"] == "base"}
    assert [name for name in now if now[name]["identity"]["base"] == was[name]["identity"]["base"]] == []
    assert len(was) == 3
    printed = re.findall(r"(\d+\.\d)%", SECTION)
    assert printed == [f"{made[name]['acc']:.1f}" for made in (now, was) for name in sorted(was)]
