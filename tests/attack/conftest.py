"""Prints how many cases of each kind ran, and what came of them."""

import json
from collections import Counter

import pytest

from attacker import SEED, Tally


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/attack/" in str(item.path):
            item.add_marker(pytest.mark.attack)


@pytest.fixture
def tally(request, record_property):
    """Counts the cases of a test. Its kind is the test's name."""
    counted = Tally(request.node.name.removeprefix("test_").replace("_", " "))
    yield counted
    record_property("attack", json.dumps([counted.kind, counted.counts]))


def pytest_terminal_summary(terminalreporter):
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    found = [
        json.loads(text)
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == "attack"
    ]
    tallies = {kind: Counter(counts) for kind, counts in found}
    if not tallies:
        return
    terminalreporter.section("attack")
    for kind, counts in sorted(tallies.items()):
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
        terminalreporter.write_line(f"{counts.total():>7,}  {kind}: {outcomes}")
    total = sum(counts.total() for counts in tallies.values())
    terminalreporter.write_line(f"{total:>7,}  cases in all, seed {SEED}")
