"""vLLM's own warnings are not ours to fix, so they are no errors here."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("default"))
