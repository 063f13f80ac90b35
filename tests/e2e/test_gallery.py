"""The gallery is what its command draws, and the README's pictures are small."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_gallery_is_what_its_command_draws(tmp_path):
    command = [sys.executable, ROOT / "examples" / "gallery.py", "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    drawn, kept = ((folder / "gallery.md").read_text() for folder in (tmp_path, ROOT / "docs"))
    assert re.sub(r"\d+%", "%", drawn) == re.sub(r"\d+%", "%", kept)
    for name in ("method.png", *re.findall(r"\((gallery/\w+\.png)\)", kept)):
        assert (tmp_path / name).stat().st_size
        assert (ROOT / "docs" / name).is_file()


def test_the_readme_opens_with_the_method_and_its_pictures_are_below_one_megabyte():
    text = (ROOT / "README.md").read_text()
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert pictures[0] == "docs/method.png"
    assert text.index("docs/method.png") < 200
    assert sum((ROOT / path).stat().st_size for path in pictures) < 1_000_000
