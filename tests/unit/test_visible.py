import sys
import unicodedata

import pytest

from vcsd.visible import visible

SHOWN_MARKS = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}
"""Format characters of scripts, which have a shape."""
JOINERS = {0x200C, 0x200D}
UNHARMFUL = {ord("\n"), ord("\t")}


def test_every_character_that_is_obeyed_rather_than_shown_is_written_out():
    obeyed = {
        code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    left = {code for code in obeyed if visible(chr(code)) == chr(code)}
    assert left <= SHOWN_MARKS | JOINERS | UNHARMFUL


@pytest.mark.parametrize(
    "text", ["plain\n\ttext\r\n", "naïve — 数字 ½ ≤ é", "שלום مرحبا", "👩‍👩‍👧", "می‌خواهم", "\\x1b", "x[/red]"]
)
def test_ordinary_text_stays_as_it_is(text):
    assert visible(text) == text


def test_what_is_written_out_can_be_told_apart():
    assert visible("\x1b]0;title\x07") == r"\x1b]0;title\x07"
    assert visible("100%\rdone") == r"100%\rdone"
    assert visible("\u202egnp.exe \ud800 \x9b31m \U000e0041") == r"\u202egnp.exe \ud800 \x9b31m \U000e0041"
