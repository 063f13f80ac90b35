"""Report: what a run found, as one HTML file that needs nothing else, neither network nor script.

page.py       the parts of a page and the file
parts.py      table, paired differences, example answers, facts
chart.py      lines over steps, and intervals, as SVG
"""

from vcsd.report.chart import Chart, Line
from vcsd.report.page import Page, write_page
from vcsd.report.parts import Answer, Case, Facts, Score, ScoreRow, ScoreTable

__all__ = ["Answer", "Case", "Chart", "Facts", "Line", "Page", "Score", "ScoreRow", "ScoreTable", "write_page"]
