"""The report page: whole, alone, escaped, and true to its numbers."""

import base64
import re
from html.parser import HTMLParser
from io import BytesIO

import pytest
from PIL import Image

from tiny_examples import picture
from vcsd.report import parts
from vcsd.report.chart import Chart, Line, ShareBar, bar_chart, interval_chart, line_chart, line_charts, ticks
from vcsd.report.page import Page, PageSection, page_html, write_page
from vcsd.report.parts import Answer, Case, Sample, Score, ScoreRow, ScoreTable

MINUS = "\u2212"
VOID = {"meta", "img", "br", "input", "line", "circle", "path"}


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


def scores() -> ScoreTable:
    base = ScoreRow("base", "base", {"Colours": Score(50.0, 47.0, 53.0), "All": Score(48.25, 46.0, 50.5)})
    vcsd = ScoreRow("VCSD", "vcsd", {"Colours": Score(61.04, 58.0, 64.0), "All": Score(55.0, 53.0, 57.0)})
    change = ScoreRow("VCSD - base", "vcsd", {"Colours": Score(11.04, 8.0, 14.0), "All": Score(6.75, -0.4, 13.9)})
    return ScoreTable(["Colours"], [base, vcsd], [change], aggregate="All", note="500 questions each.")


CHART = Chart("Loss", [Line("VCSD", "vcsd", [(1, 0.7), (2, 0.5), (3, float("nan"))])], "It falls.")
ANSWERS = [Answer("base", "base", "<b>red</b>", False), Answer("VCSD", "vcsd", "blue & round", True)]
CASE = Case("Colours", "What colour < 3?", "blue", [picture(640, 320)], ANSWERS)
FACTS = (("seed", "7"), ("command", "vcsd demo --seed 7"))
SAMPLES = [
    Sample("right", "one", "gold <A>", [picture(640, 320)], ("what?", "<i>A</i>")),
    Sample("failed", "two", "gold B", ["no such <file>"], ("what?", "broken & lost")),
]


def page(table=None, charts=(CHART,), cases=(CASE,), facts=FACTS, notes=()) -> Page:
    table = table or scores()
    sections = [
        PageSection("Accuracy", parts.score_table(table), "In percent."),
        PageSection("Paired differences", parts.difference_table(table)),
        PageSection("Training", line_charts(charts)),
        PageSection("Answers", parts.cases(cases)),
        PageSection("How", parts.facts(facts)),
    ]
    return Page("A & B", sections, "It ran.", parts.headline(table), notes)


def test_a_rounding_error_below_zero_adds_no_tick():
    assert ticks(-1e-8, 0.034) == [0.0, 0.01, 0.02, 0.03, 0.04]


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


def test_answers_are_unfolded_and_filtered_without_a_script():
    body = parts.samples(SAMPLES, {"right": 19, "wrong": 0, "unread": 0, "failed": 1}, name="V*Bench")
    html = page_html(Page("t", [PageSection("Answers", body)]))
    parsed = read(html)
    assert parsed.tags.count("details") == 2
    assert "script" not in parsed.tags
    assert re.findall(r'name="filter-V\*Bench" value="(\w+)"', html) == ["all", "right", "failed"]
    assert "right (1 of 19)" in parsed.text
    style = parsed.text.partition("</style>")[0]
    assert all(f"[value={kind}]:checked" in style for kind in ("right", "wrong", "unread", "failed"))
    assert "no such &lt;file&gt;" in html
    assert "&lt;i&gt;A&lt;/i&gt;" in html
    assert html.count("data:image/jpeg;base64,") == 1


def test_a_bar_is_as_wide_as_its_share():
    html = bar_chart("by <shape>", [ShareBar("cube", 38.46, "N 13"), ShareBar("a & b", 100.0)])
    assert re.findall(r"width:([\d.]+)%", html) == ["38.5", "100.0"]
    assert "by &lt;shape&gt;" in html
    assert "a &amp; b" in html
    assert bar_chart("none", []) == ""


