"""The page of a token contrast in a real browser: from disk, by keyboard, in the dark, on a phone, and unharmed."""

import pytest
from PIL import Image

from vcsd.inspect import open_model, tile_map, token_contrast, write_contrast
from vcsd.inspect.contrast_page import probability
from vcsd.inspect.opened import world_question
from vcsd.inspect.token_scores import CandidateScore, ResponseContrast, TokenScore
from vcsd.method import METHODS
from vcsd.report.parts import signed

pytestmark = pytest.mark.browser

NASTY = [
    "<script>window.ran = 1</script>",
    '"><img src=x onerror="window.ran = 2">',
    "javascript:window.ran=3",
    "' onmouseover='window.ran = 4",
    "</label></div></style><svg onload=window.ran=5>",
    "\u202eevil\x1b[31m",
]


@pytest.fixture(scope="module")
def seen():
    world = open_model("world")
    seen = token_contrast(world, *world_question())
    return seen, {"world": tile_map(world, seen, side=4)}


@pytest.fixture(scope="module")
def page_file(seen, tmp_path_factory):
    one, maps = seen
    return write_contrast([one], tmp_path_factory.mktemp("page") / "contrast.html", maps)


def toy(texts, name="toy", question="q"):
    tokens = []
    for number, text in enumerate(texts):
        said = CandidateScore(number, text, -0.5, -1.5, 1.0, -0.1, -0.5)
        tokens.append(
            TokenScore(said, 2, 0.1, 0.5, (said, CandidateScore(99, text[::-1], -2.0, -1.0, -1.0, None, -2.0)))
        )
    picture = Image.new("RGB", (8, 8))
    return ResponseContrast(name, question, (picture,), (picture,), METHODS["vcsd"], tuple(tokens))


def test_arrow_keys_move_from_token_to_token_and_the_panel_shows_its_numbers(look, page_file, seen):
    page = look(page_file)
    page.keyboard.press("Tab")  # the theme
    page.keyboard.press("Tab")  # the first token
    assert page.evaluate("document.activeElement.type") == "radio"
    for token in seen[0].tokens[1:5]:
        page.keyboard.press("ArrowRight")
        (card,) = [card for card in page.query_selector_all(".card") if card.is_visible()]
        shown = card.inner_text()
        assert f"contrast {signed(token.realised.contrast, digits=4)} nats" in shown
        assert f"{token.support_size} candidate" in shown
        rows = [row.inner_text().split("\t") for row in card.query_selector_all("tbody tr")]
        assert [row[1:4] for row in rows] == [
            [probability(one.log_p_original), probability(one.log_p_control), signed(one.contrast, digits=4)]
            for one in token.candidates
        ]
        targets = ["-" if one.log_q is None else probability(one.log_q) for one in token.candidates]
        assert [row[4] for row in rows] == targets


def test_hovering_shows_one_panel_and_a_click_keeps_it(look, page_file):
    page = look(page_file)
    page.hover(".t:nth-child(8) label")
    assert page.locator(".card:visible h4").inner_text().strip() == "triangle"
    page.mouse.move(5, 5)
    assert page.locator(".card:visible").count() == 0
    page.click(".t:nth-child(4) label")
    page.mouse.move(5, 5)
    assert page.locator(".card:visible h4").inner_text().strip() == "green"


def test_warm_and_cool_tokens_differ_and_carry_their_sign(look, page_file, seen):
    page = look(page_file)
    levels = page.eval_on_selector_all(
        ".t label",
        "labels => labels.map(e => [e.className, Number(getComputedStyle(e).getPropertyValue('--c') || 0)])",
    )
    values = [token.realised.contrast for token in seen[0].tokens]
    largest = max(map(abs, values))
    for (kind, level), value in zip(levels, values, strict=True):
        assert abs(level - 100 * abs(value) / largest) < 2.5
        assert kind == ("" if level == 0 else "warm" if value > 0 else "cool")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_reader_and_the_switch_turns_it(look, page_file, scheme):
    page = look(page_file, scheme=scheme)
    brightness = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number))"
    is_light = page.evaluate(brightness) > 128
    assert is_light == (scheme == "light")
    page.click(".theme")
    assert (page.evaluate(brightness) > 128) != is_light


def test_a_phone_shows_everything_without_scrolling_sideways(look, page_file):
    page = look(page_file, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click(".t:nth-child(4) label")
    table = page.locator(".card:visible table").bounding_box()
    assert table["x"] >= 0
    assert table["x"] + table["width"] <= 390
    for cell in page.locator(".card:visible td").all():
        assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")


def test_scripts_urls_and_handlers_stay_text(look, tmp_path):
    path = write_contrast(
        [toy(NASTY, NASTY[0], NASTY[1]), toy(NASTY, NASTY[4], NASTY[1])], tmp_path / "a.html", {NASTY[1]: []}
    )
    page = look(path)
    for token in range(1, len(NASTY) + 1):
        page.hover(f".t:nth-child({token}) label")
        page.click(f".t:nth-child({token}) label")
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.scripts.length") == 0
    attributes = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert not [name for name in page.evaluate(attributes) if name.startswith("on")]
    assert page.locator("[href]").count() == 0
    shown = page.inner_text("body")
    for text in (*NASTY[:5], "\\u202eevil\\x1b[31m"):
        assert text in shown


def test_a_policy_stops_a_script_even_if_one_got_in(look, page_file, tmp_path):
    infected = tmp_path / "infected.html"
    infected.write_text(page_file.read_text().replace("</main>", "<script>window.ran = 1</script></main>"))
    page = look(infected)
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("window.ran") is None
