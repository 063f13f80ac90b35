"""The page of a pre-check in a real browser: whole on a phone, and unharmed by what data and models say."""

import pytest
from PIL import Image

from vcsd.inspect.precheck.diagnosis import Diagnosis, ExampleStatistics
from vcsd.inspect.precheck.diagnosis_page import diagnosis_page
from vcsd.report.page import write_page
from vcsd.types import Example, user_message

pytestmark = pytest.mark.browser

EVIL = "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'><a href='javascript:window.ran=3'>x</a>"
VIEWS = ("image", "control", "contrast")


@pytest.fixture
def page_file(tmp_path):
    names = [f"{EVIL} {place}" for place in range(9)]
    found = [
        ExampleStatistics(
            id=name,
            kind="text",
            texts=dict.fromkeys(VIEWS, EVIL),
            is_right={"image": False, "control": False, "contrast": place % 2 == 0},
            num_tokens=dict.fromkeys(VIEWS, 3),
            contrasts=[0.1 * place, -0.2],
            support_sizes=[1, 4],
            kl_target_original=0.1,
            argmax_changed=0.5,
            entropy=0.3,
            end_lift=0.0,
            end_lift_unguarded=0.2,
        )
        for place, name in enumerate(names)
    ]
    picture = Image.new("RGB", (32, 32), "red")
    examples = {name: Example(name, [picture], [user_message(EVIL, num_images=1)], EVIL) for name in names}
    return write_page(diagnosis_page(Diagnosis(found, {EVIL: EVIL}), examples, EVIL), tmp_path / "precheck.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_whole_page_with_pictures_and_nothing_runs(look, page_file, scheme):
    page = look(page_file, width=390, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for table in page.locator("table").all():
        box = table.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert page.locator("article img").count() == 8  # the four most and the four least visual questions
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.scripts.length") == 0
    assert page.locator("[href]").count() == 0
    assert EVIL in page.inner_text("body")
