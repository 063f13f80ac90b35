"""Tests in a real browser: chromium, found by its path and driven by Playwright. Skipped where it is missing."""

import os
import shutil

import pytest

PATH = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the dev extra has it)")
    if PATH is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=PATH, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def look(chromium):
    """Open a file as a reader would, and refuse everything that a page must not do."""
    contexts, problems = [], []

    def opened(path, *, width=1200, height=900, scheme="light"):
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: problems.append(request.url) if not allowed(request.url) else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        return page

    def allowed(url):
        return url.startswith(("file:", "data:"))

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def pytest_terminal_summary(terminalreporter):
    kinds = ("passed", "failed", "error", "skipped")
    count = {kind: sum(map(is_here, terminalreporter.stats.get(kind, ()))) for kind in kinds}
    if any(count.values()):
        num_run = sum(count.values()) - count["skipped"]
        terminalreporter.write_line(f"browser tests: {num_run} ran, {count['skipped']} skipped")


def is_here(report):
    return report.nodeid.startswith("tests/browser/")
