"""README, docs and changelog: links work, the names they use exist, and lines are at most 120 columns wide."""

import importlib
import os
import pkgutil
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("[ap]*/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_at_most_120_columns_wide(page):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith("|") and " " in line.strip()]
    assert [line for line in lines if len(line) > 120] == []


def test_links_point_to_files():
    for page in PAGES:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#:]+)\)", prose):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_files_that_a_page_names_exist():
    for page in PAGES:
        for name in re.findall(r"`((?:src|tests|benchmarks|examples|recipes|docs)/[\w/.]+\.\w+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_package_that_a_page_uses_exist(page):
    text = page.read_text().partition("## What moved")[0]
    for statement in re.findall(r"^from (vcsd[\w.]*) import (.+)$", text, flags=re.MULTILINE):
        module, names = statement
        assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == []
    for name in re.findall(r"`(vcsd(?:\.\w+)+)", text):
        assert resolves(name), f"{page.name} names {name}"


def resolves(name):
    """Whether a dotted name is a module of the package, or an attribute of something that is."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        parent, _, attribute = name.rpartition(".")
        return resolves(parent) and hasattr(pkgutil.resolve_name(parent), attribute)
    return True


def test_the_new_names_of_what_moved_exist():
    moved = (ROOT / "CHANGELOG.md").read_text().partition("### What moved")[2]
    rows = [line.strip("| ").split(" | ") for line in moved.splitlines() if line.startswith("| `vcsd.")]
    new = [name for cells in rows for name in re.findall(r"`(vcsd(?:\.\w+)+)", cells[1])]
    assert len(new) > 100
    assert [name for name in new if not resolves(name)] == []


SLURM_SCRIPTS = {
    page.name: script
    for page in PAGES
    for script in re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", page.read_text(), flags=re.DOTALL)
}
LAUNCHER = """#!/bin/bash
trap 'touch saved; exit {code}' TERM
touch started
while [ ! -e end ]; do sleep 0.05; done
exit {code}
"""
"""Stands for `vcsd` or a launcher: saves at a signal and exits with a code, or exits with it when told to."""


def test_both_pages_that_explain_slurm_have_a_script():
    assert set(SLURM_SCRIPTS) == {"scaling.md", "training.md"}


@pytest.mark.parametrize("page", SLURM_SCRIPTS)
@pytest.mark.parametrize(
    ("code", "is_signalled", "is_requeued"),
    [(143, True, True), (1, True, True), (0, True, False), (1, False, False), (0, False, False)],
    ids=["vcsd is stopped", "a launcher is stopped", "the run had ended", "the run fails", "the run ends"],
)
def test_a_job_of_slurm_is_requeued_after_its_signal_whatever_the_launcher_exits_with(
    page, code, is_signalled, is_requeued, tmp_path
):
    (tmp_path / "bin").mkdir()
    commands = {"vcsd": LAUNCHER.format(code=code), "scontrol": '#!/bin/bash\necho "$@" >> requeued\n'}
    for name, content in commands.items():
        (tmp_path / "bin" / name).write_text(content)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "job.sh").write_text(SLURM_SCRIPTS[page])
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SCRATCH": str(tmp_path)}
    with subprocess.Popen(["bash", "job.sh"], cwd=tmp_path, env=environment) as job:
        wait_until(lambda: (tmp_path / "started").exists() and handles_sigterm(job.pid))
        if is_signalled:
            job.send_signal(signal.SIGTERM)
        else:
            (tmp_path / "end").touch()
    assert job.returncode == code
    assert (tmp_path / "saved").exists() == is_signalled
    requeued = tmp_path / "requeued"
    assert (requeued.read_text() if requeued.exists() else None) == ("requeue 7\n" if is_requeued else None)


def handles_sigterm(pid):
    """Whether a process has installed a handler of its own."""
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), flags=re.MULTILINE)[1]
    return int(caught, 16) >> (signal.SIGTERM - 1) & 1


def wait_until(holds):
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)
