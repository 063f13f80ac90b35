"""Hostile text on pages, in logs and on the terminal: shown, never obeyed."""

import logging
import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from attacker import NUMBERS, rng_of, text
from vcsd.report.chart import Chart, Line, ShareBar, bar_chart, line_charts
from vcsd.report.page import Page, PageSection, write_page
from vcsd.report.parts import Answer, Case, Score, ScoreRow, ScoreTable, Tile, cases, facts, plain_table, score_table
from vcsd.terminal import guard_terminal, say
from vcsd.visible import visible, visible_json

NUM_PAGES, NUM_LINES = 300, 1200

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


class Tags(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        assert not any((value or "").strip().lower().startswith(("javascript:", "http:", "//")) for _, value in attrs)


def tags_of(html):
    reader = Tags()
    reader.feed(html)
    reader.close()
    return reader.tags, reader.attributes


def page_of(write):
    """A page with every kind of part, in which `write` gives all texts."""
    number = abs(hash(write())) % 100
    scores = {"x": Score(number, number - 1, number + 1)}
    table = ScoreTable(["x"], [ScoreRow(write(), "base", scores)], [ScoreRow(write(), "vcsd", scores)], note=write())
    answers = [Answer(write(), "base", write(), is_right=False)]
    body = "".join(
        (
            score_table(table),
            cases([Case(write(), write(), write(), [Image.new("RGB", (2, 2))], answers)]),
            facts([(write(), write())]),
            plain_table([write()], [[write()]]),
            bar_chart(write(), [ShareBar(write(), number, write())]),
            line_charts([Chart(write(), [Line(write(), "base", [(1, 1), (2, number)])], write())]),
        )
    )
    sections = [PageSection(write(), body, write())]
    return Page(write(), sections, write(), [Tile(write(), write(), write())], [write()])


def test_hostile_text_adds_no_tag_to_a_page(tally, tmp_path):
    """A page has the same tags and attributes whatever its texts are, and no character that reorders it."""
    pages = [write_page(page_of(lambda word=word: word), tmp_path / "page.html").read_text() for word in ("a", "")]
    tags, attributes = (set.union(*found) for found in zip(*map(tags_of, pages), strict=True))
    assert "script" not in tags
    for number in range(NUM_PAGES):
        rng = rng_of("pages", number)
        with tally.case():
            html = write_page(page_of(lambda rng=rng: text(rng)), tmp_path / "page.html").read_text()
            found_tags, found_attributes = tags_of(html)
            assert found_tags <= tags
            assert found_attributes <= attributes
            assert not OBEYED.search(html.replace("\r\n", "\n"))
            tally.note("shown")


def test_no_chart_has_nan_in_a_path(tally):
    finite = [number for number in NUMBERS if abs(number) < 1e300]
    for number in range(NUM_PAGES):
        rng = rng_of("charts", number)
        points = [(step, rng.choice(finite)) for step in range(rng.randrange(30))]
        with tally.case(points):
            drawn = line_charts([Chart("a", [Line("a", "base", points)])])
            assert not re.search(r"[\"\s,](nan|inf|-inf)[\"\s,]", drawn)
            tally.note("drawn")


@pytest.fixture
def guarded():
    factory = logging.getLogRecordFactory()
    guard_terminal()
    yield
    logging.setLogRecordFactory(factory)


def test_no_control_character_reaches_the_terminal(tally, capsys, guarded, caplog):
    for number in range(NUM_LINES):
        hostile = text(rng_of("terminal", number))
        with tally.case(hostile):
            say(hostile)
            say(hostile, to_stderr=True)
            logging.getLogger("another.library").warning("%s", hostile)
            out, err = capsys.readouterr()
            assert out == err
            assert not OBEYED.search((out + caplog.messages[-1]).replace("\r\n", "\n"))
            assert visible(visible(hostile)) == visible(hostile)
            assert not OBEYED.search(visible_json(hostile).replace("\r\n", ""))
            tally.note("shown")
            caplog.clear()
