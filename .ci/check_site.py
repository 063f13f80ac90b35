"""Check the built site: every page is found from the index, every link works, and nothing comes from elsewhere.

python .ci/check_site.py build/site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""Elements that make a browser load something, and the attribute that says what."""


class Page(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names, links to or loads."""
        values = dict(attrs)
        self.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in LOADED and values.get(LOADED[tag]):
            self.loaded.append(values[LOADED[tag]])


def problems(root: Path) -> list[str]:
    """List what is wrong with a site."""
    pages = {path: Page(path) for path in root.rglob("*.html") if "_static" not in path.parts}
    found, reached, todo = [], set(), [root / "index.html"]
    while todo:
        path = todo.pop()
        if path in reached or path not in pages:
            continue
        reached.add(path)
        for link in pages[path].links:
            target, anchor = urldefrag(unquote(link))
            if urlsplit(link).scheme:
                continue
            place = (path.parent / target).resolve() if target else path
            if not place.exists():
                found.append(f"{path.relative_to(root)} links to {link}, which does not exist")
            elif anchor and place in pages and anchor not in pages[place].anchors:
                found.append(f"{path.relative_to(root)} links to {link}: the page has no such place")
            todo.append(place)
    for path, page in pages.items():
        found += [f"{path.relative_to(root)} loads {url} from elsewhere" for url in page.loaded if is_outside(url)]
        if path not in reached and path.name not in ("search.html", "genindex.html", "py-modindex.html"):
            found.append(f"{path.relative_to(root)} cannot be reached from the index")
    return found or too_small(reached)


def is_outside(url: str) -> bool:
    """Whether a browser would ask another host."""
    return bool(urlsplit(url).netloc)


def too_small(reached: set[Path]) -> list[str]:
    """A site of a few pages means that the check saw the wrong folder."""
    return [] if len(reached) > 40 else [f"only {len(reached)} pages were found"]


if __name__ == "__main__":
    faults = problems(Path(sys.argv[1]).resolve())
    print("\n".join(faults) or "every page of the site is found, every link works, nothing comes from elsewhere")
    sys.exit(bool(faults))
