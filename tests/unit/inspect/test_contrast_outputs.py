"""What is shown of a token contrast: one scale for all models, the same numbers everywhere, and nothing obeyed."""

import json
import re
from html import unescape
from io import StringIO

import pytest
from PIL import Image
from rich.console import Console

from vcsd.errors import ConfigError
from vcsd.inspect.contrast_file import contrast_json, write_contrast
from vcsd.inspect.contrast_page import colour_scale, contrast_page, difference_rows
from vcsd.inspect.contrast_terminal import contrast_lines
from vcsd.inspect.image_tiles import TileMap
from vcsd.inspect.token_scores import CandidateScore, ResponseContrast, TokenScore
from vcsd.method import METHODS
from vcsd.report.page import page_html
from vcsd.report.tokens import MOST_SCALE

PICTURE = Image.new("RGB", (8, 8), "red")


def response(name, contrasts, texts=None, is_sampled=True):
    tokens = []
    for number, value in enumerate(contrasts):
        text = texts[number] if texts else f" word{number}"
        said = CandidateScore(number, text, -1.0, -1.0 - value, value, -0.5, -1.0)
        other = CandidateScore(50 + number, " other", -3.0, -2.5, -0.5, None, -3.0)
        tokens.append(TokenScore(said, 3, 0.25, 0.5, (said, other)))
    black = Image.new("RGB", (8, 8))
    return ResponseContrast(name, "What?", (PICTURE,), (black,), METHODS["vcsd"], tuple(tokens), is_sampled=is_sampled)


def terminal(seen, **options):
    console = Console(width=100, record=True, force_terminal=True, color_system="truecolor", file=StringIO())
    console.print(contrast_lines(seen))
    return console.export_text(**options)


def test_the_scale_is_the_largest_contrast_of_any_model_or_difference():
    before, after = response("base", [0.5, -1.5]), response("trained", [2.0, 1.5])
    assert colour_scale([before]) == 1.5
    assert colour_scale([before, after]) == 3.0  # the difference of the second token
    assert colour_scale([response("odd", [1e4])]) == MOST_SCALE
    assert colour_scale([response("blind", [0.0])]) == pytest.approx(0.1)


def test_the_difference_is_the_later_model_minus_the_earlier_one():
    (row,) = difference_rows([response("base", [0.5, -1.5]), response("trained", [2.0, 1.0])])
    assert row.name == "trained - base"
    assert [token.value for token in row.tokens] == [1.5, 2.5]


def test_models_that_split_the_response_differently_have_no_difference_and_a_note():
    seen = [response("base", [0.5]), response("other", [0.5, 1.0])]
    assert difference_rows(seen) == []
    assert "other tokenizes the response differently from base" in page_html(contrast_page(seen))
    assert "other tokenizes the response" in terminal(seen)


def test_the_page_shows_both_images_the_legend_and_every_number():
    html = page_html(contrast_page([response("base", [0.5, -1.5])]))
    assert html.count("<img") == 2
    assert "\u22121.5" in html
    assert "+1.5 nats" in html
    rows = re.findall(r"<tr[^>]*><th> word1<td>(.*?)(?=<tr|</table)", html)
    assert rows == ["0.3679<td>1.6487<td>\u22121.5000<td>0.6065<td>0.3679"]
    assert "<td>-<td>" in html  # the other candidate is off the support


def test_a_given_response_is_named_as_such():
    assert "A given answer, 1 tokens" in contrast_page([response("base", [0.5], is_sampled=False)]).lead


def test_tile_maps_are_drawn_over_the_image():
    seen = response("base", [0.5])
    maps = {"base": [TileMap(0, seen.tokens[0].realised, True, ((0.5, 0.0), (-0.25, 0.001)))]}
    html = page_html(contrast_page([seen], maps))
    assert re.findall(r'<i (?:class="(\w+)" style="--c:(\d+)" )?title="(.*?)"', html) == [
        ("warm", "100", "+0.500 nats"),
        ("", "", "+0.000 nats"),
        ("cool", "50", "-0.250 nats"),
        ("", "", "+0.001 nats"),
    ]


def test_the_terminal_colours_tokens_and_prints_their_numbers():
    seen = [response("base", [0.5, -1.5])]
    plain = terminal(seen)
    assert "word0 word1" in plain
    assert re.search(r"2 +word1 +\u22121\.5000 +0\.3679 +1\.6487 +0\.6065 +3", plain)
    coloured = terminal(seen, styles=True)
    assert "48;2;" in coloured


def test_the_terminal_obeys_nothing():
    shown = terminal([response("[/]evil", [0.5, 1.0], ["[red]x[/]", "\x1b[31m"])])
    assert "[red]x[/]" in shown
    assert "\\x1b[31m" in shown
    assert "[/]evil" in shown


def test_html_in_tokens_names_and_questions_stays_text():
    evil = "</label><script>alert(1)</script>"
    html = page_html(contrast_page([response(evil, [0.5, 1.0], [evil, '"><img src=x onerror=alert(1)>'])]))
    assert "<script" not in html
    assert "onerror=alert(1)&gt;" in html
    assert evil in unescape(html)


def test_json_holds_every_number(tmp_path):
    seen = response("base", [0.5, -1.5])
    maps = {"base": [TileMap(1, seen.tokens[1].realised, True, ((0.5,),))]}
    stored = json.loads(write_contrast([seen], tmp_path / "new" / "a.json", maps).read_text())
    assert stored == json.loads(json.dumps(contrast_json([seen], maps)))
    (model,) = stored["models"]
    assert [token["realised"]["contrast"] for token in model["tokens"]] == [0.5, -1.5]
    assert model["tile_maps"][0]["support"] == [[0.5]]
    assert stored["method"]["alpha"] == 1.0


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_pictures_are_drawn_for_long_responses_in_any_script(tmp_path, ending):
    pytest.importorskip("matplotlib")
    texts = [" word", "\u65b9\u5f62", "$x^2", "\n", "<b>"] * 20
    seen = [response("base", [0.5] * 100, texts), response("after", [-0.5] * 100, texts)]
    path = write_contrast(seen, tmp_path / f"a{ending}")
    if ending == ".png":
        with Image.open(path) as drawn:
            assert drawn.height > drawn.width / 2
    else:
        assert "<svg" in path.read_text()


def test_an_unknown_ending_and_a_folder_that_cannot_be_made_are_errors(tmp_path):
    with pytest.raises(ConfigError, match=r"ends in '\.pdf'"):
        write_contrast([response("base", [1.0])], tmp_path / "a.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_contrast([response("base", [1.0])], tmp_path / "file" / "a.json")
