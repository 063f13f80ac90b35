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
LOST, AGAIN = "docs/results/lost/cells", "docs/results/again/cells"
"""Results that do not count: of bases whose weights were lost, and of bases that were made a second time by mistake."""
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


def ever(root, what, *paths):
    """The paths that commits have added or modified."""
    names = git(root, "log", "--no-renames", f"--diff-filter={what}", "--format=", "--name-only", "--", *paths)
    return set(names or [])


def gone_results(root):
    """The results that were committed once, and neither count nor are set aside any more."""
    here = {path.name for folder in (CELLS, LOST, AGAIN) for path in (root / folder).glob("*.json")}
    return sorted(name for name in ever(root, "A", CELLS) if Path(name).name not in here)


def changed_results(root):
    """The planned results that were changed after they were committed."""
    return sorted(ever(root, "M", CELLS) & {name for name, *_ in planned_results(root)})


def later_bases(root):
    """The bases made twice of which the results that were committed later count."""
    order = {commit: place for place, commit in enumerate(git(root, "rev-list", "--reverse", "HEAD") or [])}
    twice = {base_of(path) for path in (root / AGAIN).glob("*.json")}
    first = {}
    for folder in (CELLS, AGAIN):
        for path in (path for path in (root / folder).glob("*.json") if base_of(path) in twice):
            names = (f"{each}/{path.name}" for each in {CELLS, folder})
            added = ("log", "--no-renames", "--diff-filter=A", "--format=%H", "--", *names)
            place = min((order[commit] for commit in git(root, *added)), default=len(order))
            first[folder, base_of(path)] = min(place, first.get((folder, base_of(path)), place))
    return sorted(base for base in twice if first[AGAIN, base] < first.get((CELLS, base), len(order)))


def base_of(path):
    return json.loads(path.read_bytes())["base"]


def unplanned_results(root):
    """The results on a base of a list that do not say that they were made from a list with that base."""
    bases = {listed: set(json.loads((root / listed).read_bytes())["bases"]) for listed in LISTS}
    named = {name: bases[listed] for name, listed, _ in planned_results(root)}
    found = {path.relative_to(root).as_posix(): base_of(path) for path in sorted((root / CELLS).glob("*.json"))}
    return [name for name, base in found.items() if base in set().union(*bases.values()) - named.get(name, set())]


def test_the_rules_were_committed_before_the_results_and_nothing_was_added_or_replaced_after_the_end_of_a_list():
    shallow = git(ROOT, "rev-parse", "--is-shallow-repository")
    if shallow != ["false"] or not git(ROOT, "log", "-1", "--format=%H", "--", *LISTS):
        pytest.skip("the history is not here")
    assert early_results(ROOT) == []
    assert late_results(ROOT) == []
    assert gone_results(ROOT) == []
    assert changed_results(ROOT) == []
    assert later_bases(ROOT) == []


def test_every_result_on_a_base_of_a_list_was_planned_there():
    assert unplanned_results(ROOT) == []


def test_every_planned_result_names_the_list_it_was_planned_in():
    digests = {listed: f"({read_run_list(ROOT / listed).digest})" for listed in LISTS}
    assert [name for name, listed, digest in planned_results(ROOT) if digests[listed] != digest] == []


@pytest.fixture
def repository(tmp_path):
    def commit(*names, listed=LIST, **more):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            before = path.read_text() if path.exists() else ""
            result = {"command": f"{COMMAND} {listed} (0)", "base": "b", **more}
            path.write_text(json.dumps(result) if "/cells/" in name else before + "x\n")
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


def test_results_that_are_replaced_after_they_were_committed_do_not_pass(repository):
    root, commit = repository
    commit(*RULES)
    commit(f"{CELLS}/a.json", f"{CELLS}/b.json", acc=50)
    assert gone_results(root) == changed_results(root) == []
    commit(f"{CELLS}/a.json", acc=60)
    assert changed_results(root) == [f"{CELLS}/a.json"]
    (root / CELLS / "b.json").unlink()
    commit(f"{CELLS}/c.json")
    assert gone_results(root) == [f"{CELLS}/b.json"]
    commit(f"{LOST}/b.json")
    assert gone_results(root) == [], "set aside"


def test_of_a_base_made_twice_the_results_count_that_were_committed_first(repository):
    root, commit = repository
    commit(*RULES)
    commit(f"{CELLS}/a.json")
    commit(f"{AGAIN}/b.json")
    commit(f"{CELLS}/c.json", f"{AGAIN}/d.json")
    assert later_bases(root) == []
    for name in ("a", "c"):
        (root / CELLS / f"{name}.json").rename(root / AGAIN / f"{name}.json")
    commit(f"{CELLS}/b.json")
    assert later_bases(root) == ["b"]


def test_a_result_on_a_planned_base_that_names_no_list_does_not_pass(repository):
    root, commit = repository
    for listed in LISTS:
        (root / listed).parent.mkdir(parents=True, exist_ok=True)
        (root / listed).write_text(json.dumps({"bases": {"b": {}} if listed == LIST else {}}))
    commit(f"{CELLS}/a.json", f"{CELLS}/other.json", base="c")
    commit(f"{CELLS}/b.json")
    assert unplanned_results(root) == []
    commit(f"{CELLS}/c.json", listed="docs/results/power_runs.json")
    (root / CELLS / "d.json").write_text(json.dumps({"command": "vcsd reproduce main", "base": "b"}))
    assert unplanned_results(root) == [f"{CELLS}/c.json", f"{CELLS}/d.json"]
