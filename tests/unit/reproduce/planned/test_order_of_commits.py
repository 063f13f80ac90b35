"""Rules come before results: the planned runs were committed before the first of their results.

Skipped where the history is missing: in a shallow clone, and in a source archive.
"""

import json
import subprocess
from pathlib import Path

import pytest

from vcsd.reproduce.planned.run_list import read_run_list

ROOT = Path(__file__).parents[4]
LISTS = {
    "docs/results/planned.json": ("docs/preregistration.md", "docs/results/planned.json"),
    "docs/results/lag_runs.json": ("docs/results/lag_runs.json",),
    "docs/results/failure_runs.json": ("docs/preregistration_failures.md", "docs/results/failure_runs.json"),
    "docs/results/power_runs.json": ("docs/preregistration_failures.md", "docs/results/power_runs.json"),
    "docs/results/paper_dose_runs.json": ("docs/preregistration_paper_dose.md", "docs/results/paper_dose_runs.json"),
    "docs/results/qwen3_5_runs.json": (
        "docs/preregistration_qwen3_5.md",
        "docs/results/qwen3_5_runs.json",
        "src/vcsd/reproduce/judged/judged_claims.py",
        "tests/unit/reproduce/judged/test_rules_by_hand.py",
    ),
}
"""Each list of runs, with the files that must not change after its first result."""
LIST = "docs/results/planned.json"
RULES = LISTS[LIST]
CELLS, LOOKS = "docs/results/cells", "docs/results/looks.json"
COMMAND = "python -m vcsd.reproduce.planned.run_planned"


def git(root, *arguments):
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else None


def planned_results(root):
    """Every planned result: its file, the list it is on, and the list's digest when it ran."""
    for path in sorted((root / CELLS).glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["command"].startswith(COMMAND):
            listed, digest = result["command"].removeprefix(COMMAND).split()
            yield path.relative_to(root).as_posix(), listed, digest


def early_results(root):
    """The results that were committed before, or together with, the last change of a rule."""
    changed = {rule: git(root, "log", "-1", "--format=%H", "--", rule) for rules in LISTS.values() for rule in rules}
    early = []
    for name, listed, _ in planned_results(root):
        added = git(root, "log", "--diff-filter=A", "--format=%H", "--", name)
        if added is None or not added:
            continue  # not committed yet
        for (rule,) in (changed[rule] for rule in LISTS[listed]):
            if added[-1] == rule or git(root, "merge-base", "--is-ancestor", rule, added[-1]) is None:
                early.append(name)
    return sorted(set(early))


def late_results(root):
    """The results that were committed after the commit that closed their list."""
    closing = ("log", "--reverse", "--format=%H")
    ends = {listed: git(root, *closing, f'-S"{Path(listed).name}"', "--", LOOKS) for listed in LISTS}
    late = []
    for name, listed, _ in planned_results(root):
        if not ends[listed]:
            continue
        added = git(root, "log", "--diff-filter=A", "--format=%H", "--", name)
        if added and git(root, "merge-base", "--is-ancestor", added[-1], ends[listed][0]) is None:
            late.append(name)
    return late


def test_the_rules_were_committed_before_the_results_and_nothing_was_added_after_the_end_of_a_list():
    shallow = git(ROOT, "rev-parse", "--is-shallow-repository")
    if shallow != ["false"] or not git(ROOT, "log", "-1", "--format=%H", "--", *LISTS):
        pytest.skip("the history is not here")
    assert early_results(ROOT) == []
    assert late_results(ROOT) == []


def test_every_planned_result_names_the_list_it_was_planned_in():
    digests = {listed: f"({read_run_list(ROOT / listed).digest})" for listed in LISTS}
    assert [name for name, listed, digest in planned_results(ROOT) if digests[listed] != digest] == []


@pytest.fixture
def repository(tmp_path):
    def commit(*names, listed=LIST):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            before = path.read_text() if path.exists() else ""
            text = json.dumps({"command": f"{COMMAND} {listed} (0)"}) if name.startswith(CELLS) else before + "x\n"
            path.write_text(text)
        git(tmp_path, "add", "-A")
        assert git(tmp_path, "commit", "-qm", "more") is not None

    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.email", "nobody@example.org")
    git(tmp_path, "config", "user.name", "nobody")
    return tmp_path, commit


def test_rules_before_results_pass_and_rules_after_them_do_not(repository):
    root, commit = repository
    commit(*RULES)
    commit(f"{CELLS}/a.json")
    assert early_results(root) == []
    commit(RULES[0])
    assert early_results(root) == [f"{CELLS}/a.json"], "a rule was changed after a result"


def test_rules_and_results_in_one_commit_do_not_pass(repository):
    root, commit = repository
    commit(*RULES, f"{CELLS}/a.json")
    assert early_results(root) == [f"{CELLS}/a.json"]


def test_code_that_decides_and_changes_after_a_result_does_not_pass_either(repository):
    root, commit = repository
    listed = "docs/results/qwen3_5_runs.json"
    assert all((ROOT / path).is_file() for path in LISTS[listed])
    commit(*LISTS[listed])
    commit(f"{CELLS}/a.json", listed=listed)
    assert early_results(root) == []
    commit("src/vcsd/reproduce/failures/qwen3_5_page.py")
    assert early_results(root) == [], "what only shows may change"
    commit("src/vcsd/reproduce/judged/judged_claims.py")
    assert early_results(root) == [f"{CELLS}/a.json"]


def test_results_that_come_after_their_list_was_closed_do_not_pass(repository):
    root, commit = repository
    commit(*RULES, f"{CELLS}/a.json")
    (root / LOOKS).write_text(json.dumps({"power_runs.json": "Over."}))
    commit(f"{CELLS}/b.json")
    assert late_results(root) == []
    (root / LOOKS).write_text(json.dumps({"planned.json": "Over."}))
    commit(f"{CELLS}/c.json")
    assert late_results(root) == [], "the last results and the end of the list, in one commit"
    commit(f"{CELLS}/d.json")
    assert late_results(root) == [f"{CELLS}/d.json"]
