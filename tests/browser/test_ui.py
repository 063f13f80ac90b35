"""`vcsd ui` in a real browser: it answers, a slider changes the target, and no request leaves this machine."""

import pytest

from vcsd.inspect import open_model

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address():
    pytest.importorskip("gradio", reason="gradio is not installed (the extra ui has it)")
    from vcsd.inspect.ui.ui_app import Desk, build, serve

    blocks = build(Desk(open_model("world")))
    yield serve(blocks, None, is_waiting=False)
    blocks.close(verbose=False)


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
