"""`vcsd ui` in a real browser: it answers, a slider changes the target, and no request leaves this machine."""

import socket

import pytest

from vcsd.inspect import open_model, token_contrast
from vcsd.inspect.contrast_page import model_row
from vcsd.inspect.opened import world_question

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def dialled():
    """The hosts to which this process, which serves the page, opens connections."""
    hosts = set()
    with pytest.MonkeyPatch.context() as patch:
        real = socket.socket.connect

        def connect(self, place):
            if self.family != socket.AF_UNIX:
                hosts.add(place[0])
            return real(self, place)

        patch.setattr(socket.socket, "connect", connect)
        yield hosts


@pytest.fixture(scope="module")
def address(dialled):
    pytest.importorskip("gradio", reason="gradio is not installed (the extra ui has it)")
    from vcsd.inspect.ui.ui_app import Desk, build, serve

    blocks = build(Desk(open_model("world")))
    assert blocks.delete_cache == (600, 3600)
    yield serve(blocks, None)
    blocks.close(verbose=False)
    assert dialled <= {"127.0.0.1", "localhost", "::1"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_page_answers_and_a_slider_changes_the_target_without_leaving_this_machine(chromium, address):
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    page, urls = context.new_page(), []
    page.set_default_timeout(120_000)
    page.on("request", lambda request: urls.append(request.url))
    assert address.startswith("http://127.0.0.1:")
    page.goto(address)
    frame = page.frame_locator("iframe[title='token contrast']")
    assert "green" in frame.locator(".tokens").first.inner_text()
    own = model_row(token_contrast(open_model("world"), *world_question()))
    assert frame.get_by_role("heading", name="mean contrast").inner_text() == f"world {own.note}"  # the same pixels
    frame.get_by_role("heading", name="The target at alpha 1 and beta 0.1").wait_for()
    before = frame.locator("section:nth-of-type(2) tbody tr").all_inner_texts()
    assert any("*" in row for row in before)
    number = page.get_by_role("spinbutton").first
    number.fill("0")
    number.press("Enter")
    frame.get_by_role("heading", name="The target at alpha 0 and beta 0.1").wait_for()
    after = frame.locator("section:nth-of-type(2) tbody tr").all_inner_texts()
    assert len(after) == len(before)
    assert not any("*" in row for row in after)
    outside = [url for url in urls if not url.startswith((address, "data:", "blob:", "about:"))]
    assert outside == []
    context.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1200, 900)])
def test_tables_are_whole_and_the_details_of_a_token_are_in_sight(chromium, address, width, height):
    context = chromium.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(address)
    frame = page.frame_locator("iframe[title='token contrast']")
    frame.locator(".tokens").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert frame.locator("html").evaluate("page => page.scrollWidth <= page.clientWidth")
    assert frame.locator(".wide").evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)")
    page.locator("iframe").evaluate("frame => frame.scrollIntoView({block: 'start'})")
    frame.locator(".t label", has_text="green").click()
    card = frame.locator(".card:visible")
    assert card.evaluate("card => card.scrollWidth <= card.clientWidth")
    assert card.locator("th").all_inner_texts()[1:6] == ["image", "control", "contrast", "target", "student"]
    box = card.bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= height
    context.close()
