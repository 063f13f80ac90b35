"""Builds the HTML pages. A page has a title and sections; a section's body is made of parts and charts.

    page = Page("Results", [PageSection("Scores", plain_table(["benchmark", "score"], [["BLINK", "61.2"]]))])
    write_page(page, "report.html")

The result is one file without scripts that opens from disk, in light and in dark, and needs no network.

page.py       the builder and the file
parts.py      tables, tiles, cards, answers to filter, facts
chart.py      lines over steps, intervals, bars
markup.py     escaping
"""
