"""The report of runs in a real browser: long runs open, phones show whole tables, and nothing that a run says runs."""

import pytest

from toy_runs import write_run
from vcsd.inspect.run_folder import read_runs
from vcsd.inspect.run_report import write_run_report

pytestmark = pytest.mark.browser

EVIL = "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'><a href='javascript:window.ran=3'>x</a>"


@pytest.fixture
def report(tmp_path):
    def written(*folders):
        return write_run_report(read_runs(folders), tmp_path / "report.html")

    return written


def test_a_run_of_ten_thousand_steps_opens_and_draws_its_curves(look, report, tmp_path):
    page = look(report(write_run(tmp_path / "a", num_steps=10_000, evaluations=[(0, 50.0), (10_000, 60.0)])))
    assert page.locator("svg .line.strong").count() == page.locator(".charts figure").count() > 3
    assert page.evaluate("performance.getEntriesByType('navigation')[0].type") == "navigate"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_whole_tables(look, report, tmp_path, scheme):
    folders = [
        write_run(tmp_path / name, evaluations=[(0, 50.0), (20, 60.0)], guard={9: "warn"})
        for name in ("first", "second")
    ]
    page = look(report(*folders), width=390, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for table in page.locator("table").all():
        box = table.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


def test_samples_unfold_by_keyboard(look, report, tmp_path):
    page = look(report(write_run(tmp_path / "a", response="It is red.")))
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("pre:visible").all_inner_texts() == ["What color is it?", "It is red."]


def test_what_a_run_says_stays_text(look, report, tmp_path):
    config = {"method": {"name": EVIL}, "model": {"path": EVIL}, "trainer": {"max_steps": 20}}
    page = look(report(write_run(tmp_path / "a", response=EVIL, config=config)))
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.scripts.length") == 0
    assert page.locator("[href]").count() == 0
    assert EVIL in page.inner_text("body")
