"""The report page: whole, alone, escaped, and true to its numbers."""

import base64
import re
from html.parser import HTMLParser
from io import BytesIO

import pytest
from PIL import Image

from tiny_examples import picture
from vcsd.report import Answer, Case, Chart, Line, Page, Score, ScoreRow, ScoreTable, write_page
from vcsd.report.chart import interval_chart, line_chart, ticks
from vcsd.report.page import page_html

MINUS = "\u2212"
VOID = {"meta", "img", "br", "line", "circle", "path"}


class Nesting(HTMLParser):
    """Open tags must be closed in order; the text is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID or (tag == "circle" and self.get_starttag_text()[-2] != "/"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(html: str) -> Nesting:
    parser = Nesting()
    parser.feed(html)
    assert parser.open == []
    return parser


def table() -> ScoreTable:
    base = ScoreRow("base", "base", {"Colours": Score(50.0, 47.0, 53.0), "All": Score(48.25, 46.0, 50.5)})
    vcsd = ScoreRow("VCSD", "vcsd", {"Colours": Score(61.04, 58.0, 64.0), "All": Score(55.0, 53.0, 57.0)})
    change = ScoreRow("VCSD - base", "vcsd", {"Colours": Score(11.04, 8.0, 14.0), "All": Score(6.75, -0.4, 13.9)})
    return ScoreTable(["Colours"], [base, vcsd], [change], aggregate="All", note="500 questions each.")


def page(**changes) -> Page:
    chart = Chart("Loss", [Line("VCSD", "vcsd", [(1, 0.7), (2, 0.5), (3, float("nan"))])], "It falls.")
    answers = [Answer("base", "base", "<b>red</b>", False), Answer("VCSD", "vcsd", "blue & round", True)]
    case = Case("Colours", "What colour < 3?", "blue", [picture(640, 320)], answers)
    given = {"title": "A & B", "lead": "It ran.", "table": table(), "charts": [chart], "cases": [case]}
    return Page(**{**given, "facts": (("seed", "7"), ("command", "vcsd demo --seed 7")), **changes})


def test_the_file_is_whole_and_needs_nothing_else(tmp_path):
    path = write_page(page(), tmp_path / "new" / "report.html")
    html = path.read_text(encoding="utf-8")
    tags = set(read(html).tags)
    assert {"table", "svg", "img", "style"} <= tags
    assert not tags & {"script", "link", "iframe"}
    assert not re.search(r"https?:|url\(|@import", html)
    assert "prefers-color-scheme:dark" in html
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]
    assert html == page_html(page()), "the same page twice is the same file"


def test_what_a_model_said_is_text_and_not_html():
    html = page_html(page())
    assert "&lt;b&gt;red&lt;/b&gt;" in html
    assert "<b>red</b>" not in html
    assert "What colour &lt; 3?" in html
    assert "<title>A &amp; B</title>" in html


def test_numbers_stand_in_the_row_and_column_where_they_belong():
    html = page_html(page())
    rows = {cells[0]: cells[1:] for cells in (re.findall(r">([^<]+)<", row) for row in html.split("<tr>")[1:]) if cells}
    assert rows["base"][:4] == ["50.0", "47.0 to 53.0", "48.2", "46.0 to 50.5"]
    assert rows["VCSD"][:4] == ["61.0", "58.0 to 64.0", "55.0", "53.0 to 57.0"]
    assert rows["VCSD - base"][:4] == ["+11.0", "+8.0 to +14.0", "+6.8", f"{MINUS}0.4 to +13.9"]


def test_the_best_of_a_column_is_strong_and_only_a_clear_difference_is_coloured():
    html = page_html(page())
    assert "<b>61.0</b>" in html
    assert "<b>50.0</b>" not in html
    assert '<span class="up">+11.0</span>' in html
    assert '<span class="">+6.8</span>' in html, "its interval holds zero"
    worse = ScoreRow("worse", "opsd", {"Colours": Score(-3.0, -5.0, -1.0)})
    html = page_html(page(table=ScoreTable(["Colours"], [], [worse])))
    assert f'<span class="down">{MINUS}3.0</span>' in html


def test_an_image_is_in_the_file_and_reduced():
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page_html(page()))
    assert Image.open(BytesIO(base64.b64decode(data))).size == (320, 160)


def test_parts_without_content_are_left_out():
    html = page_html(page(charts=[], cases=[], facts=(), table=ScoreTable(["Colours"], table().rows)))
    assert html.count("<h2>") == 1
    read(html)
    assert "A run was stopped." in page_html(page(notes=["A run was stopped."]))


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 5), (-1e-9, 1e-9), (0.001, 12345.0), (-7.2, -7.1), (99, 100)])
def test_ticks_are_few_round_and_cover_the_range(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 8
    assert found[0] <= low
    assert found[-1] >= high
    assert found == sorted(set(found))


def test_a_line_goes_up_where_its_numbers_do():
    svg = line_chart(Chart("up", [Line("a", "vcsd", [(0, 1.0), (10, 3.0)])]))
    (first, last) = re.search(r'd="M([^"]+)"', svg).group(1).split(" L")
    assert float(first.split()[0]) < float(last.split()[0])
    assert float(first.split()[1]) > float(last.split()[1]), "up is towards smaller y"


def test_a_chart_with_one_point_or_none_is_drawn_or_left_out():
    assert "circle" in line_chart(Chart("one", [Line("a", "vcsd", [(1, 2.0)])]))
    assert line_chart(Chart("none", [Line("a", "vcsd", [(1, float("nan"))]), Line("b", "opsd", [])])) == ""
    assert interval_chart(["Colours"], []) == ""


def test_an_interval_lies_on_its_side_of_zero():
    row = ScoreRow("change", "vcsd", {"Colours": Score(4.0, 2.0, 6.0)})
    svg = interval_chart(["Colours"], [row])
    zero = float(re.search(r'class="zero" x1="([\d.]+)"', svg).group(1))
    low, high = (float(x) for x in re.search(r'class="whisker vcsd" x1="([\d.]+)" x2="([\d.]+)"', svg).groups())
    dot = float(re.search(r'cx="([\d.]+)"', svg).group(1))
    assert zero < low < dot < high
    assert dot == pytest.approx((low + high) / 2, abs=0.1)
