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


def test_a_run_of_ten_thousand_steps_opens_within_two_seconds_of_processor_time(look, report, tmp_path):
    path = report(write_run(tmp_path / "a", num_steps=10_000, evaluations=[(0, 50.0), (10_000, 60.0)]))
    page = look(tmp_path)  # the folder's listing
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # other processes do not count
    page.goto(path.as_uri())
    assert page.locator("svg .line.strong").count() == page.locator(".charts figure").count() > 3
    seconds = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"]
    wall = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
    size = path.stat().st_size / 1e3
    print(f"{size:.0f} kB: {seconds:.3f} s of processor time, {wall:.3f} s until loaded")  # noqa: T201 - for the docs
    assert 0 < seconds < 2


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
    summary, shown = page.locator("summary").first, page.locator("details").first.locator("pre")
    assert (shown.is_visible(), shown.inner_text()) == (True, "It is red.")  # a short sample is open
    for is_visible in (False, True):
        summary.focus()
        page.keyboard.press("Enter")
        assert shown.is_visible() == is_visible


def test_samples_show_their_picture_and_the_contrast_of_the_focused_token(look, report, tmp_path):
    page = look(report(write_run(tmp_path / "a", contrast={"It": 0.5, " is": -1.0, EVIL: 2.0})), width=390)
    assert page.locator(".sample img").first.evaluate("image => image.naturalWidth") == 16
    page.locator(".sample .t input").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".card:visible p").inner_text() == "contrast \u22121.0000 nats"
    page.keyboard.press("ArrowRight")
    assert page.locator(".card:visible p").inner_text() == "contrast +2.0000 nats"
    assert page.locator(".card:visible h4").inner_text() == EVIL
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_a_run_says_stays_text(look, report, tmp_path):
    config = {"method": {"name": EVIL}, "model": {"path": EVIL}, "trainer": {"max_steps": 20}}
    page = look(report(write_run(tmp_path / "a", response=EVIL, config=config)))
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.scripts.length") == 0
    assert page.locator("[href]").count() == 0
    assert EVIL in page.inner_text("body")
