"""Check wheel and sdist beyond `twine check`: their version, their content, and how their description renders.

python .ci/check_distributions.py dist [v0.1.0]
"""

import re
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from readme_renderer import markdown

ROOT = Path(__file__).parents[1]
NEEDED = ("vcsd/__init__.py", "vcsd/py.typed", "vcsd/recipes/paper/qwen3_vl_2b.yaml", "vcsd/bases/assets/")
"""Parts of the wheel that a user needs and a mistake in pyproject.toml could lose."""

MOST_MIB = 20
"""PyPI accepts 100; the two tiny base models take most of what there is."""


def problems(folder: Path, tag: str | None) -> list[str]:
    """List what is wrong with the distributions in a folder."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        message = HeaderParser().parsestr(file.read(metadata).decode())
    with tarfile.open(sdist) as file:
        sources = [name.partition("/")[2] for name in file.getnames()]
    found = [f"the wheel lacks {part}" for part in NEEDED if not any(name.startswith(part) for name in names)]
    found += [
        f"{path.name} has more than {MOST_MIB} MiB" for path in (wheel, sdist) if path.stat().st_size > MOST_MIB << 20
    ]
    found += [
        f"the sdist has {name}"
        for name in sources
        if name.startswith(("tests", "docs", "benchmarks", ".")) and name != ".gitignore"
    ]
    return found + version_problems(message["Version"], tag) + description_problems(str(message.get_payload()))


def version_problems(version: str, tag: str | None) -> list[str]:
    """Compare the version with the tag and with the changelog."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = [] if re.search(rf"^## {re.escape(version)} - ", changelog, re.MULTILINE) else [f"no changes of {version}"]
    return found if tag in (None, f"v{version}") else [*found, f"the tag is {tag}, the version {version}"]


def description_problems(text: str) -> list[str]:
    """Render the description as PyPI does, and look for links that lead nowhere there."""
    page = markdown.render(text)
    if page is None:
        return ["the description cannot be rendered"]
    links = re.findall(r'(?:href|src)="([^"]*)"', page)
    return [f"the description links to {link}" for link in links if not link.startswith(("https://", "http://", "#"))]


if __name__ == "__main__":
    faults = problems(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
    print("\n".join(faults) or "wheel and sdist are whole; their description renders and links nowhere it should not")
    sys.exit(bool(faults))