def test_tables_and_names_are_escaped_everywhere():
    nasty = '"><script>x</script>'
    row = ScoreRow(nasty, nasty, {nasty: Score(1.0, 0.5, 2.0)})
    table = ScoreTable([nasty], [row], [row], aggregate=nasty, note=nasty)
    chart = Chart(nasty, [Line(nasty, nasty, [(1, 1.0), (2, 2.0)])], nasty)
    case = Case(nasty, nasty, nasty, [], [Answer(nasty, nasty, nasty, True)])
    plain = PageSection(nasty, parts.plain_table([nasty], [[nasty, nasty]]), nasty)
    built = page(table, [chart], [case], ((nasty, nasty),), [nasty])
    html = page_html(Page(nasty, [*built.sections, plain], nasty, built.tiles, [nasty]))
    assert "<script" not in html
    assert '""' not in html.replace('alt=""', "").replace('class=""', "")
    read(html)


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
    noted = ScoreRow("noted", "opsd", {"Colours": Score(3.0, 1.0, 5.0, unread=-1.5)})
    html = page_html(page(table=ScoreTable(["Colours"], [], [noted])))
    assert "<small>+1.0 to +5.0</small><small>unread -1.5</small>" in html
    worse = ScoreRow("worse", "opsd", {"Colours": Score(-3.0, -5.0, -1.0)})
    html = page_html(page(table=ScoreTable(["Colours"], [], [worse])))
    assert f'<span class="down">{MINUS}3.0</span>' in html


def test_an_image_is_in_the_file_and_reduced():
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page_html(page()))
    assert Image.open(BytesIO(base64.b64decode(data))).size == (320, 160)


def test_parts_without_content_are_left_out():
    html = page_html(page(charts=[], cases=[], facts=(), table=ScoreTable(["Colours"], scores().rows)))
    assert html.count("<h2>") == 1
    read(html)
    assert "A run was stopped." in page_html(page(notes=["A run was stopped."]))


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (5, 5), (-1e-9, 1e-9), (3e-14, 3e-14), (1e-15, 4e-13), (0.001, 12345.0), (-7.2, -7.1), (99, 100)],
)
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


@pytest.mark.parametrize("level", [200 / 3, -1e9, 1e-9])
def test_a_line_that_moves_by_a_rounding_error_is_drawn_flat(level):
    svg = line_chart(Chart("Acc", [Line("a", "vcsd", [(0, level), (30, level * (1 + 2**-52))])]))
    heights = {point.split(" ")[1] for point in re.search(r' d="M([^"]*)"', svg)[1].split(" L")}
    assert len(heights) == 1


def test_an_interval_lies_on_its_side_of_zero():
    row = ScoreRow("change", "vcsd", {"Colours": Score(4.0, 2.0, 6.0)})
    svg = interval_chart(["Colours"], [row])
    zero = float(re.search(r'class="zero" x1="([\d.]+)"', svg).group(1))
    low, high = (float(x) for x in re.search(r'class="whisker vcsd" x1="([\d.]+)" x2="([\d.]+)"', svg).groups())
    dot = float(re.search(r'cx="([\d.]+)"', svg).group(1))
    assert zero < low < dot < high
    assert dot == pytest.approx((low + high) / 2, abs=0.1)


def test_characters_that_reorder_hide_or_break_text_are_shown_everywhere(tmp_path):
    hostile = "gnp\u202e\u2066\u200b\x1b[31m\x00\ud800"
    sample = Sample("wrong", hostile, hostile, [hostile], (hostile, "l1\r\nl2\tend"))
    body = parts.samples([sample], {"right": 0, "wrong": 1, "unread": 0, "failed": 0}, name=hostile)
    body += parts.plain_table([hostile], [[hostile, hostile]]) + parts.facts(((hostile, hostile),))
    page = write_page(
        Page(hostile, [PageSection(hostile, body, hostile)], hostile, notes=[hostile]), tmp_path / "p.html"
    )
    content = page.read_text(encoding="utf-8")
    assert not {"\u202e", "\u2066", "\u200b", "\x1b", "\x00"} & set(content)
    assert content.count(r"gnp\u202e\u2066\u200b\x1b[31m\x00\ud800") == 17
    assert "l1\nl2\tend" in content
